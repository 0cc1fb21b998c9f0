"use strict";
// Text under evaluation reaches the page in one way: as text nodes, made by `node` below.

const SIGNS = { entailed: "✓", contradicted: "✗", neutral: "?", failed: "!", none: "–" };
const WORST = ["failed", "contradicted", "neutral", "entailed", "none"];
const PAGE = 100;
const byId = (id) => document.getElementById(id);

// An element; attributes whose value is null or false are left out, strings become text.
function node(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const digits = (value) => (value === null || value === undefined ? "-" : value.toFixed(3));
const signed = (value) => (value > 0 ? "+" : "") + digits(value);
const word = (verdict) => node("span", { class: `word ${verdict}` }, `${SIGNS[verdict]} ${verdict === "none" ? "not judged" : verdict}`);
const said = (verdict) => (verdict.status === "failed" ? "failed" : verdict.verdict || "none");

// Of several passages one that entails settles a claim, then one that contradicts it.
function judged(claim, step) {
  if (claim.status === "failed") return "failed";
  const found = claim.verdicts.filter((one) => !step || one.step === step).map(said);
  return ["entailed", "contradicted", "neutral", "failed"].find((one) => found.includes(one)) || "none";
}

async function unpacked() {
  const bytes = Uint8Array.from(atob(byId("packed").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return whole(JSON.parse(await new Response(stream).text()));
}

// What was left out since it is told elsewhere: system messages, and what is the same in both runs.
function whole(samples) {
  const systems = [];
  for (const sample of samples) {
    for (const call of [...sample.calls, ...(sample.before ? sample.before.calls : [])]) {
      if (typeof call.system === "string") systems.push(call.system);
      else if (call.system !== null) call.system = systems[call.system];
    }
    if (sample.before) {
      sample.before = { ...sample, ...sample.before, before: null, calls: [...sample.before.calls, ...sample.calls] };
    }
  }
  return samples;
}

// The text cut where marks begin and end, each piece with the marks that cover it. Positions
// count code points, JavaScript's strings count halves of some.
function pieces(text, marks) {
  const points = Array.from(text);
  const inside = marks.filter((mark) => mark.start >= 0 && mark.start < mark.end && mark.end <= points.length);
  const at = new Map([[0, []], [points.length, []]]);
  for (const mark of inside) for (const place of [mark.start, mark.end]) at.set(place, [...(at.get(place) || []), mark]);
  const cuts = [...at.keys()].sort((a, b) => a - b);
  const open = new Set();
  return cuts.slice(0, -1).map((from, number) => {
    for (const mark of at.get(from)) if (mark.start === from) open.add(mark); else open.delete(mark);
    return { text: points.slice(from, cuts[number + 1]).join(""), marks: [...open] };
  });
}

function textBlock(text, marks) {
  if (text === null || text === undefined) return node("p", { class: "absent" }, "(missing)");
  if (text === "") return node("p", { class: "absent" }, "(empty)");
  const seen = new Set();
  const parts = pieces(text, marks).map((piece) => {
    if (!piece.marks.length) return piece.text;
    const claims = piece.marks.filter((mark) => mark.open);
    const kind = WORST.find((one) => claims.some((mark) => mark.kind === one));
    const evidence = piece.marks.some((mark) => mark.kind === "evidence");
    const classes = ["mark", kind, evidence && "evidence", claims.some((mark) => mark.chosen) && "chosen"];
    const first = piece.marks.filter((mark) => !seen.has(mark));
    first.forEach((mark) => seen.add(mark));
    const sign = first.length ? node("span", { class: "sign", "aria-hidden": "true" }, evidence && !kind ? "❝" : SIGNS[kind] || "❝") : null;
    const open = () => claims[0].open();
    return node("span", {
      class: classes.filter(Boolean).join(" "), "aria-label": claims.length ? `${kind}: ${piece.text}` : null, role: claims.length ? "button" : "mark",
      tabindex: claims.length ? "0" : null,
      click: claims.length ? open : null,
      keydown: claims.length ? (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } } : null,
    }, piece.text, sign);
  });
  return node("div", { class: "text", dir: "auto", tabindex: "0" }, parts);
}

function table(columns, rows, caption) {
  const cell = (value) => (value instanceof Node ? value : node("bdi", {}, value === null || value === undefined ? "-" : String(value)));
  const number = (value) => typeof value === "number" || (typeof value === "string" && /^([+-]?\d[\d.]*|-)$/.test(value));
  return node("div", { class: "wide" }, node("table", {},
    caption ? node("caption", {}, caption) : null,
    node("thead", {}, node("tr", {}, columns.map((name) => node("th", { scope: "col" }, name)))),
    node("tbody", {}, rows.map((row) => node("tr", {}, row.map((value) => node("td", { class: number(value) ? "number" : null }, cell(value))))))));
}

// ---- one sample -------------------------------------------------------------------------------

function evidenceOf(claim) {
  return claim.verdicts.filter((one) => one.evidence_start !== null).map((one) => ({
    field: one.against, passage: one.evidence_passage, start: one.evidence_start, end: one.evidence_end, kind: "evidence" }));
}

const textIn = (sample, field, passage) => (passage === null ? sample[field] : (sample[field] || [])[passage]);

// Evidence of a claim of the first run is shown where the second has the same text.
function marksIn(sample, field, passage, chosen) {
  const owner = [sample, sample.before].find((one) => one && one.claims.includes(chosen));
  if (!owner || textIn(owner, field, passage) !== textIn(sample, field, passage)) return [];
  return evidenceOf(chosen).filter((one) => one.field === field && one.passage === passage);
}

function callDetails(sample, id, what) {
  const call = sample.calls.find((one) => one.call_id === id);
  if (!call) return null;
  const tokens = call.prompt_tokens === null ? "tokens not told" : `${call.prompt_tokens} + ${call.completion_tokens || 0} tokens`;
  const cost = call.cost === null ? "price unknown" : `${call.cost} USD`;
  const told = [["System message", call.system], ["Prompt", call.prompt], ["Raw reply", call.reply], ["Error", call.error]];
  return node("details", { class: "call" }, node("summary", {}, `${what} by ${call.model}: ${call.outcome}, ${tokens}, ${cost}, ${call.seconds.toFixed(1)} s`),
    told.filter(([, text]) => text !== null).map(([name, text]) => [node("h4", {}, name), node("pre", { class: "text", dir: "auto", tabindex: "0" }, text)]));
}

function verdictDetails(sample, verdict) {
  const kind = said(verdict);
  const passage = verdict.passage === null ? "" : ` [${verdict.passage}]`;
  const odds = verdict.p_entailed === null ? null
    : `probabilities: entailed ${digits(verdict.p_entailed)}, contradicted ${digits(verdict.p_contradicted)}, neutral ${digits(verdict.p_neutral)}`;
  const votes = verdict.agreement === null ? null : `${Math.round(verdict.agreement * 100)} % of the votes; ${verdict.ballot || ""}`;
  const lines = [odds, votes, verdict.reason && `Reason: ${verdict.reason}`, verdict.evidence && `Evidence: ${verdict.evidence}`];
  return node("div", { class: "verdict" },
    node("p", {}, word(kind), ` against ${verdict.against}${passage} (${verdict.step})`),
    lines.filter(Boolean).map((line) => node("p", { dir: "auto" }, line)), callDetails(sample, verdict.call_id, "Judged"));
}

function claimsOf(sample, side) {
  const claims = sample.claims.filter((claim) => claim.of === side);
  return claims.sort((a, b) => (a.start === null) - (b.start === null) || a.start - b.start);
}

// A text with its claims, held against what the reader chooses; redraws by `view.draw`.
function sidePanel(sample, side, title, view) {
  const claims = claimsOf(sample, side);
  const steps = [...new Set(claims.flatMap((claim) => claim.verdicts.map((one) => one.step)))];
  const step = steps.includes(view.steps[side]) ? view.steps[side] : steps[0] || null;
  const marks = claims.filter((claim) => claim.start !== null).map((claim) => ({
    start: claim.start, end: claim.end, kind: judged(claim, step), chosen: claim === view.chosen,
    open: () => view.choose(claim) }));
  const choice = steps.length < 2 ? null : node("label", {}, "claims held against ", node("select", {
    change: (event) => { view.steps[side] = event.target.value; view.draw(); } },
    steps.map((name) => node("option", { value: name, selected: name === step }, name))));
  const items = claims.map((claim) => {
    const chosen = claim === view.chosen;
    const button = node("button", { type: "button", class: "claim", "aria-expanded": String(chosen), click: () => view.choose(chosen ? null : claim) },
      word(judged(claim, step)), " ", node("bdi", {}, claim.claim === null ? claim.reason || "(no claims)" : claim.claim));
    if (chosen) view.button = button;
    const why = chosen && claim.status === "made" && claim.reason ? node("p", { dir: "auto" }, claim.reason) : null;
    return node("li", {}, button, chosen ? [why, claim.verdicts.map((one) => verdictDetails(sample, one)), callDetails(sample, claim.call_id, "Decomposed")] : null);
  });
  return node("section", { "aria-label": title }, node("h4", {}, title), choice,
    textBlock(sample[side], [...marks, ...marksIn(sample, side, null, view.chosen)]),
    items.length ? node("ol", { class: "claims" }, items) : node("p", { class: "absent" }, "no claims of it"));
}

function contextsPanel(sample, view) {
  if (!sample.retrieved_contexts) return null;
  return node("section", { "aria-label": "Retrieved contexts" }, node("h4", {}, `Retrieved contexts: ${sample.retrieved_contexts.length}`),
    sample.retrieved_contexts.map((text, number) => {
      const marks = marksIn(sample, "retrieved_contexts", number, view.chosen);
      return node("details", { open: view.contexts.has(number) || marks.length > 0, class: "context",
        toggle: (event) => { if (event.target.open) view.contexts.add(number); else view.contexts.delete(number); } },
        node("summary", {}, `[${number}] `, node("bdi", {}, text.slice(0, 100).trim() + (text.length > 100 ? "…" : ""))), textBlock(text, marks));
    }));
}

function sentencesPanel(sample) {
  if (!sample.sentences.length) return null;
  const points = Array.from(sample.response || "");
  const names = { rouge_l_precision: "ROUGE-L precision", rouge_l_f1: "ROUGE-L F1", token_overlap_precision: "overlap precision", token_overlap_f1: "overlap F1", bleu: "BLEU", chrf: "chrF" };
  const rows = sample.sentences.map((one) => [one.position === null ? "(all of it)" : points.slice(one.start, one.end).join(""),
    one.against + (one.source === null ? "" : ` [${one.source}]`), ...Object.keys(names).map((name) => digits(one[name]))]);
  return node("details", {}, node("summary", {}, "Lexical scores, sentence by sentence"), table(["sentence of the response", "against", ...Object.values(names)], rows));
}

function scoreName(score, scores) {
  return scores.filter((one) => one.metric === score.metric).length > 1 ? `${score.step}.${score.metric}` : score.metric;
}

function scoresPanel(sample) {
  const short = (details) => Object.entries(details).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${typeof value === "number" ? +value.toFixed(4) : JSON.stringify(value)}`).join(", ");
  const rows = sample.scores.map((one) => [scoreName(one, sample.scores), one.score === null ? one.status : digits(one.score), one.reason || "", short(one.details)]);
  return node("details", { open: true }, node("summary", {}, "Scores"), table(["metric", "score", "reason", "made of"], rows));
}

function changesPanel(sample) {
  const changes = sample.changes;
  if (!changes) return byId("packed").dataset.against ? node("p", {}, "The same in both runs.") : null;
  const told = (verdict, reason) => node("div", { dir: "auto" }, SIGNS[verdict] ? word(verdict) : verdict || "-", reason ? `: ${reason}` : "");
  const claims = changes.claims.map((one) => [one.change, one.claim, told(one.a, one.reason_a), told(one.b, one.reason_b), one.step, one.cause]);
  const scores = changes.scores.map((one) => [one.name, one.score_a === null ? one.status_a : digits(one.score_a), one.score_b === null ? one.status_b : digits(one.score_b), one.difference === null ? "-" : signed(one.difference)]);
  const fields = changes.fields.length ? ` (${changes.fields.join(", ")})` : "";
  return node("section", { "aria-label": "What changed" }, node("h4", {}, "What changed from A to B"),
    changes.state === "same" ? null : node("p", {}, `The sample is ${changes.state}${fields}.`),
    claims.length ? table(["change", "claim", "A", "B", "step", "cause"], claims) : null,
    scores.length ? table(["metric", "A", "B", "B - A"], scores) : null);
}

function openSample(sample, around) {
  const view = { steps: {}, chosen: null, contexts: new Set([0]), button: null, draw, choose };
  function choose(claim) {
    view.chosen = claim;
    draw();
    if (view.button) view.button.focus();
    const evidence = byId("detail").querySelector(".mark.evidence");
    if (evidence) evidence.scrollIntoView({ block: "nearest" });
    if (view.button) view.button.scrollIntoView({ block: "nearest" });
  }
  function draw() {
    view.button = null;
    const metadata = Object.entries(sample.metadata).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ");
    const others = sample.other_references.map((text) => [node("h4", {}, "Another reference"), textBlock(text, [])]);
    byId("detail").replaceChildren(
      node("div", { class: "head" }, node("h3", {}, "Sample ", node("bdi", {}, sample.sample_id)), node("div", {},
        node("button", { type: "button", click: () => around(-1) }, "Previous"), " ",
        node("button", { type: "button", click: () => around(1) }, "Next"), " ",
        node("button", { type: "button", click: () => around(0) }, "Close"))),
      metadata ? node("p", { class: "faint", dir: "auto" }, metadata) : "",
      node("h4", {}, "Question"), textBlock(sample.user_input, marksIn(sample, "user_input", null, view.chosen)),
      changesPanel(sample) || "",
      node("div", { class: "columns" },
        sample.before ? sidePanel(sample.before, "response", "Response in A", view) : null,
        sidePanel(sample, "response", sample.before ? "Response in B" : "Response", view),
        node("div", {}, sidePanel(sample, "reference", "Reference", view), others)),
      contextsPanel(sample, view) || "", scoresPanel(sample), sentencesPanel(sample) || "");
  }
  byId("detail").hidden = false;
  draw();
}

// ---- the list ---------------------------------------------------------------------------------

function counts(sample) {
  const found = { entailed: 0, contradicted: 0, neutral: 0, failed: 0 };
  for (const claim of sample.claims) {
    if (claim.status === "failed") found.failed += 1;
    for (const verdict of claim.verdicts) found[said(verdict)] += 1;
  }
  return found;
}

function control(label, name, input) {
  input.setAttribute("name", name);
  return node("label", {}, label, input);
}

function options(values, first) {
  return node("select", {}, first === null ? [] : node("option", { value: "" }, first), values.map(([value, shown]) => node("option", { value }, shown)));
}

function sliceOptions(samples) {
  const found = new Map();
  for (const sample of samples) for (const [key, value] of Object.entries(sample.metadata)) {
    if (value === null || typeof value === "object") continue;
    if (!found.has(key)) found.set(key, new Set());
    found.get(key).add(String(value));
  }
  return [...found].filter(([, values]) => values.size > 1 && values.size <= 30)
    .flatMap(([key, values]) => [...values].sort().map((value) => [JSON.stringify([key, value]), `${key}: ${value}`]));
}

function explore(samples) {
  const against = byId("packed").dataset.against;
  const metrics = [...new Set(samples.flatMap((sample) => sample.scores.map((one) => scoreName(one, sample.scores))))];
  const rows = samples.map((sample, rank) => ({ sample, rank, counts: counts(sample),
    scores: new Map(sample.scores.map((one) => [scoreName(one, sample.scores), one])),
    flips: sample.changes ? sample.changes.claims.length : 0,
    text: [sample.sample_id, sample.user_input, sample.response, sample.reference, ...(sample.retrieved_contexts || []), ...sample.claims.map((claim) => claim.claim)].filter(Boolean).join("\n").toLowerCase() }));
  const state = { sort: null, down: false, shown: PAGE, open: null, rows };
  const slices = sliceOptions(samples);
  const filters = byId("filters");
  filters.append(...[
    control("Search", "text", node("input", { type: "search", placeholder: "ids, texts, claims" })),
    control("Metric", "metric", options([["", "mean of all"], ...metrics.map((name) => [name, name])], null)),
    control("from", "from", node("input", { type: "number", step: "any" })),
    control("to", "to", node("input", { type: "number", step: "any" })),
    control("Status", "status", options([["scored", "scored"], ["undefined", "undefined"], ["failed", "failed"]], "any")),
    control("Has a claim", "verdict", options(["entailed", "contradicted", "neutral", "failed"].map((one) => [one, `${SIGNS[one]} ${one}`]), "of any verdict")),
    slices.length ? control("Slice", "slice", options(slices, "all samples")) : null,
    against ? control("Changed", "changed", options([["flipped", "verdict flipped"], ["changed", "anything changed"], ["same", "nothing changed"]], "all samples")) : null,
    node("button", { type: "reset" }, "Clear")].filter(Boolean));

  const value = (name) => (filters.elements[name] ? filters.elements[name].value : "");
  const scoreOf = (row) => (value("metric") ? (row.scores.get(value("metric")) || { score: null }).score : row.sample.mean);
  const columns = [
    ["sample", (row) => row.sample.sample_id], ["question", (row) => row.sample.user_input || ""], ["mean", scoreOf],
    ["✓", (row) => row.counts.entailed, "verdicts entailed"], ["✗", (row) => row.counts.contradicted, "verdicts contradicted"],
    ["?", (row) => row.counts.neutral, "verdicts neutral"], ["!", (row) => row.counts.failed, "failed rows"],
    ...(against ? [["changed claims", (row) => row.flips]] : [])];

  function statusFits(row) {
    const wanted = value("status");
    const found = value("metric") ? [row.scores.get(value("metric"))].filter(Boolean) : row.sample.scores;
    return !wanted || found.some((one) => one.status === wanted);
  }
  function changeFits(row) {
    const wanted = value("changed");
    const changes = row.sample.changes;
    if (!wanted) return true;
    if (wanted === "flipped") return Boolean(changes) && changes.claims.some((one) => one.change === "verdict flipped");
    return Boolean(changes) === (wanted === "changed");
  }
  function fits(row) {
    const score = scoreOf(row);
    const [key, of] = value("slice") ? JSON.parse(value("slice")) : [null, null];
    return row.text.includes(value("text").toLowerCase())
      && (value("from") === "" || (score !== null && score >= Number(value("from"))))
      && (value("to") === "" || (score !== null && score <= Number(value("to"))))
      && (!value("verdict") || row.counts[value("verdict")] > 0)
      && (key === null || String(row.sample.metadata[key]) === of)
      && statusFits(row) && changeFits(row);
  }
  function sorted(found) {
    if (state.sort === null) return found;
    const get = columns[state.sort][1];
    const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
    return [...found].sort((one, other) => {
      const [a, b] = [get(one), get(other)];
      if (a === null || b === null) return (a === null) - (b === null) || one.rank - other.rank;
      return (state.down ? order(b, a) : order(a, b)) || one.rank - other.rank;
    });
  }
  function drawHead() {
    byId("list").tHead.replaceChildren(node("tr", {}, columns.map(([named, get, aloud], number) => {
      const name = get === scoreOf ? value("metric") || named : named;
      const sort = state.sort === number ? (state.down ? "descending" : "ascending") : "none";
      const arrow = { descending: " ▼", ascending: " ▲", none: "" }[sort];
      return node("th", { scope: "col", "aria-sort": sort, class: number > 1 ? "number" : null }, node("button", { type: "button", "aria-label": `sort by ${aloud || name}`, title: aloud || name,
        click: () => { state.down = state.sort === number ? !state.down : false; state.sort = number; draw(); byId("list").tHead.querySelectorAll("button")[number].focus(); } }, name + arrow));
    })));
  }
  function rowOf(row) {
    const asked = row.sample.user_input || row.sample.response || "";
    const short = Array.from(asked.slice(0, 320)).slice(0, 140).join("");
    return node("tr", { tabindex: "0", "aria-current": String(row === state.open), click: () => show(row) },
      node("td", { class: "id" }, node("bdi", {}, row.sample.sample_id)), node("td", { class: "asked", dir: "auto" }, short + (short.length < asked.length ? "…" : "")),
      columns.slice(2).map(([, get]) => { const found = get(row); return node("td", { class: "number" }, get === scoreOf ? digits(found) : String(found)); }));
  }
  const listed = () => [...byId("list").tBodies[0].rows];
  function draw() {
    state.rows = sorted(rows.filter(fits));
    drawHead();
    byId("list").tBodies[0].replaceChildren(...state.rows.slice(0, state.shown).map(rowOf));
    byId("matches").textContent = `${state.rows.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} samples in this page match`;
    byId("more").hidden = state.rows.length <= state.shown;
  }
  function show(row) {
    state.open = row;
    listed().forEach((line, number) => line.setAttribute("aria-current", String(state.rows[number] === row)));
    openSample(row.sample, (step) => {
      if (step === 0) { close(); return; }
      const next = state.rows[state.rows.indexOf(row) + step];
      if (next) show(next);
    });
    byId("detail").focus({ preventScroll: true });
    byId("detail").scrollIntoView({ block: "start" });
  }
  function close() {
    const number = state.rows.indexOf(state.open);
    byId("detail").hidden = true;
    byId("detail").replaceChildren();
    state.open = null;
    listed().forEach((line) => line.setAttribute("aria-current", "false"));
    if (listed()[number]) listed()[number].focus();
  }
  function keyed(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.key === "Escape" && state.open) { close(); event.preventDefault(); }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { filters.elements.text.focus(); event.preventDefault(); }
    const number = listed().indexOf(event.target);
    if (number < 0) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { const next = listed()[number + step]; if (next) next.focus(); event.preventDefault(); }
    if (event.key === "Enter" || event.key === " ") { show(state.rows[number]); event.preventDefault(); }
  }
  const redraw = () => { state.shown = PAGE; draw(); };
  filters.addEventListener("input", redraw);
  filters.addEventListener("reset", () => setTimeout(redraw));
  filters.addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => { state.shown += PAGE; draw(); });
  document.addEventListener("keydown", keyed);
  draw();
}

unpacked().then(explore).catch((error) => { byId("trouble").textContent = `The samples cannot be shown: ${error.message}`; });
