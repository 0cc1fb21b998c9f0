// ---- what the list is made of: rows, and columns ------------------------------------------------

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

// A row of the list from a sample in the page.
function rowOf(sample) {
  const texts = [sample.sample_id, ...Object.values(sample.metadata).map((one) => (typeof one === "string" ? one : JSON.stringify(one))), sample.user_input, sample.response, sample.reference, ...(sample.retrieved_contexts || []), ...sample.claims.map((claim) => claim.claim)];
  const failures = [...sample.claims, ...sample.claims.flatMap((claim) => claim.verdicts), ...sample.checks].map((one) => one.failure);
  return { id: sample.sample_id, asked: sample.user_input || sample.response || "", answer: sample.response || "", mean: sample.mean, metadata: sample.metadata,
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
function rowFrom(listed) {
  let loading = null;
  const load = async () => {
    loading = loading || fromServer("sample", { id: listed.id, against: byId("packed").dataset.against });
    try { return restored([structuredClone(await loading)])[0]; } catch (error) { loading = null; throw error; }
  };
  return { ...listed, text: null, scores: new Map(listed.scores.map(([name, status, score]) => [name, { status, score }])),
    failures: new Set(listed.failures), ...changesOf(listed.changes), load };
}

async function fromServer(what, parameters) {
  const reply = await fetch(`/run/${encodeURIComponent(byId("packed").dataset.run)}/${what}?${new URLSearchParams(parameters)}`);
  if (!reply.ok) throw new Error(`the server answers ${reply.status} ${reply.statusText}`);
  return reply.json();
}

// The values of a metadata field: numbers if all of them are, otherwise texts, so that they can be sorted.
function fieldIn(rows, field) {
  // A field may have the name of a member that every object has.
  const valueOf = ({ metadata }) => (Object.hasOwn(metadata, field) ? metadata[field] : null);
  const values = rows.map(valueOf).filter((value) => value !== null);
  const numbers = values.every((value) => typeof value === "number");
  const shown = (value) => (numbers || typeof value === "string" ? value : JSON.stringify(value));
  return (row) => { const value = valueOf(row); return value === null ? null : shown(value); };
}

const scoreIn = (row, metric) => (row.scores.get(metric) || { score: null }).score;
// The score of a row by a metric, or the mean of all its scores without one.
const scoreOf = (row, metric) => (metric ? scoreIn(row, metric) : row.mean);
// How far the score of a row has moved; one that is the same in both runs has not.
const movedOf = (row, metric) => row.moved.get(metric) ?? (row.both && scoreIn(row, metric) !== null && !row.moved.has(metric) ? 0 : null);

// Every column that the list may have, the one that opens a row first. `name` stands in the address, `title`
// in the header, and `aloud` says what the title does not; `get` is the value of a row, and `shown` makes a
// number of it a text; `first` columns are shown at first, and none is while it is `empty`. `chosen` gives the
// metric of the filters, and `claims` says whether the runs have any.
function listColumns(rows, against, claims, chosen) {
  const metrics = [...new Set(rows.flatMap((row) => [...row.scores.keys()]))];
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row.metadata)))];
  const counted = (name, title, aloud) => ({ group: "Usual", name, title, aloud, get: (row) => row.counts[name], shown: String, first: true });
  return [
    { group: "Usual", name: "sample", title: "sample", get: (row) => row.id, first: true },
    { group: "Usual", name: "question", title: "question", get: (row) => row.asked, text: true, first: true },
    { group: "Usual", name: "answer", title: "answer", get: (row) => row.answer, text: true },
    { group: "Usual", name: "score", get title() { return chosen() || "mean"; }, get: (row) => scoreOf(row, chosen()), first: true, shown: digits },
    ...(claims ? [counted("entailed", "✓", "verdicts entailed"), counted("contradicted", "✗", "verdicts contradicted"),
      counted("neutral", "?", "verdicts neutral"), counted("failed", "!", "failed rows")] : []),
    ...(against && claims ? [{ group: "Usual", name: "changed", title: "changed claims", get: (row) => row.changed, shown: String, first: true }] : []),
    ...(against ? [{ group: "Usual", name: "difference", title: "B - A", aloud: "difference of the chosen metric, B - A", get: (row) => movedOf(row, chosen()), shown: signedOrDash, first: true, get empty() { return !chosen(); } }] : []),
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
