// ---- the list ---------------------------------------------------------------------------------

// Rows of the list that are in the page above and below those that are seen.
const AROUND = 30;

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
  const texts = [sample.sample_id, ...Object.values(sample.metadata).map((one) => (typeof one === "string" ? one : JSON.stringify(one))), sample.user_input, sample.response, sample.reference, ...(sample.retrieved_contexts || []), ...sample.claims.map((claim) => claim.claim)];
  const failures = [...sample.claims, ...sample.claims.flatMap((claim) => claim.verdicts), ...sample.checks].map((one) => one.failure);
  return { rank, id: sample.sample_id, asked: sample.user_input || sample.response || "", answer: sample.response || "", mean: sample.mean, metadata: sample.metadata,
    counts: counts(sample), text: texts.filter(Boolean).join("\n").toLowerCase(),
    scores: new Map(sample.scores.map((one) => [scoreName(one, sample.scores), one])),
    failures: new Set(failures.filter(Boolean)), ...changesOf(sample.changes), load: async () => sample };
}

// What the list needs of the changes of a sample.
function changesOf(changes) {
  const { claims, scores } = changes || { claims: [], scores: [] };
  return { both: !changes || changes.state !== "new", differs: Boolean(changes), flipped: claims.some((one) => one.change === "verdict flipped"), changed: claims.length,
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

// The values of a metadata field: numbers if all of them are, otherwise texts, so that they can be sorted.
function fieldIn(rows, field) {
  const values = rows.map((row) => row.metadata[field] ?? null).filter((value) => value !== null);
  const numbers = values.every((value) => typeof value === "number");
  const shown = (value) => (numbers || typeof value === "string" ? value : JSON.stringify(value));
  return (row) => ((row.metadata[field] ?? null) === null ? null : shown(row.metadata[field]));
}

// The names in a part of the address; null if it is not a list of them.
function namesIn(part) {
  try {
    const found = JSON.parse(part);
    return Array.isArray(found) ? found : null;
  } catch { return null; }
}

// How the scores of the samples that match are spread: 20 bars from 0 to 1, or over their range where it is wider.
function drawSpread(element, values, name) {
  const bins = 20;
  const within = values.every((value) => value >= 0 && value <= 1);
  const least = within ? 0 : Math.min(...values);
  const most = within ? 1 : Math.max(...values);
  const counts = new Array(bins).fill(0);
  // A bar includes its lower end; 0.15 / 0.05 is a little less than 3 in floating point.
  for (const value of values) counts[Math.min(Math.floor(((value - least) / (most - least || 1)) * bins + 1e-9), bins - 1)] += 1;
  const edge = (place) => least + ((most - least || 1) * place) / bins;
  const specification = JSON.parse(element.dataset.chart);
  specification.data.values = counts.map((n, place) => ({ low: edge(place), up: edge(place + 1), n, told: `${digits(edge(place))} to ${digits(edge(place + 1))}; samples: ${n}` }));
  // As in the other charts: Vega would find a name that every object has.
  specification.encoding.x.title = name in {} ? `${name}\u2060` : name;
  specification.description = `Distribution of ${name} over ${values.length.toLocaleString("en")} sample${values.length === 1 ? "" : "s"}; the highest bar has ${Math.max(...counts).toLocaleString("en")}`;
  element.previousElementSibling.textContent = specification.description;
  awaitChart(element, specification);
}

function explore(packed) {
  const { against, run, steps, sliced } = byId("packed").dataset;
  // The steps whose verdicts each metric is made of.
  const stepsOf = JSON.parse(steps);
  const rows = packed.map(run ? rowFrom : rowOf);
  const state = { sort: null, down: false, first: 0, last: 0, height: 0, open: null, claim: null, step: null, markdown: true, address: "", following: false, rows, found: { text: "", ids: new Set() } };
  const [filters, list, scroller] = [byId("filters"), byId("list"), byId("scroller")];
  filters.append(...controls(rows, against, JSON.parse(sliced)));

  const value = (name) => (filters.elements[name] ? filters.elements[name].value : "");
  const scoreOf = (row) => (value("metric") ? (row.scores.get(value("metric")) || { score: null }).score : row.mean);
  // A score that is the same in both runs has not moved.
  const moved = (row, metric) => row.moved.get(metric) ?? (row.both && (row.scores.get(metric) || { score: null }).score !== null && !row.moved.has(metric) ? 0 : null);
  const movedOf = (row) => moved(row, value("metric"));
  const metrics = [...new Set(rows.flatMap((row) => [...row.scores.keys()]))];
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row.metadata)))];
  const scoreIn = (metric) => (row) => (row.scores.get(metric) || { score: null }).score;
  const movedIn = (metric) => (row) => moved(row, metric);
  // The name in the address, the title, the value of a row, the title in words; how a value is shown, and
  // whether the column is shown at first.
  const usual = { first: true, shown: String };
  const every = [
    { name: "sample", title: "sample", get: (row) => row.id, first: true },
    { name: "question", title: "question", get: (row) => row.asked, text: true, first: true },
    { name: "answer", title: "answer", get: (row) => row.answer, text: true },
    { name: "score", title: "mean", get: scoreOf, first: true, shown: digits },
    { name: "entailed", title: "✓", get: (row) => row.counts.entailed, aloud: "verdicts entailed", ...usual },
    { name: "contradicted", title: "✗", get: (row) => row.counts.contradicted, aloud: "verdicts contradicted", ...usual },
    { name: "neutral", title: "?", get: (row) => row.counts.neutral, aloud: "verdicts neutral", ...usual },
    { name: "failed", title: "!", get: (row) => row.counts.failed, aloud: "failed rows", ...usual },
    ...(against ? [{ name: "changed", title: "changed claims", get: (row) => row.changed, ...usual },
      { name: "difference", title: "B - A", get: movedOf, aloud: "difference of the metric, B - A", first: true, shown: signedOrDash }] : []),
    ...metrics.map((metric) => ({ name: `metric ${metric}`, title: metric, get: scoreIn(metric), shown: digits })),
    ...(against ? metrics.map((metric) => ({ name: `difference ${metric}`, title: `${metric}, B - A`, get: movedIn(metric), shown: signedOrDash })) : []),
    ...fields.map((field) => ({ name: `field ${field}`, title: field, get: fieldIn(rows, field), shown: (value) => (value === null ? "-" : String(value)), field: true }))];
  const firstNames = every.filter((one) => one.first).map((one) => one.name);
  const titleOf = (column) => (column.get === scoreOf ? value("metric") || column.title : column.title);
  let columns = every.filter((one) => one.first);

  function sortBy(column) {
    state.down = state.sort === column ? !state.down : false;
    state.sort = column;
    scroller.scrollTop = 0;
    draw();
    tell();
    list.tHead.querySelectorAll("button")[columns.indexOf(column)].focus();
  }
  function head(column) {
    const order = state.sort === column ? (state.down ? "descending" : "ascending") : "none";
    const name = titleOf(column);
    return sortHeader(name, { order, number: Boolean(column.shown) && !column.field, aloud: column.aloud || name, click: () => sortBy(column) });
  }
  function line(row, number) {
    const open = row === state.open;
    const cell = (column) => {
      if (!column.text) return node("td", { class: column.field ? null : "number", dir: column.field ? "auto" : null }, column.shown(column.get(row)));
      const whole = column.get(row);
      const short = Array.from(whole.slice(0, 320)).slice(0, 140).join("");
      return node("td", { class: "asked", dir: "auto" }, short + (short.length < whole.length ? "…" : ""));
    };
    return node("tr", { class: open ? "current" : null, "aria-rowindex": number + 2, click: () => show(row) },
      node("th", { scope: "row", class: "id" }, node("button", { type: "button", class: "open", "aria-current": String(open) }, node("bdi", {}, row.id))),
      columns.slice(1).map(cell));
  }
  // The sample is always a column, since it opens the row.
  function choose(names) {
    columns = every.filter((one) => one.name === "sample" || names.includes(one.name));
    for (const box of byId("columns").querySelectorAll("input")) box.checked = names.includes(box.value);
  }
  function tools() {
    const change = () => {
      choose([...byId("columns").querySelectorAll("input:checked")].map((box) => box.value));
      draw();
      tell();
    };
    const boxes = every.slice(1).map((one) => node("label", {}, node("input", { type: "checkbox", value: one.name, checked: Boolean(one.first), change }), " ", node("bdi", {}, one.aloud || one.title)));
    const download = () => saveFile("samples.csv", csvOf(columns.map((one) => one.aloud || titleOf(one)), state.rows.map((row) => columns.map((one) => one.get(row)))));
    byId("tools").append(node("details", { id: "columns" }, node("summary", {}, "Columns"), node("div", { class: "boxes", role: "group", "aria-label": "Columns" }, boxes)),
      node("button", { type: "button", click: download }, "Download CSV"),
      ...[savedFilters(() => addressOf({ sample: false }), (address) => { location.hash = address; })].filter(Boolean));
  }
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
    state.rows = state.sort === null ? found : sorted(found, state.sort.get, state.down);
    list.tHead.replaceChildren(node("tr", {}, columns.map(head)));
    list.setAttribute("aria-rowcount", state.rows.length + 1);
    byId("widths").replaceChildren(...columns.map((one) => node("col", { class: one.text ? "text" : one.shown && !one.field ? "number" : "id" })));
    rowsFrom(0);
    scrolled();
    spread();
    byId("matches").textContent = `${state.rows.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} samples in this page match`;
  }
  // Drawn only where it is seen: a filter draws again with each letter.
  function spread() {
    const scored = state.rows.map(scoreOf).filter((score) => score !== null);
    byId("spread").hidden = scored.length === 0;
    if (byId("spread").open && scored.length) drawSpread(byId("spread").lastElementChild, scored, value("metric") || "the mean");
  }
  // The rows from `first` on that are near what is seen. All rows have one height, and the table stands
  // where its first row would stand if those above it were there.
  function rowsFrom(first) {
    const body = list.tBodies[0];
    const held = body.contains(document.activeElement) ? numberOf(document.activeElement) : -1;
    const seen = state.height ? Math.ceil(scroller.clientHeight / state.height) : 0;
    state.first = first;
    state.last = Math.min(state.rows.length, first + seen + 2 * AROUND);
    body.replaceChildren(...state.rows.slice(first, state.last).map((row, place) => line(row, first + place)));
    state.height = body.rows.length ? body.rows[0].getBoundingClientRect().height : state.height;
    list.style.marginTop = `${first * state.height}px`;
    byId("rows").style.height = state.rows.length ? `${state.rows.length * state.height + list.tHead.offsetHeight}px` : "auto";
    // The row that had the focus keeps it; if it is gone, the keys go on scrolling.
    if (held >= 0) (openerOf(held) || scroller).focus({ preventScroll: true });
  }
  // Draws other rows once those that are seen come near the end of those that are drawn.
  function scrolled() {
    if (!state.height) return;
    const top = Math.floor(scroller.scrollTop / state.height);
    const bottom = Math.min(state.rows.length, top + Math.ceil(scroller.clientHeight / state.height));
    const near = AROUND / 3;
    if ((state.first > 0 && top < state.first + near) || (state.last < state.rows.length && bottom > state.last - near)) rowsFrom(Math.max(0, top - AROUND));
  }
  // The place of the row with this element in the list, and the button that opens the row in a place.
  const numberOf = (element) => state.first + [...list.tBodies[0].rows].indexOf(element.closest("tr"));
  const openerOf = (number) => { const row = list.tBodies[0].rows[number - state.first]; return row ? row.querySelector("button.open") : null; };
  // Scrolls the list, not the page, so that the row is seen.
  function reveal(number) {
    const [top, seen] = [number * state.height, scroller.clientHeight - list.tHead.offsetHeight - state.height];
    scroller.scrollTop = Math.min(top, Math.max(scroller.scrollTop, top - seen));
    scrolled();
    return openerOf(number);
  }
  function mark(row) {
    state.open = row;
    for (const line of list.tBodies[0].rows) {
      const open = state.rows[numberOf(line)] === row;
      line.querySelector("button.open").setAttribute("aria-current", String(open));
      line.classList.toggle("current", open);
    }
    if (state.rows.includes(row)) reveal(state.rows.indexOf(row));
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
    openSample(sample, { number: state.rows.indexOf(row) + 1, of: state.rows.length, go, claim, chose, markdown: state.markdown, rendered,
      step: state.step, stepsOfMetric: stepsOf[value("metric")] || [], keepStep: (step) => { state.step = step; tell(); } });
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
    ((number >= 0 && reveal(number)) || filters.elements.text).focus();
  }
  function hide() {
    byId("detail").hidden = true;
    byId("detail").replaceChildren();
    mark(null);
    state.claim = null;
  }
  function keyed(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.target === filters.elements.text && ["Enter", "ArrowDown"].includes(event.key) && state.rows.length) {
      reveal(0).focus();
      event.preventDefault();
      return;
    }
    if (event.target === filters.elements.text && event.key === "Escape" && !event.target.value) event.target.blur();
    if (typing || byId("help").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && state.open) { close(); event.preventDefault(); }
    if (event.key === "/") { filters.elements.text.focus(); event.preventDefault(); }
    if (event.key === "?") { byId("help").showModal(); event.preventDefault(); }
    const letter = { j: 1, k: -1 }[event.key];
    if (letter && state.open) { go(letter); event.preventDefault(); return; }
    const step = letter || { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const number = event.target.classList.contains("open") ? numberOf(event.target) : -1;
    if (!step || (number < 0 && !letter)) return;
    const next = number < 0 ? Math.ceil(scroller.scrollTop / state.height) : number + step;
    if (state.rows[next]) reveal(next).focus();
    event.preventDefault();
  }

  // The part of the address behind # says what is chosen and open: Back works, and a link leads to the same view.
  function addressOf({ sample = true } = {}) {
    const parts = new URLSearchParams();
    for (const input of filters.elements) if (input.name && input.value) parts.set(input.name, input.value);
    if (state.sort !== null) parts.set("sort", (state.down ? "-" : "") + state.sort.name);
    const names = columns.map((one) => one.name);
    if (String(names) !== String(firstNames)) parts.set("columns", JSON.stringify(names.slice(1)));
    if (sample && state.open) parts.set("sample", state.open.id);
    if (sample && state.open && state.claim) parts.set("claim", state.claim);
    if (sample && state.open && state.step) parts.set("step", state.step);
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
    // A link may name what no sample of this page has: another run's failure, or a slice without a sample here.
    const missing = ["slice", "changed", "cause", "failure"].filter((name) => parts.get(name) && !filters.elements[name]);
    for (const input of filters.querySelectorAll("select")) {
      if (input.selectedIndex >= 0) continue;
      input.selectedIndex = 0;
      missing.push(input.name);
    }
    const shown = [state.markdown, state.step];
    state.markdown = parts.get("markdown") !== "off";
    state.step = parts.get("step");
    const sort = parts.get("sort") || "";
    state.down = sort.startsWith("-");
    state.sort = every.find((one) => one.name === sort.replace("-", "")) || null;
    choose(namesIn(parts.get("columns")) || firstNames);
    scroller.scrollTop = 0;
    draw();
    say(missing.length ? `No sample of this page has ${missing.map((one) => `${one}=${parts.get(one)}`).join(" or ")}: shown without this filter.` : "");
    const name = parts.get("sample");
    const row = rows.find((one) => one.id === name);
    if (row) { if (row !== state.open || parts.get("claim") !== state.claim || String(shown) !== String([state.markdown, state.step])) show(row, parts.get("claim")); return; }
    hide();
    if (name !== null) {
      say(`The sample ${name} is not in this page.`);
      byId("trouble").scrollIntoView({ block: "center" });
    }
    else if (parts.size) byId("samples").scrollIntoView({ block: "start" });
  }
  const redraw = () => { scroller.scrollTop = 0; draw(); tell(); };
  filters.addEventListener("input", redraw);
  filters.addEventListener("reset", () => { if (!state.following) setTimeout(redraw); });
  filters.addEventListener("submit", (event) => event.preventDefault());
  scroller.addEventListener("scroll", scrolled);
  // More rows are seen in a taller window, and a row is higher where the reader chose larger letters.
  new ResizeObserver(() => { rowsFrom(state.first); scrolled(); }).observe(scroller);
  document.addEventListener("keydown", keyed);
  window.addEventListener("popstate", follow);
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("help").querySelector("button").addEventListener("click", () => byId("help").close());
  byId("spread").addEventListener("toggle", spread);
  tools();
  downloads();
  draw();
  follow();
}

unpacked().then(explore).catch((error) => { byId("trouble").textContent = `The samples cannot be shown: ${error.message}`; });
