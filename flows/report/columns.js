// ---- the columns of the list -------------------------------------------------------------------

// The values of a metadata field: numbers if all of them are, otherwise texts, so that they can be sorted.
function fieldIn(rows, field) {
  const values = rows.map((row) => row.metadata[field] ?? null).filter((value) => value !== null);
  const numbers = values.every((value) => typeof value === "number");
  const shown = (value) => (numbers || typeof value === "string" ? value : JSON.stringify(value));
  return (row) => ((row.metadata[field] ?? null) === null ? null : shown(row.metadata[field]));
}

const scoreIn = (row, metric) => (row.scores.get(metric) || { score: null }).score;
// The score of a row by a metric, or the mean of all its scores without one.
const scoreOf = (row, metric) => (metric ? scoreIn(row, metric) : row.mean);
// How far the score of a row has moved; one that is the same in both runs has not.
const movedOf = (row, metric) => row.moved.get(metric) ?? (row.both && scoreIn(row, metric) !== null && !row.moved.has(metric) ? 0 : null);

// Every column that the list may have, the one that opens a row first. `name` stands in the address, `title`
// in the header, and `aloud` says what the title does not; `get` is the value of a row, and `shown` makes a
// number of it a text; `first` columns are shown at first. `chosen` gives the metric of the filters.
function listColumns(rows, against, chosen) {
  const metrics = [...new Set(rows.flatMap((row) => [...row.scores.keys()]))];
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row.metadata)))];
  const counted = (name, title, aloud) => ({ group: "Usual", name, title, aloud, get: (row) => row.counts[name], shown: String, first: true });
  const answers = against
    ? [{ name: "answer A", title: "answer, A", get: (row) => row.earlier }, { name: "answer", title: "answer, B", get: (row) => row.answer }]
    : [{ name: "answer", title: "answer", get: (row) => row.answer }];
  return [
    { group: "Usual", name: "sample", title: "sample", get: (row) => row.id, first: true },
    { group: "Usual", name: "question", title: "question", get: (row) => row.asked, text: true, first: true },
    ...answers.map((one) => ({ group: "Usual", text: true, ...one })),
    { group: "Usual", name: "score", get title() { return chosen() || "mean"; }, get: (row) => scoreOf(row, chosen()), first: true, shown: digits },
    counted("entailed", "✓", "verdicts entailed"), counted("contradicted", "✗", "verdicts contradicted"),
    counted("neutral", "?", "verdicts neutral"), counted("failed", "!", "failed rows"),
    ...(against ? [{ group: "Usual", name: "changed", title: "changed claims", get: (row) => row.changed, shown: String, first: true },
      { group: "Usual", name: "difference", title: "B - A", aloud: "difference of the metric, B - A", get: (row) => movedOf(row, chosen()), shown: signedOrDash, first: true }] : []),
    ...metrics.map((metric) => ({ group: "Metrics", name: `metric ${metric}`, title: metric, get: (row) => scoreIn(row, metric), shown: digits })),
    ...(against ? metrics.map((metric) => ({ group: "Differences, B - A", name: `difference ${metric}`, title: `${metric}, B - A`, get: (row) => movedOf(row, metric), shown: signedOrDash })) : []),
    ...fields.map((field) => ({ group: "Metadata", name: `field ${field}`, title: field, get: fieldIn(rows, field), shown: (value) => (value === null ? "-" : String(value)), field: true }))];
}

// The menu that chooses columns, by groups, with a search of their names; `chosen` gets the names of those
// that are ticked. Returns the element, and a function that ticks columns.
function columnMenu(columns, chosen) {
  const choices = columns.slice(1).map((column) => {
    const words = column.aloud || column.title;
    const input = node("input", { type: "checkbox", value: column.name, checked: Boolean(column.first), change: told });
    return { ...column, words: words.toLowerCase(), input, label: node("label", {}, input, " ", node("bdi", {}, words)) };
  });
  function told() { chosen(choices.filter(({ input }) => input.checked).map(({ name }) => name)); }
  const tick = (wanted) => { for (const one of choices) one.input.checked = wanted(one); };
  const tickAndTell = (wanted) => () => { tick(wanted); told(); };
  const groups = [...new Set(choices.map(({ group }) => group))].map((group) => node("fieldset", {}, node("legend", {}, group),
    node("div", { class: "boxes" }, choices.filter((one) => one.group === group).map(({ label }) => label))));
  const found = node("span", { role: "status", class: "faint" });
  const search = node("input", { type: "search", input: () => {
    const wanted = search.value.trim().toLowerCase();
    for (const { words, label } of choices) label.hidden = !words.includes(wanted);
    for (const group of groups) group.hidden = !group.querySelector("label:not([hidden])");
    const count = choices.filter(({ label }) => !label.hidden).length;
    found.textContent = wanted ? `${count} of ${choices.length} columns` : "";
  } });
  const menu = node("details", { id: "columns" }, node("summary", {}, "Columns"),
    node("div", { class: "controls" }, node("label", {}, "Name of a column", search),
      node("button", { type: "button", click: tickAndTell(({ label }) => !label.hidden) }, "Only these"),
      node("button", { type: "button", click: tickAndTell(({ first }) => first) }, "Reset"), found),
    node("div", { class: "groups", role: "group", "aria-label": "Columns" }, groups));
  return { menu, tick: (names) => tick(({ name }) => names.includes(name)) };
}
