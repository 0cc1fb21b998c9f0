// ---- one sample -------------------------------------------------------------------------------

const verdictOf = (verdict) => (verdict.status === "failed" ? "failed" : verdict.verdict || "none");

// Of cited passages those on all of them count, and those without one are for the precision of citations alone.
const isOfAll = (verdict) => verdict.premises !== "cited" || verdict.passage === null;

// Over several passages, a claim is entailed if one entails it, else contradicted if one contradicts it.
function judged(claim, step) {
  if (claim.status === "failed") return "failed";
  const found = claim.verdicts.filter((one) => (!step || one.step === step) && isOfAll(one)).map(verdictOf);
  return ["entailed", "contradicted", "neutral", "failed"].find((one) => found.includes(one)) || "none";
}

const textIn = (sample, field, passage) => (passage === null ? sample[field] : (sample[field] || [])[passage]);

// The evidence of the chosen claim in a text. A claim of the first run has evidence also where the second
// run has the same text, in any place among its contexts.
function evidenceIn(sample, field, passage, chosen) {
  const owner = [sample, sample.before].find((one) => one && one.claims.includes(chosen));
  if (!owner) return [];
  const here = (at) => (owner === sample ? at === passage : textIn(owner, field, at) === textIn(sample, field, passage));
  return chosen.verdicts
    .filter((one) => one.evidence_start !== null && one.against === field && here(one.evidence_passage))
    .map((one) => ({ start: one.evidence_start, end: one.evidence_end, kind: "evidence" }));
}

// Folded parts keep their state when the sample is drawn again.
function fold(view, key, { open = false, wanted = false, ...more }, summary, ...children) {
  const toggle = (event) => view.folds.set(key, event.target.open);
  const left = view.folds.has(key) ? view.folds.get(key) : open;
  return node("details", { open: left || wanted, toggle, ...more }, node("summary", {}, summary), children);
}

function callDetails(sample, id, what, view) {
  const call = sample.calls.find((one) => one.call_id === id);
  if (!call) return null;
  const tokens = call.prompt_tokens === null ? "tokens unknown" : `${call.prompt_tokens} + ${call.completion_tokens || 0} tokens`;
  const cost = call.cost === null ? "price unknown" : `${call.cost} USD`;
  const told = [["System message", call.system], ["Prompt", call.prompt], ["Raw reply", call.reply], ["Error", call.error]];
  return fold(view, `call ${what} ${id}`, { class: "call" }, `${what} by ${call.model}: ${call.outcome}, ${tokens}, ${cost}, ${call.seconds.toFixed(1)} s`,
    told.filter(([, text]) => text !== null).map(([name, text]) => [textTitle("h5", name, text),
      node("pre", { class: "text", dir: "auto", tabindex: "0", role: "group", "aria-label": name }, text)]));
}

// The votes on a claim, one by one.
function ballotDetails(sample, verdict, view) {
  const votes = verdict.ballot || [];
  if (!votes.length) return null;
  return node("ul", { class: "ballot" }, votes.map((vote, number) => node("li", {},
    verdictLabel(vote.verdict || "failed"), " ", node("bdi", {}, `${vote.judge}${vote.reason ? `: ${vote.reason}` : ""}`),
    vote.call_id === verdict.call_id ? null : callDetails(sample, vote.call_id, `Vote ${number + 1}`, view))));
}

// Which model of a cascade gave the verdict.
function cascadeWords(verdict) {
  if (verdict.judged_by === "embedded") return "Settled by the embedded model, which was sure.";
  if (verdict.judged_by === "judge") return `Referred to the judge; the embedded model says ${verdict.model_verdict}.`;
  if (verdict.judged_by === "audit") return `An audit: the judge was asked although the embedded model was sure that it is ${verdict.model_verdict}.`;
  return null;
}

