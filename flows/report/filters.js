// ---- filters of the list -----------------------------------------------------------------------

function options(values, first) {
  const all = first === null ? values : [["", first], ...values];
  return node("select", {}, all.map(([value, shown]) => node("option", { value }, shown)));
}

// The fields that the run is sliced by, and metadata fields with 2 to 30 values, for the filter by slice. An
// id, which no two samples share, is none.
function sliceOptions(rows, sliced) {
  const [found, having] = [new Map(), new Map()];
  for (const row of rows) for (const [key, value] of Object.entries(row.metadata)) {
    if (value === null || typeof value === "object") continue;
    if (!found.has(key)) found.set(key, new Set());
    found.get(key).add(String(value));
    having.set(key, (having.get(key) || 0) + 1);
  }
  return [...found].filter(([key, values]) => sliced.includes(key) || (values.size > 1 && values.size <= 30 && values.size < having.get(key)))
    .flatMap(([key, values]) => [...values].sort().map((value) => [JSON.stringify([key, value]), `${key}: ${value}`]));
}

const distinct = (sets) => [...new Set(sets.flatMap((one) => [...one]))].sort().map((one) => [one, one]);

function controls(rows, against, claims, sliced) {
  const control = (label, name, input) => { input.setAttribute("name", name); return node("label", {}, label, input); };
  const metrics = [...new Set(rows.flatMap((row) => [...row.scores.keys()]))];
  const slices = sliceOptions(rows, sliced);
  const verdicts = ["entailed", "contradicted", "neutral", "failed"].map((one) => [one, `${SIGNS[one]} ${one}`]);
  const failures = distinct(rows.map((row) => row.failures));
  const causes = distinct(rows.map((row) => row.causes));
  const bound = () => node("input", { type: "number", step: "any" });
  return [
    control("Search", "text", node("input", { type: "search", placeholder: "ids, texts, claims", maxlength: 2000 })),
    control("Metric", "metric", options([["", "mean of all"], ...metrics.map((name) => [name, name])], null)),
    control("Score from", "from", bound()), control("Score to", "to", bound()),
    control("Status", "status", options([["scored", "scored"], ["undefined", "undefined"], ["failed", "failed"]], "any")),
    claims ? control("Has a claim", "verdict", options(verdicts, "of any verdict")) : null,
    slices.length ? control("Slice", "slice", options(slices, "all samples")) : null,
    against ? control("Changed", "changed", options([["flipped", "verdict flipped"], ["changed", "anything changed"], ["same", "nothing changed"]], "all samples")) : null,
    causes.length ? control("Cause of a change", "cause", options(causes, "any")) : null,
    failures.length ? control("Failure", "failure", options(failures, "any or none")) : null,
    node("button", { type: "reset" }, "Clear")].filter(Boolean);
}

// A predicate for each control that is set. `value` gives that of a control, `found` the samples that the
// server found for the text.
function tests(value, found) {
  const metric = value("metric");
  const score = (row) => scoreOf(row, metric);
  const wants = {
    text: (row, wanted) => (row.text === null ? found.ids.has(row.id) : row.text.includes(wanted.toLowerCase())),
    from: (row, wanted) => score(row) !== null && score(row) >= Number(wanted),
    to: (row, wanted) => score(row) !== null && score(row) <= Number(wanted),
    verdict: (row, wanted) => row.counts[wanted] > 0,
    failure: (row, wanted) => row.failures.has(wanted),
    cause: (row, wanted) => row.causes.has(wanted),
    slice: (row, wanted) => { const [key, of] = JSON.parse(wanted); return Object.hasOwn(row.metadata, key) && String(row.metadata[key]) === of; },
    status: (row, wanted) => [...row.scores].some(([name, one]) => one.status === wanted && (!metric || name === metric)),
    changed: (row, wanted) => (wanted === "flipped" ? row.flipped : row.differs === (wanted === "changed")),
  };
  // Each control is read once, not for each row.
  return Object.keys(wants).map((name) => [wants[name], value(name)]).filter(([, wanted]) => wanted).map(([fits, wanted]) => (row) => fits(row, wanted));
}

// Filters that the reader named, as [name, address], where the browser keeps data of this page. Other pages
// may have written there, so what is not such a list is left out.
const SAVED = "claimflow filters";

function readSaved() {
  try {
    const found = JSON.parse(localStorage.getItem(SAVED) || "[]");
    return found.filter((one) => Array.isArray(one) && one.length === 2 && one.every((part) => typeof part === "string"));
  } catch { return []; }
}

// Returns whether the browser keeps them.
function writeSaved(filters) {
  try { localStorage.setItem(SAVED, JSON.stringify(filters)); return true; } catch { return false; }
}

// The form that saves the filter of now and brings back or deletes saved ones; nothing where the browser
// keeps no data. `current` is the address of the filter, `apply` shows one.
function savedFilters(current, apply) {
  if (!writeSaved(readSaved())) return null;
  const named = node("input", { maxlength: "60" });
  const said = node("span", { role: "status", class: "faint" });
  const chosen = node("select", { change: () => { refresh(chosen.value); const one = readSaved().find(([name]) => name === chosen.value); if (one) apply(one[1]); } });
  const remove = node("button", { type: "button", click: () => {
    const name = chosen.value;
    writeSaved(readSaved().filter(([other]) => other !== name));
    refresh("");
    said.textContent = `Deleted: ${name}`;
    named.focus();
  } }, "Delete");
  const save = (event) => {
    event.preventDefault();
    const name = named.value.trim();
    if (!name) { said.textContent = "A filter needs a name."; named.focus(); return; }
    const kept = writeSaved([...readSaved().filter(([other]) => other !== name), [name, current()]]);
    named.value = "";
    refresh(kept ? name : "");
    said.textContent = kept ? `Saved: ${name}` : "The browser does not keep it.";
  };
  function refresh(name) {
    const names = readSaved().map(([one]) => one);
    chosen.replaceChildren(...[["", names.length ? "choose one" : "none"], ...names.map((one) => [one, one])].map(([value, shown]) => node("option", { value }, shown)));
    chosen.value = names.includes(name) ? name : "";
    remove.disabled = !chosen.value;
  }
  refresh("");
  return node("form", { class: "controls", "aria-label": "Saved filters", submit: save },
    node("label", {}, "Name of this filter", named), node("button", {}, "Save this filter"),
    node("label", {}, "Saved filters", chosen), remove, said);
}
