"use strict";

// The SQL page: it runs a query in the background, so that it can be cancelled, completes names, and
// remembers queries in this browser. Without it the form works as any form.

const byId = (id) => document.getElementById(id);
const form = byId("ask");
const editor = byId("query");

function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// ---- running and cancelling -------------------------------------------------------------------

const LONGEST_ADDRESS = 8000;
let running = null;

// Nobody can guess it, so that no other page can cancel the query.
function newName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function post(path, fields) {
  const response = await fetch(path, { method: "POST", body: new URLSearchParams(fields) });
  return response.text();
}

async function run() {
  if (running) return;
  const fields = [...new FormData(form)].filter(([name]) => name !== "as");
  running = newName();
  remember(editor.value);
  keepAddress(fields);
  const began = performance.now();
  const tick = () => { byId("seconds").textContent = Math.floor((performance.now() - began) / 1000); };
  const timer = setInterval(tick, 500);
  tick();
  setGoing(true);
  try {
    show(await post("/sql", [...fields, ["id", running], ["part", "result"]]));
  } catch {
    byId("result").replaceChildren(element("p", "The server does not answer: is `claimflow view` still running?", { role: "alert", class: "fail" }));
  }
  clearInterval(timer);
  running = null;
  setGoing(false);
}

function setGoing(going) {
  byId("going").hidden = !going;
  byId("cancel").disabled = false;
  for (const button of document.querySelectorAll("button[name=as]")) button.disabled = going;
  byId("result").setAttribute("aria-busy", String(going));
}

// The server built it as it builds the whole page: every text is escaped, and no script can be in it.
function show(text) {
  const made = new DOMParser().parseFromString(text, "text/html");
  const whole = made.querySelector("main");
  const parts = whole ? [element("p", whole.textContent.trim(), { role: "alert", class: "fail" })] : [...made.body.childNodes];
  const open = byId("result").querySelector("details[open]");
  byId("result").replaceChildren(...parts);
  if (open) for (const chart of byId("result").querySelectorAll("details")) chart.open = true;
  awaitCharts(byId("result"));
}

byId("cancel").addEventListener("click", async () => {
  byId("cancel").disabled = true;
  const answer = await post("/sql/cancel", { token: form.elements.token.value, id: running });
  // It may not have begun yet.
  if (!JSON.parse(answer).cancelled) byId("cancel").disabled = false;
});

form.addEventListener("submit", (event) => {
  if (event.submitter && event.submitter.value !== "table") {
    remember(editor.value);
    return;
  }
  event.preventDefault();
  run();
});

// ---- the address ------------------------------------------------------------------------------

const SHOWN = ["sql", "kind", "x", "y", "series"];

function keepAddress(fields) {
  const address = `/sql?${new URLSearchParams(fields.filter(([name, value]) => SHOWN.includes(name) && value))}`;
  byId("here").href = address;
  if (address.length > LONGEST_ADDRESS || address === location.pathname + location.search) return;
  history.pushState(null, "", address);
}

window.addEventListener("popstate", () => location.reload());

// ---- the last queries -------------------------------------------------------------------------

const KEPT = 50;
const KEY = "claimflow-queries";

// A browser may refuse storage, and anything may be in it.
function past() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY));
    return found.filter((one) => typeof one.sql === "string" && Number.isFinite(one.at)).slice(0, KEPT);
  } catch {
    return [];
  }
}

function remember(sql) {
  const others = past().filter((one) => one.sql !== sql);
  try {
    localStorage.setItem(KEY, JSON.stringify([{ sql, at: Date.now() }, ...others].slice(0, KEPT)));
  } catch { /* The query runs all the same. */ }
  showPast();
}

function showPast() {
  const found = past();
  byId("past").hidden = found.length === 0;
  byId("past").querySelector("ol").replaceChildren(...found.map(({ sql, at }) => {
    const item = element("li");
    const flat = sql.replace(/\s+/g, " ").trim();
    const button = element("button", flat.length > 120 ? `${flat.slice(0, 119)}…` : flat, { type: "button" });
    button.addEventListener("click", () => {
      editor.value = sql;
      editor.focus();
    });
    item.append(button, element("time", new Date(at).toISOString().slice(0, 16).replace("T", " "), { datetime: new Date(at).toISOString() }));
    return item;
  }));
}

byId("past").querySelector("p button").addEventListener("click", () => {
  try { localStorage.removeItem(KEY); } catch { /* Nothing was kept. */ }
  showPast();
  editor.focus();
});

// ---- completing names -------------------------------------------------------------------------

const KEYWORDS = `ALL AND AS ASC BETWEEN BY CASE CAST COUNT DESC DISTINCT ELSE END EXCLUDE EXISTS FILTER FROM FULL GROUP
  HAVING ILIKE IN INNER IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER OVER PARTITION QUALIFY SELECT SEMI ANTI THEN
  UNION UNNEST USING VALUES WHEN WHERE WITH`.split(/\s+/);