function verdictDetails(sample, verdict, view) {
  const passage = verdict.passage === null ? "" : `${isOfAll(verdict) ? "" : " without"} [${verdict.passage}]`;
  const odds = verdict.p_entailed === null ? null
    : `probabilities: entailed ${digits(verdict.p_entailed)}, contradicted ${digits(verdict.p_contradicted)}, neutral ${digits(verdict.p_neutral)}`;
  const votes = verdict.agreement === null ? null : `${Math.round(verdict.agreement * 100)} % of the votes`;
  const likeliest = odds && verdict.verdict === "neutral" && verdict.p_neutral < Math.max(verdict.p_entailed, verdict.p_contradicted)
    ? "Neutral, since neither entailed nor contradicted reaches its threshold." : null;
  const lines = [cascadeWords(verdict), odds, likeliest, votes, verdict.reason && `Reason: ${verdict.reason}`, verdict.evidence && `Evidence: ${verdict.evidence}`];
  return node("div", { class: "verdict" },
    node("p", {}, verdictLabel(verdictOf(verdict)), ` against ${verdict.against}${passage} (${verdict.step})`),
    lines.filter(Boolean).map((line) => node("p", { dir: "auto" }, line)),
    ballotDetails(sample, verdict, view), callDetails(sample, verdict.call_id, "Judged", view));
}

function claimsOf(sample, side) {
  const claims = sample.claims.filter((claim) => claim.of === side);
  return claims.sort((a, b) => (a.start === null) - (b.start === null) || a.start - b.start);
}

// A claim in the list below its text; the chosen one with its verdicts.
function claimLine(sample, claim, step, view) {
  const chosen = claim === view.chosen;
  const button = node("button", { type: "button", class: "claim", "aria-expanded": String(chosen), click: () => view.choose(chosen ? null : claim) },
    verdictLabel(judged(claim, step)), " ", node("bdi", {}, claim.claim === null ? claim.reason || "(no claims)" : claim.claim),
    claim.ambiguous ? node("span", { class: "unclear" }, ` unclear: ${claim.ambiguous}`) : null);
  if (claim === view.pressed) view.button = button;
  if (!chosen) return node("li", {}, button);
  const why = claim.status === "made" && claim.reason ? node("p", { dir: "auto" }, claim.reason) : null;
  const cites = claim.cites ? node("p", { dir: "auto" }, claim.cites) : null;
  const { run } = byId("packed").dataset;
  const history = run && claim.claim !== null
    ? node("p", {}, node("a", { href: `/claim?${new URLSearchParams({ run, sample: sample.sample_id, claim: claim.claim })}` }, "This claim over the runs")) : null;
  return node("li", {}, button, node("div", { class: "title" }, copyButton("claim", claim.claim)), why, cites, history, claim.verdicts.map((one) => verdictDetails(sample, one, view)), callDetails(sample, claim.call_id, "Decomposed", view));
}

// A text with its claims, those of the step that the reader selects; `differences` are marks in it.
function sidePanel(sample, side, title, differences, view) {
  const claims = claimsOf(sample, side);
  const steps = [...new Set(claims.flatMap((claim) => claim.verdicts.map((one) => one.step)))];
  const step = [view.step, ...view.stepsOfMetric].find((one) => steps.includes(one)) || steps[0] || null;
  const marks = claims.filter((claim) => claim.start !== null).map((claim) => ({
    start: claim.start, end: claim.end, kind: judged(claim, step), chosen: claim === view.chosen, choose: () => view.choose(claim) }));
  const choice = steps.length < 2 ? null : node("label", {}, "verdicts of the step ", node("select", {
    change: (event) => { view.step = event.target.value; view.keepStep(view.step); view.draw(); } },
    steps.map((name) => node("option", { value: name, selected: name === step }, name))));
  return node("section", { "aria-label": title }, textTitle("h4", title, sample[side]), choice,
    textBlock(title, sample[side], [...marks, ...evidenceIn(sample, side, null, view.chosen), ...differences], view),
    claims.length ? claimList(sample, claims, title, step, view) : node("p", { class: "absent" }, "no claims of it"),
    nonClaims(sample, side));
}

const MOST_CLAIMS = 300;

