const sheet = JSON.parse(document.getElementById("sheet").textContent);
const { server } = sheet;
const byId = (id) => document.getElementById(id);
const column = (name) => sheet.columns.indexOf(name);

// The rows that are shown: one for each text, or those that the server names.
const shown = server ? server.rows : [...sheet.rows.keys()].filter((row) => sheet.rows[row].same === row);
// What was said of a row, by its number: label, comment, and whether the judge was seen before.
const given = new Map();
const nothing = Object.freeze({ label: "", comment: "", seen: false });
const of = (row) => given.get(row) || nothing;
let place = 0;
let saved = true;
// All are labelled: a key that is pressed once too often must not change the last label.
let resting = false;

// Characters that change the direction of text, so that it would be displayed in another order.
const directionMarks = /[\u202A-\u202E\u2066-\u2069]/g;
const plain = (text) => text.replace(directionMarks, "\ufffd");

// ---- what the browser keeps: the labels of a file, and those that the server has not taken yet ----

const first = sheet.rows[0].cells;
const keptUnder = ["claimflow labels", ...["run", "step", "draw", "metric"].map((name) => first[column(name)] || ""),
  ...(server ? [server.who, String(server.adjudicates)] : [])].join("|");

function kept() {
  try { return JSON.parse(localStorage.getItem(keptUnder)) || {}; } catch { return {}; }
}

// Without storage, as in a private window, the page still warns before it is left.
function keep(content) {
  try { localStorage.setItem(keptUnder, JSON.stringify(content)); return true; } catch { return false; }
}

// ---- the server -----------------------------------------------------------------------------------

const waiting = new Map();
let sending = false;

async function send() {
  if (sending) return;
  sending = true;
  // A label may be changed while it is on its way.
  while (waiting.size) {
    const [[row, said]] = waiting;
    const form = new URLSearchParams({ token: server.token, row: String(row), label: said.label, comment: said.comment,
      seen: said.seen ? "1" : "", adjudicate: server.adjudicates ? "1" : "" });
    let problem = null;
    try {
      const reply = await fetch(`/label/save?${server.address}`, { method: "POST", body: form });
      if (!reply.ok) problem = (await reply.json().catch(() => ({}))).message || `the server answers ${reply.status}`;
    } catch { problem = "the server does not answer"; }
    if (problem !== null) {
      tellStored(problem);
      setTimeout(send, 3000);
      break;
    }
    if (waiting.get(row) === said) waiting.delete(row);
    keepWaiting();
  }
  sending = false;
  if (waiting.size === 0) tellStored(null);
}

const keepWaiting = () => keep(Object.fromEntries(waiting));

function tellStored(problem) {
  const count = `${waiting.size} label${waiting.size === 1 ? " is" : "s are"}`;
  byId("stored").textContent = problem === null ? "All labels are stored." : `${count} not stored yet: ${problem}. Trying again.`;
}

async function askJudge() {
  const row = shown[place];
  if (of(row).label === "") {
    tellSaid("Label the row first: what the judge says would sway you.");
    return;
  }
  try {
    const reply = await fetch(`/label/judge?${server.address}&row=${row}`);
    if (!reply.ok) throw new Error(`the server answers ${reply.status}`);
    const lines = await reply.json();
    given.set(row, { ...of(row), seen: true });
    if (shown[place] === row) tellSaid(...lines.map(([name, text]) => `${name}: ${text}`), "A label that you change now is recorded as given after seeing this.");
  } catch (error) { tellSaid(`It cannot be read: ${error.message}`); }
}

function tellSaid(...lines) {
  byId("said").hidden = lines.length === 0;
  byId("said").replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: plain(line), dir: "auto" })));
}

// ---- labels ---------------------------------------------------------------------------------------

function say(row, change) {
  const said = { ...of(row), ...change };
  given.set(row, said);
  if (server) {
    waiting.set(row, said);
    keepWaiting();
    byId("stored").textContent = "Storing…";
    send();
  } else {
    saved = keep({ who: byId("who").value, given: [...given] });
    byId("stored").textContent = saved ? "This browser keeps the labels." : "This browser keeps nothing: save the sheet before you leave.";
  }
}

function label(value) {
  if (resting) return;
  const row = shown[place];
  if (value !== of(row).label) say(row, { label: value });
  if (value === "") show();
  else if (shown.every((one) => of(one).label !== "")) {
    const [before, first] = [place, byId("done").hidden];
    go(1);
    finish();
    resting = first || place === before;
  }
  else go(1);
}

function finish() {
  const done = byId("done");
  done.hidden = false;
  done.replaceChildren("All rows are labelled; ← goes back to change one. ");
  if (server) done.append(Object.assign(document.createElement("a"), { href: `/label/results?${server.address}`, textContent: "What the labels say" }));
  else done.append("Save the sheet.");
}

function go(step) {
  resting = false;
  place = Math.min(shown.length - 1, Math.max(0, place + step));
  show();
}

function goOpen() {
  const after = [...shown.keys()].slice(place + 1).concat([...shown.keys()].slice(0, place + 1));
  const next = after.find((one) => of(shown[one]).label === "");
  if (next !== undefined) place = next;
  show();
}