const MOST = 50;

const tables = new Map(Array.from(document.querySelectorAll("details.table"), (one) => [
  one.querySelector("summary code").textContent,
  Array.from(one.querySelectorAll("dt code"), (column) => column.textContent),
]));

const list = element("ul", "", { id: "names", role: "listbox", "aria-label": "Names" });
const told = element("span", "", { class: "aloud", role: "status" });
const mirror = element("div", "", { class: "mirror", "aria-hidden": "true" });
editor.parentElement.append(list, told, mirror);
list.hidden = true;
// A text of several lines cannot have the role combobox; these say the same of a textbox.
editor.setAttribute("aria-autocomplete", "list");
editor.setAttribute("aria-controls", "names");
editor.setAttribute("aria-haspopup", "listbox");
let offered = [];
let chosen = 0;

// The tables that the query names, by their names and their aliases.
function named() {
  const found = new Map();
  for (const [, table, alias] of editor.value.matchAll(/\b(?:from|join)\s+([\w.]+)(?:\s+(?:as\s+)?(\w+))?/gi)) {
    const columns = tables.get(table.toLowerCase());
    if (!columns) continue;
    for (const name of [table, table.split(".").pop(), alias]) if (name) found.set(name.toLowerCase(), columns);
  }
  return found;
}

// What may stand at the caret: [name, what it is], and whether that is worth saying without being asked.
function candidates(word, before) {
  const all = [...tables.keys()].map((name) => [name, "table"]);
  if (/\b(?:from|join)\s+$/i.test(before)) return { names: all, start: word, asked: word.length < 2 };
  const [, of, part] = /^(?:(.*)\.)?(.*)$/.exec(word);
  const known = named();
  if (of !== undefined) {
    const columns = known.get(of.toLowerCase());
    return { names: columns ? columns.map((name) => [name, "column"]) : all, start: columns ? part : word, asked: !columns };
  }
  const columns = [...new Set([...known.values()].flat())];
  const names = [...columns.map((name) => [name, "column"]), ...all, ...KEYWORDS.map((name) => [name, "keyword"])];
  return { names, start: word, asked: true };
}

function offer(asked) {
  const before = editor.value.slice(0, editor.selectionStart);
  const [word] = /[\w.]*$/.exec(before);
  const { names, start, asked: onlyAsked } = candidates(word, before.slice(0, before.length - word.length));
  if (onlyAsked && !asked) return close();
  const wanted = start.toLowerCase();
  offered = names.filter(([name]) => name.toLowerCase().startsWith(wanted)).slice(0, MOST).map(([name, what]) => ({ name, what, from: before.length - start.length }));
  if (offered.length === 0 || (!asked && offered.length === 1 && offered[0].name.toLowerCase() === wanted)) return close();
  list.replaceChildren(...offered.map(({ name, what }, place) => {
    const option = element("li", "", { role: "option", id: `name-${place}` });
    option.append(element("span", name), element("span", what, { class: "faint" }));
    option.addEventListener("mousedown", (event) => { event.preventDefault(); take(place); });
    return option;
  }));
  list.hidden = false;
  told.textContent = `${offered.length} names`;
  place(before.length - start.length);
  choose(0);
}

// Puts the list below the letter at `at`, as far as the window allows.
function place(at) {
  const letter = element("span", "\u200b");
  mirror.replaceChildren(editor.value.slice(0, at), letter);
  const room = editor.clientWidth - list.offsetWidth;
  list.style.left = `${Math.max(0, Math.min(letter.offsetLeft, room))}px`;
  list.style.top = `${Math.min(letter.offsetTop - editor.scrollTop + letter.offsetHeight + 2, editor.offsetHeight)}px`;
}

function choose(number) {
  chosen = (number + offered.length) % offered.length;
  [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === chosen)));
  editor.setAttribute("aria-activedescendant", `name-${chosen}`);
  list.children[chosen].scrollIntoView({ block: "nearest" });
}

function take(number) {
  const { name, from } = offered[number];
  editor.setRangeText(name, from, editor.selectionStart, "end");
  close();
}

function close() {
  list.hidden = true;
  offered = [];
  told.textContent = "";
  editor.removeAttribute("aria-activedescendant");
}

const KEYS = {
  ArrowDown: () => choose(chosen + 1),
  ArrowUp: () => choose(chosen - 1),
  Enter: () => take(chosen),
  Tab: () => take(chosen),
  Escape: close,
};

editor.addEventListener("keydown", (event) => {
  const control = event.ctrlKey || event.metaKey;
  if (control && event.key === "Enter") {
    event.preventDefault();
    close();
    run();
  } else if (event.ctrlKey && event.key === " ") {
    event.preventDefault();
    offer(true);
  } else if (!list.hidden && !control && !event.shiftKey && !event.altKey && Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
editor.addEventListener("input", () => offer(false));
editor.addEventListener("blur", close);
editor.addEventListener("click", close);
byId("keys").hidden = false;
showPast();