// The claims below a text; of more than 300 those around the chosen one, or those that the reader goes on to.
function claimList(sample, claims, title, step, view) {
  const key = `claims of ${title}`;
  const part = view.parts.get(key) ?? Math.max(Math.floor(claims.indexOf(view.pressed) / MOST_CLAIMS), 0);
  const first = part * MOST_CLAIMS;
  const shown = claims.slice(first, first + MOST_CLAIMS);
  const list = node("ol", { class: "claims", start: String(first + 1) }, shown.map((claim) => claimLine(sample, claim, step, view)));
  if (claims.length <= MOST_CLAIMS) return list;
  const go = (to) => () => { view.parts.set(key, to); view.draw(); };
  return [node("p", { class: "parts" }, `Claims ${first + 1} to ${first + shown.length} of ${claims.length.toLocaleString("en")} `,
    node("button", { type: "button", "aria-label": `previous ${key}`, disabled: part === 0, click: go(part - 1) }, "Previous claims"), " ",
    node("button", { type: "button", "aria-label": `next ${key}`, disabled: first + shown.length === claims.length, click: go(part + 1) }, "Next claims")), list];
}

// The sentences of a text that claim nothing, with their kinds.
function nonClaims(sample, side) {
  const found = sample.non_claims.filter((one) => one.of === side);
  if (!found.length) return null;
  return node("details", { class: "absent" }, node("summary", {}, `Sentences that claim nothing: ${found.length}`),
    node("ul", {}, found.map((one) => node("li", {}, `${one.kind}: `, node("bdi", {}, one.text)))));
}

// The response of each run, and the references if they or their claims differ between the runs.
function sidesPanel(sample, view) {
  const { before } = sample;
  const sides = [["response", "Response", true], ["reference", "Reference", before && !same(before, sample, "reference")]];
  const panels = sides.flatMap(([side, title, both]) => {
    if (!before || !both) return [sidePanel(sample, side, title, [], view)];
    const found = differencesOf(before[side], sample[side], view);
    return [note(found), sidePanel(before, side, `${title} in A`, found.removed, view), sidePanel(sample, side, `${title} in B`, found.added, view)];
  });
  return node("div", { class: "columns" }, panels, otherReferences(sample, view));
}

const same = (one, other, side) => one[side] === other[side] && JSON.stringify(claimsOf(one, side)) === JSON.stringify(claimsOf(other, side));

function otherReferences(sample, view) {
  const before = sample.before ? sample.before.other_references : sample.other_references;
  const now = sample.other_references;
  const panel = (text, name, marks) => node("section", { "aria-label": name }, textTitle("h4", name, text), textBlock(name, text, marks, view));
  return Array.from({ length: Math.max(before.length, now.length) }, (_, number) => {
    const name = `Another reference, ${number + 1} of ${Math.max(before.length, now.length)}`;
    const [a, b] = [before[number], now[number]];
    if (a === b) return panel(b, name, []);
    const found = differencesOf(a, b, view);
    return [note(found), panel(a, `${name}, in A`, found.removed), panel(b, `${name}, in B`, found.added)];
  });
}

// The question, that of each run where they differ.
function questionPanel(sample, view) {
  const { before } = sample;
  const text = (of, name, marks) => [textTitle("h4", name, of.user_input), textBlock(name, of.user_input, [...evidenceIn(of, "user_input", null, view.chosen), ...marks], view)];
  if (!before || before.user_input === sample.user_input) return text(sample, "Question", []);
  const found = differencesOf(before.user_input, sample.user_input, view);
  return node("div", { class: "columns" }, note(found), node("section", { "aria-label": "Question in A" }, text(before, "Question in A", found.removed)),
    node("section", { "aria-label": "Question in B" }, text(sample, "Question in B", found.added)));
}

