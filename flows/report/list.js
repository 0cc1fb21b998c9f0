// ---- the list ---------------------------------------------------------------------------------

const PAGE = 100;

async function unpacked() {
  const bytes = Uint8Array.from(atob(byId("packed").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const packed = JSON.parse(await new Response(stream).text());
  return byId("packed").dataset.run ? packed : restored(packed);
}

// Restores what the packed samples leave out: repeated system messages, and what is the same in both runs.
function restored(samples) {
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

function counts(sample) {
  const found = { entailed: 0, contradicted: 0, neutral: 0, failed: 0 };
  for (const claim of sample.claims) {
    if (claim.status === "failed") found.failed += 1;
    for (const verdict of claim.verdicts.filter(isOfAll)) found[verdictOf(verdict)] += 1;
  }
  return found;
}

// A row of the list from a sample in the page; `rank` is its place in the unsorted list.
function rowOf(sample, rank) {
  const texts = [sample.sample_id, sample.user_input, sample.response, sample.reference, ...(sample.retrieved_contexts || []), ...sample.claims.map((claim) => claim.claim)];
  const failures = [...sample.claims, ...sample.claims.flatMap((claim) => claim.verdicts), ...sample.checks].map((one) => one.failure);
  return { rank, id: sample.sample_id, asked: sample.user_input || sample.response || "", mean: sample.mean, metadata: sample.metadata,
    counts: counts(sample), text: texts.filter(Boolean).join("\n").toLowerCase(),
    scores: new Map(sample.scores.map((one) => [scoreName(one, sample.scores), one])),
    failures: new Set(failures.filter(Boolean)), ...changesOf(sample.changes), load: async () => sample };
}

// What the list needs of the changes of a sample.
function changesOf(changes) {
  const { claims, scores } = changes || { claims: [], scores: [] };
  return { differs: Boolean(changes), flipped: claims.some((one) => one.change === "verdict flipped"), changed: claims.length,
    causes: new Set(claims.map((one) => one.cause)), moved: new Map(scores.map((one) => [one.name, one.difference])) };
}

// A row of the list in `claimflow view`, whose server has the sample itself.
function rowFrom(listed, rank) {
  let loading = null;
  const load = async () => {
    loading = loading || fromServer("sample", { id: listed.id, against: byId("packed").dataset.against });
    try { return restored([structuredClone(await loading)])[0]; } catch (error) { loading = null; throw error; }
  };
  return { ...listed, rank, text: null, scores: new Map(listed.scores.map(([name, status, score]) => [name, { status, score }])),
    failures: new Set(listed.failures), ...changesOf(listed.changes), load };
}

async function fromServer(what, parameters) {
  const reply = await fetch(`/run/${encodeURIComponent(byId("packed").dataset.run)}/${what}?${new URLSearchParams(parameters)}`);
  if (!reply.ok) throw new Error(`the server answers ${reply.status} ${reply.statusText}`);
  return reply.json();
}

function options(values, first) {
  const all = first === null ? values : [["", first], ...values];
  return node("select", {}, all.map(([value, shown]) => node("option", { value }, shown)));
}

// Metadata fields with 2 to 30 values, for the filter by slice.
function sliceOptions(rows) {
  const found = new Map();
  for (const row of rows) for (const [key, value] of Object.entries(row.metadata)) {
    if (value === null || typeof value === "object") continue;
    if (!found.has(key)) found.set(key, new Set());
    found.get(key).add(String(value));
  }
  return [...found].filter(([, values]) => values.size > 1 && values.size <= 30)
    .flatMap(([key, values]) => [...values].sort().map((value) => [JSON.stringify([key, value]), `${key}: ${value}`]));
}

const distinct = (sets) => [...new Set(sets.flatMap((one) => [...one]))].sort().map((one) => [one, one]);

function controls(rows, against) {
  const control = (label, name, input) => { input.setAttribute("name", name); return node("label", {}, label, input); };
  const metrics = [...new Set(rows.flatMap((row) => [...row.scores.keys()]))];
  const slices = sliceOptions(rows);
  const verdicts = ["entailed", "contradicted", "neutral", "failed"].map((one) => [one, `${SIGNS[one]} ${one}`]);
  const failures = distinct(rows.map((row) => row.failures));
  const causes = distinct(rows.map((row) => row.causes));
  const bound = () => node("input", { type: "number", step: "any" });
  return [
    control("Search", "text", node("input", { type: "search", placeholder: "ids, texts, claims" })),
    control("Metric", "metric", options([["", "mean of all"], ...metrics.map((name) => [name, name])], null)),
    control("Score from", "from", bound()), control("Score to", "to", bound()),
    control("Status", "status", options([["scored", "scored"], ["undefined", "undefined"], ["failed", "failed"]], "any")),
    control("Has a claim", "verdict", options(verdicts, "of any verdict")),
    slices.length ? control("Slice", "slice", options(slices, "all samples")) : null,
    against ? control("Changed", "changed", options([["flipped", "verdict flipped"], ["changed", "anything changed"], ["same", "nothing changed"]], "all samples")) : null,
    causes.length ? control("Cause of a change", "cause", options(causes, "any")) : null,
    failures.length ? control("Failure", "failure", options(failures, "any or none")) : null,
    node("button", { type: "reset" }, "Clear")].filter(Boolean);
}

// A predicate for each control that is set.
function tests(value, scoreOf, found) {
  const wants = {
    text: (row, wanted) => (row.text === null ? found.ids.has(row.id) : row.text.includes(wanted.toLowerCase())),
    from: (row, wanted) => scoreOf(row) !== null && scoreOf(row) >= Number(wanted),
    to: (row, wanted) => scoreOf(row) !== null && scoreOf(row) <= Number(wanted),
    verdict: (row, wanted) => row.counts[wanted] > 0,
    failure: (row, wanted) => row.failures.has(wanted),
    cause: (row, wanted) => row.causes.has(wanted),
    slice: (row, wanted) => { const [key, of] = JSON.parse(wanted); return String(row.metadata[key]) === of; },
    status: (row, wanted) => [...row.scores].some(([name, one]) => one.status === wanted && (!value("metric") || name === value("metric"))),
    changed: (row, wanted) => (wanted === "flipped" ? row.flipped : row.differs === (wanted === "changed")),
  };
  return Object.keys(wants).filter(value).map((name) => (row) => wants[name](row, value(name)));
}

function explore(packed) {
  const { against, run } = byId("packed").dataset;
  const rows = packed.map(run ? rowFrom : rowOf);
  const state = { sort: null, down: false, shown: PAGE, open: null, claim: null, markdown: true, address: "", following: false, rows, found: { text: "", ids: new Set() } };
  const [filters, list] = [byId("filters"), byId("list")];
  filters.append(...controls(rows, against));

  const value = (name) => (filters.elements[name] ? filters.elements[name].value : "");
  const scoreOf = (row) => (value("metric") ? (row.scores.get(value("metric")) || { score: null }).score : row.mean);
  const movedOf = (row) => { const moved = row.moved.get(value("metric")); return moved === undefined ? null : moved; };
  // The name in the address, the title, the value of a row, and the title in words.
  const columns = [
    ["sample", "sample", (row) => row.id], ["question", "question", (row) => row.asked], ["score", "mean", scoreOf],
    ["entailed", "✓", (row) => row.counts.entailed, "verdicts entailed"], ["contradicted", "✗", (row) => row.counts.contradicted, "verdicts contradicted"],
    ["neutral", "?", (row) => row.counts.neutral, "verdicts neutral"], ["failed", "!", (row) => row.counts.failed, "failed rows"],
    ...(against ? [["changed", "changed claims", (row) => row.changed], ["difference", "B - A", movedOf, "difference of the metric, B - A"]] : [])];

  function sortBy(number) {
    state.down = state.sort === number ? !state.down : false;
    state.sort = number;
    draw();
    tell();
    list.tHead.querySelectorAll("button")[number].focus();
  }
  function head([, named, get, aloud], number) {
    const name = get === scoreOf ? value("metric") || named : named;
    const order = state.sort === number ? (state.down ? "descending" : "ascending") : "none";
    return sortHeader(name, { order, number: number > 1, aloud: aloud || name, click: () => sortBy(number) });
  }
  function line(row) {
    const { asked } = row;
    const short = Array.from(asked.slice(0, 320)).slice(0, 140).join("");
    const open = row === state.open;
    return node("tr", { class: open ? "current" : null, click: () => show(row) },
      node("th", { scope: "row", class: "id" }, node("button", { type: "button", class: "open", "aria-current": String(open) }, node("bdi", {}, row.id))),
      node("td", { class: "asked", dir: "auto" }, short + (short.length < asked.length ? "…" : "")),
      columns.slice(2).map(([, , get]) => node("td", { class: "number" }, get === scoreOf ? digits(get(row)) : get === movedOf ? signedOrDash(get(row)) : String(get(row)))));
  }
  const openers = () => [...list.tBodies[0].querySelectorAll("button.open")];
  // The server searches the texts, which the page of `claimflow view` does not have.
  async function search() {
    const text = value("text");
    try {
      const ids = new Set(await fromServer("search", { text }));
      if (text !== value("text")) return;
      state.found = { text, ids };
      draw();
    } catch (error) { say(`The texts cannot be searched: ${error.message}`); }
  }
  const say = (text) => { byId("trouble").textContent = text; };
  function draw() {
    if (run && value("text") !== state.found.text) {
      clearTimeout(state.timer);
      if (value("text")) {
        byId("matches").textContent = "Searching…";
        state.timer = setTimeout(search, 150);
        return;
      }
      state.found = { text: "", ids: new Set() };
    }
    const wanted = tests(value, scoreOf, state.found);
    const found = rows.filter((row) => wanted.every((fits) => fits(row)));
    state.rows = state.sort === null ? found : sorted(found, columns[state.sort][2], state.down);
    list.tHead.replaceChildren(node("tr", {}, columns.map(head)));
    list.tBodies[0].replaceChildren(...state.rows.slice(0, state.shown).map(line));
    byId("matches").textContent = `${state.rows.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} samples in this page match`;
    byId("more").hidden = state.rows.length <= state.shown;
  }
  function mark(row) {
    state.open = row;
    openers().forEach((button, number) => {
      const open = state.rows[number] === row;
      button.setAttribute("aria-current", String(open));
      button.closest("tr").classList.toggle("current", open);
    });
  }
  async function show(row, claim = null) {
    mark(row);
    const chose = (name) => { state.claim = name; tell({ step: true }); };
    const rendered = (wanted) => { state.markdown = wanted; tell(); };
    state.claim = claim;
    tell({ step: true });
    let sample = null;
    try { sample = await row.load(); } catch (error) { say(`The sample cannot be read: ${error.message}`); return; }
    if (state.open !== row) return;
    openSample(sample, { number: state.rows.indexOf(row) + 1, of: state.rows.length, go, claim, chose, markdown: state.markdown, rendered });
    byId("detail").focus({ preventScroll: true });
    if (!claim) byId("detail").scrollIntoView({ block: "start" });
    // The next one is read meanwhile.
    const next = state.rows[state.rows.indexOf(row) + 1];
    if (next) next.load().catch(() => {});
  }
  async function go(step) {
    if (step === 0) { close(); return; }
    const next = state.rows[state.rows.indexOf(state.open) + step];
    if (!next) return;
    await show(next);
    const again = byId("detail").querySelector(step > 0 ? "button.next" : "button.previous");
    if (again && !again.disabled) again.focus({ preventScroll: true });
  }
  function close() {
    const number = state.rows.indexOf(state.open);
    hide();
    tell({ step: true });
    (openers()[number] || filters.elements.text).focus();
  }
  function hide() {
    byId("detail").hidden = true;
    byId("detail").replaceChildren();
    mark(null);
    state.claim = null;
  }
  function keyed(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (typing || byId("help").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && state.open) { close(); event.preventDefault(); }
    if (event.key === "/") { filters.elements.text.focus(); event.preventDefault(); }
    if (event.key === "?") { byId("help").showModal(); event.preventDefault(); }
    const letter = { j: 1, k: -1 }[event.key];
    if (letter && state.open) { go(letter); event.preventDefault(); return; }
    const step = letter || { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const number = openers().indexOf(event.target);
    if (!step || (number < 0 && !letter)) return;
    const next = openers()[number < 0 ? 0 : number + step];
    if (next) next.focus();
    event.preventDefault();
  }

  // The part of the address behind # says what is chosen and open: Back works, and a link leads to the same view.
  function addressOf() {
    const parts = new URLSearchParams();
    for (const input of filters.elements) if (input.name && input.value) parts.set(input.name, input.value);
    if (state.sort !== null) parts.set("sort", (state.down ? "-" : "") + columns[state.sort][0]);
    if (state.open) parts.set("sample", state.open.id);
    if (state.open && state.claim) parts.set("claim", state.claim);
    if (!state.markdown) parts.set("markdown", "off");
    return String(parts);
  }
  // Only a step that Back should undo is an entry of the history.
  function tell({ step = false } = {}) {
    const address = addressOf();
    if (address === state.address) return;
    state.address = address;
    if (state.following) return;
    if (step) history.pushState(null, "", `#${address}`);
    else history.replaceState(null, "", `#${address}`);
  }
  // Shows what the address says, when the page opens and when the reader goes back or follows a link in it.
  function follow() {
    const told = location.hash.slice(1);
    if (told === state.address || (told && !told.includes("="))) return;
    state.following = true;
    restore(new URLSearchParams(told));
    state.address = told;
    state.following = false;
  }
  function restore(parts) {
    filters.reset();
    for (const input of filters.elements) {
      const wanted = input.name && parts.get(input.name);
      if (wanted && (input.type !== "number" || Number.isFinite(Number(wanted)))) input.value = wanted;
    }
    for (const input of filters.querySelectorAll("select")) if (input.selectedIndex < 0) input.selectedIndex = 0;
    const rendered = state.markdown;
    state.markdown = parts.get("markdown") !== "off";
    const sort = parts.get("sort") || "";
    state.down = sort.startsWith("-");
    const number = columns.findIndex(([name]) => name === sort.replace("-", ""));
    state.sort = number < 0 ? null : number;
    state.shown = PAGE;
    draw();
    say("");
    const name = parts.get("sample");
    const row = rows.find((one) => one.id === name);
    if (row) { if (row !== state.open || parts.get("claim") !== state.claim || rendered !== state.markdown) show(row, parts.get("claim")); return; }
    hide();
    if (name !== null) say(`The sample ${name} is not in this page.`);
    else if (parts.size) byId("samples").scrollIntoView({ block: "start" });
  }
  const redraw = () => { state.shown = PAGE; draw(); tell(); };
  filters.addEventListener("input", redraw);
  filters.addEventListener("reset", () => setTimeout(redraw));
  filters.addEventListener("submit", (event) => event.preventDefault());
  byId("more").addEventListener("click", () => {
    const first = state.shown;
    state.shown += PAGE;
    draw();
    openers()[first].focus();
  });
  document.addEventListener("keydown", keyed);
  window.addEventListener("popstate", follow);
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("help").querySelector("button").addEventListener("click", () => byId("help").close());
  draw();
  follow();
}

unpacked().then(explore).catch((error) => { byId("trouble").textContent = `The samples cannot be shown: ${error.message}`; });
