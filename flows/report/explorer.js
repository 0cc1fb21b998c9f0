// ---- the samples: their list, the one that is open, and the keys --------------------------------

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
  const { against, run, steps, sliced, claims } = byId("packed").dataset;
  const hasClaims = claims !== undefined;
  // The steps whose verdicts each metric is made of.
  const stepsOf = JSON.parse(steps);
  const rows = packed.map(run ? rowFrom : rowOf);
  const filters = byId("filters");
  filters.append(...controls(rows, against, hasClaims, JSON.parse(sliced)));
  const value = (name) => (filters.elements[name] ? filters.elements[name].value : "");
  const columns = listColumns(rows, against, hasClaims, () => value("metric"));
  const list = sampleList(rows, columns, { open: show, sorted: () => { matched(); tell(); } });
  // The row whose sample is open, with its claim and step; what the server found for a text.
  const opened = { row: null, claim: null, step: null, markdown: true };
  const state = { metric: "", found: { text: "", ids: new Set() }, timer: null };
  const { menu, tick } = columnMenu(columns, (names) => { list.choose(names); list.draw(); tell(); });
  const { addressOf, tell, follow, following } = pageAddress({ filters, list, columns, opened, choose, shown });

  function choose(names) { list.choose(names); tick(names); }
  const say = (text) => { byId("trouble").textContent = text; };

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
  // Draws the list by the filters that are set.
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
    if (state.metric !== value("metric")) list.forget();
    state.metric = value("metric");
    list.filter(tests(value, state.found));
    list.draw({ top: true });
    spread();
    matched();
  }
  function matched() {
    const count = list.rows().length;
    // It says that these are all samples, the worst first.
    byId("held").hidden = "all" in byId("held").dataset && (count < rows.length || list.order() !== null);
    byId("matches").textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} samples in this page match`;
  }
  // Drawn only where it is seen: a filter draws again with each letter.
  function spread() {
    const metric = value("metric");
    const scored = list.rows().map((row) => scoreOf(row, metric)).filter((score) => score !== null);
    byId("spread").hidden = scored.length === 0;
    if (byId("spread").open && scored.length) drawSpread(byId("spread").lastElementChild, scored, metric || "the mean");
  }

  async function show(row, claim = null) {
    opened.row = row;
    list.mark(row);
    const chose = (name) => { opened.claim = name; tell({ step: true }); };
    const rendered = (wanted) => { opened.markdown = wanted; tell(); };
    opened.claim = claim;
    tell({ step: true });
    let sample = null;
    try { sample = await row.load(); } catch (error) { say(`The sample cannot be read: ${error.message}`); return; }
    if (opened.row !== row) return;
    const number = list.rows().indexOf(row);
    const found = openSample(sample, { number: number + 1, of: list.rows().length, go, claim, chose, markdown: opened.markdown, rendered,
      step: opened.step, stepsOfMetric: stepsOf[value("metric")] || [], keepStep: (step) => { opened.step = step; tell(); } });
    byId("detail").focus({ preventScroll: true });
    if (!found) byId("detail").scrollIntoView({ block: "start" });
    // The next one is read meanwhile.
    const next = list.rows()[number + 1];
    if (next) next.load().catch(() => {});
  }
  async function go(step) {
    if (step === 0) { close(); return; }
    const next = list.rows()[list.rows().indexOf(opened.row) + step];
    if (!next) return;
    await show(next);
    const again = byId("detail").querySelector(step > 0 ? "button.next" : "button.previous");
    if (again && !again.disabled) again.focus({ preventScroll: true });
  }
  function close() {
    const number = list.rows().indexOf(opened.row);
    hide();
    tell({ step: true });
    ((number >= 0 && list.reveal(number)) || filters.elements.text).focus();
  }
  function hide() {
    byId("detail").hidden = true;
    byId("detail").replaceChildren();
    Object.assign(opened, { row: null, claim: null });
    list.mark(null);
  }
  // Draws and opens what an address says; `missing` are its filters that no sample has.
  function shown(parts, missing) {
    const before = [opened.markdown, opened.step];
    opened.markdown = parts.get("markdown") !== "off";
    opened.step = parts.get("step");
    draw();
    say(missing.length ? `No sample of this page has ${missing.join(" or ")}: shown without this filter.` : "");
    const [name, claim] = [parts.get("sample"), parts.get("claim")];
    const row = rows.find((one) => one.id === name);
    if (row) { if (row !== opened.row || claim !== opened.claim || String(before) !== String([opened.markdown, opened.step])) show(row, claim); return; }
    hide();
    if (name !== null) {
      say(`The sample ${name} is not in this page.`);
      byId("trouble").scrollIntoView({ block: "center" });
    }
    else if (parts.size) byId("samples").scrollIntoView({ block: "start" });
  }

  function keyed(event) {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.target === filters.elements.text && ["Enter", "ArrowDown"].includes(event.key) && list.rows().length) {
      list.reveal(0).focus();
      event.preventDefault();
      return;
    }
    if (event.target === filters.elements.text && event.key === "Escape" && !event.target.value) event.target.blur();
    if (typing || byId("help").open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && opened.row) { close(); event.preventDefault(); }
    if (event.key === "/") { filters.elements.text.focus(); event.preventDefault(); }
    if (event.key === "?") { byId("help").showModal(); event.preventDefault(); }
    const letter = { j: 1, k: -1 }[event.key];
    if (letter && opened.row) { go(letter); event.preventDefault(); return; }
    const step = letter || { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const number = event.target.classList.contains("open") ? list.numberOf(event.target) : -1;
    if (!step || (number < 0 && !letter)) return;
    const next = number < 0 ? list.seen() : number + step;
    if (list.rows()[next]) list.reveal(next).focus();
    event.preventDefault();
  }

  const redraw = () => { draw(); tell(); };
  filters.addEventListener("input", redraw);
  filters.addEventListener("reset", () => { if (!following()) setTimeout(() => { list.sort(null); redraw(); }); });
  filters.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", keyed);
  byId("keys").addEventListener("click", () => byId("help").showModal());
  byId("help").querySelector("button").addEventListener("click", () => byId("help").close());
  byId("spread").addEventListener("toggle", spread);
  const named = ({ aloud, title }) => aloud || title;
  const download = () => saveFile("samples.csv", csvOf(list.columns().map(named), list.rows().map((row) => list.columns().map((one) => one.get(row)))));
  byId("tools").append(menu, node("button", { type: "button", click: download }, "Download CSV"),
    ...[savedFilters(() => addressOf({ sample: false }), (address) => { location.hash = address; })].filter(Boolean));
  downloads();
  choose(columns.filter((one) => one.first).map((one) => one.name));
  draw();
  follow();
}

unpacked().then(explore).catch((error) => { byId("trouble").textContent = `The samples cannot be shown: ${error.message}`; });