function contextsPanel(sample, view) {
  const { before } = sample;
  const now = sample.retrieved_contexts;
  const earlier = before ? before.retrieved_contexts : now;
  if (!now && !earlier) return null;
  const { pairs, gone } = pairedContexts(earlier || [], now || []);
  const block = (of, number, name, marks) => {
    const text = of.retrieved_contexts[number];
    return [node("div", { class: "title" }, copyButton(name, text)), textBlock(name, text, [...evidenceIn(of, "retrieved_contexts", number, view.chosen), ...marks], view)];
  };
  const folded = (of, number, name, told, ...shown) => {
    const text = of.retrieved_contexts[number];
    const marks = evidenceIn(of, "retrieved_contexts", number, view.chosen);
    const begins = node("bdi", {}, Array.from(text.slice(0, 200)).slice(0, 100).join("").trim() + (text.length > 100 ? "…" : ""));
    return fold(view, name, { class: "context", open: number === 0, wanted: marks.length > 0 }, [`[${number}] `, told ? node("strong", {}, `${told} `) : null, begins], shown);
  };
  const shown = pairs.map(({ told, changed }, number) => {
    const name = `Context ${number}`;
    if (!changed) return folded(sample, number, name, told, block(sample, number, name, []));
    const found = differencesOf(earlier[number], now[number], view);
    return folded(sample, number, name, told, node("div", { class: "columns" }, note(found),
      node("div", {}, node("h5", {}, "In A"), block(before, number, `${name} in A`, found.removed)),
      node("div", {}, node("h5", {}, "In B"), block(sample, number, `${name} in B`, found.added))));
  });
  const only = gone.map((number) => folded(before, number, `Context ${number} in A`, "only in A", block(before, number, `Context ${number} in A`, [])));
  return node("section", { "aria-label": "Retrieved contexts" }, node("h4", {}, `Retrieved contexts: ${(now || []).length}`), shown, only);
}

const MEASURES = { rouge_l_precision: "ROUGE-L precision", rouge_l_f1: "ROUGE-L F1", token_overlap_precision: "overlap precision", token_overlap_f1: "overlap F1", bleu: "BLEU", chrf: "chrF" };

function sentencesPanel(sample, view) {
  if (!sample.sentences.length) return null;
  const points = Array.from(sample.response || "");
  const rows = sample.sentences.map((one) => [one.position === null ? "(all of it)" : points.slice(one.start, one.end).join(""),
    one.against + (one.source === null ? "" : ` [${one.source}]`), ...Object.keys(MEASURES).map((name) => digits(one[name]))]);
  const title = "Lexical scores, sentence by sentence";
  return fold(view, "sentences", {}, title, table(title, ["sentence of the response", "against", ...Object.values(MEASURES)], rows));
}

// What the judge says of each check of a rubric.
function checksPanel(sample, view) {
  const steps = [...new Set(sample.checks.map((one) => one.step))];
  return steps.map((step) => node("section", { "aria-label": step }, node("h4", {}, step),
    node("ol", { class: "checks" }, sample.checks.filter((one) => one.step === step).map((one) => node("li", { class: "verdict" },
      node("p", {}, verdictLabel(verdictOf(one)), " ", node("bdi", {}, `${one.check_name}: ${one.criterion || "-"}`)),
      [one.claim && `Claim: ${one.claim}`, one.agreement === null ? null : `${Math.round(one.agreement * 100)} % of the votes`, one.reason && `Reason: ${one.reason}`]
        .filter(Boolean).map((line) => node("p", { dir: "auto" }, line)),
      ballotDetails(sample, one, view), callDetails(sample, one.call_id, "Judged", view))))));
}

const scoreName = (score, scores) => (scores.filter((one) => one.metric === score.metric).length > 1 ? `${score.step}.${score.metric}` : score.metric);