// ---- what is shown --------------------------------------------------------------------------------

function cellText(row, name) {
  const cell = row.cells[column(name)];
  return row.guarded.includes(name) ? cell.slice(1) : cell;
}

function section(name, text) {
  const title = document.createElement("h2");
  title.textContent = name.replaceAll("_", " ");
  const body = document.createElement("p");
  body.dir = "auto";
  body.tabIndex = 0;
  body.textContent = plain(text);
  return [title, body];
}

function show() {
  const number = shown[place];
  const row = sheet.rows[number];
  const said = of(number);
  const parts = sheet.read.map((name) => [name, cellText(row, name)]);
  byId("texts").replaceChildren(...parts.filter(([, text]) => text !== "").flatMap(([name, text]) => section(name, text)));
  for (const button of byId("choices").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === said.label));
  const rating = byId("rating");
  if (rating) rating.value = said.label === sheet.unsure ? "" : said.label;
  byId("comment").value = said.comment;
  const labelled = shown.filter((one) => of(one).label !== "").length;
  const drawn = new Set(sheet.rows.map((one) => one.same)).size;
  const same = drawn < sheet.rows.length ? `, in ${sheet.rows.length} rows of which some have the same texts` : "";
  byId("progress").textContent = `Text ${place + 1} of ${shown.length}${same}: ${labelled} labelled`;
  byId("bar").max = shown.length;
  byId("bar").value = labelled;
  const others = server && server.said ? server.said[number] || [] : [];
  tellSaid(...others);
}

function choice(value, key) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", value, textContent: `${value} (${key})` });
  button.addEventListener("click", () => { resting = false; label(value); });
  return button;
}

function rating() {
  const whole = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { id: "rating", type: "number", min: "0", max: "1", step: "any" });
  input.addEventListener("change", () => (input.checkValidity() ? label(input.value) : input.reportValidity()));
  input.addEventListener("keydown", (event) => { if (event.key === "Escape") input.blur(); });
  whole.append("From 0 to 1 (r): ", input);
  return whole;
}

function save() {
  const rows = sheet.rows.map((row) => {
    const said = of(row.same);
    const cells = [...row.cells];
    cells[column("label")] = said.label;
    cells[column("comment")] = guarded(said.comment);
    return cells.map(quoted);
  });
  const who = byId("who").value.trim().replace(/[^\p{L}\p{N}._-]+/gu, "-");
  saveFile(who ? `labels-${who}.csv` : "labels.csv", csvText([sheet.columns.map(quoted), ...rows]));
  saved = true;
}

function keyed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (["INPUT", "TEXTAREA"].includes(event.target.tagName)) {
    if (event.key === "Escape" && event.target.id === "comment") event.target.blur();
    return;
  }
  const value = event.key === "0" ? "" : event.key === "u" ? sheet.unsure : sheet.values[Number(event.key) - 1];
  const does = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), n: goOpen, c: () => byId("comment").focus(),
    r: () => byId("rating") && byId("rating").focus(), v: () => server && askJudge() }[event.key];
  if (value !== undefined) label(value);
  else if (does) does();
  else return;
  event.preventDefault();
}

function start() {
  const before = kept();
  if (server) {
    for (const [row, said] of server.given) given.set(row, { ...nothing, ...said });
    for (const [row, said] of Object.entries(before)) {
      if (!shown.includes(Number(row)) || typeof said.label !== "string") continue;
      given.set(Number(row), { ...nothing, ...said });
      waiting.set(Number(row), given.get(Number(row)));
    }
    byId("who").textContent = server.adjudicates ? `${server.who} decides where labels differ or an annotator was unsure.` : `Labelled by ${server.who}`;
    byId("all").href = `/label?${server.address}`;
    if (waiting.size) send();
  } else {
    for (const [row, said] of before.given || []) given.set(row, { ...nothing, ...said });
    byId("who").value = before.who || "";
    if (given.size) byId("stored").textContent = "Continued with the labels that this browser has kept.";
  }
  byId("question").textContent = sheet.question;
  const keys = sheet.values.map((value, number) => choice(value, number + 1));
  byId("last").textContent = String(Math.max(sheet.values.length, 1));
  byId("choices").append(...(keys.length ? keys : [rating()]), choice(sheet.unsure, "u"));
  byId("comment").addEventListener("change", (event) => say(shown[place], { comment: event.target.value }));
  byId("back").addEventListener("click", () => go(-1));
  byId("next").addEventListener("click", () => go(1));
  byId("open").addEventListener("click", goOpen);
  byId("none").addEventListener("click", () => label(""));
  if (server) byId("judge").addEventListener("click", askJudge);
  else byId("save").addEventListener("click", save);
  document.addEventListener("keydown", keyed);
  window.addEventListener("beforeunload", (event) => { if (server ? waiting.size : !saved) event.preventDefault(); });
  if (of(shown[0]).label !== "") goOpen();
  else show();
  if (shown.every((one) => of(one).label !== "")) finish();
}

start();