function scoresPanel(sample, view) {
  const short = (details) => Object.entries(details).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${typeof value === "number" ? +value.toFixed(4) : JSON.stringify(value)}`).join(", ");
  const rows = sample.scores.map((one) => [scoreName(one, sample.scores), one.score === null ? one.status : digits(one.score), one.reason || "", short(one.details)]);
  return fold(view, "scores", { open: true }, "Scores", rows.length ? table("Scores", ["metric", "score", "reason", "made of"], rows) : "no scores");
}

// `place` is the position of the sample among the matching ones; `go` opens the next or previous one,
// or closes it for 0.
function sampleHead(sample, { number, of, go }, view) {
  const way = (name, step, possible) => node("button", { type: "button", class: name.toLowerCase(), disabled: !possible, click: () => go(step) }, name);
  return node("div", { class: "head" }, node("h3", { id: "opened" }, "Sample ", node("bdi", {}, sample.sample_id)), node("div", {},
    node("span", { class: "faint" }, `${number.toLocaleString("en")} of ${of.toLocaleString("en")} `),
    view.textsOf().some(view.hasMarkdown) ? node("label", {}, node("input", { type: "checkbox", checked: view.markdown, change: (event) => view.render(event.target.checked) }), " Markdown ") : null,
    node("button", { type: "button", click: (event) => copied(location.href, event.target) }, "Copy link"), " ",
    way("Previous", -1, number > 1), " ", way("Next", 1, number < of), " ", way("Close", 0, true)));
}

// The name of a claim in an address: its number among those of the sample, with A those of the first run.
function claimNames(sample) {
  const earlier = sample.before ? sample.before.claims : [];
  return new Map([...earlier.map((claim, number) => [claim, `A${number + 1}`]), ...sample.claims.map((claim, number) => [claim, `${number + 1}`])]);
}

// Returns whether it shows the claim of `place`.
function openSample(sample, place) {
  const detail = byId("detail");
  const names = claimNames(sample);
  const [wanted] = [...names.keys()].filter((claim) => names.get(claim) === place.claim);
  // The claim of a link that the sample does not have, until the reader chooses one.
  let unknown = wanted ? null : place.claim;
  const known = new Map();
  const hasMarkdown = (text) => {
    if (!known.has(text)) known.set(text, looksLikeMarkdown(text));
    return known.get(text);
  };
  const textsOf = () => [sample, sample.before].filter(Boolean)
    .flatMap((one) => [one.user_input, one.response, one.reference, ...one.other_references, ...(one.retrieved_contexts || [])]).filter(Boolean);
  const view = { step: place.step, stepsOfMetric: place.stepsOfMetric, keepStep: place.keepStep, parts: new Map(), differences: new Map(), markdown: place.markdown, hasMarkdown, textsOf, chosen: wanted || null, pressed: wanted || null, folds: new Map(), button: null, draw, choose, render };
  function render(wantsMarkdown) {
    view.markdown = wantsMarkdown;
    place.rendered(wantsMarkdown);
    draw();
    detail.querySelector(".head input").focus();
  }
  const metadata = Object.entries(sample.metadata).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ");
  function choose(claim) {
    // The focus stays on the claim that is closed.
    view.pressed = claim || view.chosen;
    view.chosen = claim;
    unknown = null;
    if (claim) view.parts.clear();
    place.chose(claim ? names.get(claim) : null);
    reveal();
  }
  function reveal() {
    draw();
    if (view.button) view.button.focus();
    const evidence = detail.querySelector(".mark.evidence");
    if (evidence) evidence.scrollIntoView({ block: "nearest" });
    if (view.button) view.button.scrollIntoView({ block: "nearest" });
  }
  // Long texts keep their scroll position, unless another part is shown.
  const blocks = () => [...detail.querySelectorAll("[role=group]")];
  const nameOf = (block) => `${block.getAttribute("aria-label")} ${block.dataset.part || 0}`;
  function draw() {
    const tops = new Map(blocks().map((one) => [nameOf(one), one.scrollTop]));
    view.button = null;
    const parts = [
      sampleHead(sample, place, view), unknown && node("p", { role: "alert", class: "fail" }, `✗ The sample has no claim ${unknown}.`), metadata ? node("p", { class: "faint", dir: "auto" }, metadata) : null,
      questionPanel(sample, view), changesPanel(sample, view), sidesPanel(sample, view), contextsPanel(sample, view), checksPanel(sample, view), scoresPanel(sample, view), sentencesPanel(sample, view)];
    detail.replaceChildren(...parts.flat().filter(Boolean));
    for (const one of blocks()) one.scrollTop = tops.get(nameOf(one)) || 0;
  }
  detail.setAttribute("aria-labelledby", "opened");
  detail.hidden = false;
  detail.replaceChildren();
  if (view.chosen) reveal(); else draw();
  return Boolean(wanted);
}
