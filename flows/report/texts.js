"use strict";
// Elements and texts. Text under evaluation enters the page only as text nodes, made by `node`.

const SIGNS = { entailed: "✓", contradicted: "✗", neutral: "?", failed: "!", none: "–", pass: "✓", fail: "✗" };
const WORST = ["failed", "contradicted", "neutral", "entailed", "none"];
const byId = (id) => document.getElementById(id);

// An element; attributes whose value is null or false are left out, strings become text.
function node(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const digits = (value) => (value === null || value === undefined ? "-" : value.toFixed(3));
const signedOrDash = (value) => (value === null ? "-" : signed(value));
const signed = (value) => (value > 0 ? "+" : "") + digits(value);
const spoken = (verdict) => (verdict === "none" ? "not judged" : verdict);
const verdictLabel = (verdict) => node("span", { class: `word ${verdict}` }, `${SIGNS[verdict] || "grade"} ${spoken(verdict)}`);

// The text split where marks begin and end, each piece with the marks that cover it. Positions
// count code points, while JavaScript strings count UTF-16 units.
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

// A piece of text covered by claims or evidence. A claim can be chosen; where claims overlap, the piece
// shows the worst verdict and chooses the first claim. `sign` ends the first piece of a mark.
function marked(piece, sign) {
  const claims = piece.marks.filter((mark) => mark.choose);
  const kind = WORST.find((one) => claims.some((mark) => mark.kind === one)) || null;
  const evidence = piece.marks.some((mark) => mark.kind === "evidence");
  const chosen = claims.some((mark) => mark.chosen);
  const classes = ["mark", kind, evidence && "evidence", chosen && "chosen"].filter(Boolean).join(" ");
  const shown = [piece.text, sign ? node("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kind] || "❝") : null];
  if (!claims.length) return node("span", { class: classes, role: "mark" }, shown);
  const label = `${spoken(kind)}${evidence ? ", evidence" : ""}: ${piece.text}`;
  const choose = claims[0].choose;
  const pressed = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
  // Not <button>: its text could not wrap with the surrounding lines, nor be selected with them.
  return node("span", { class: classes, role: "button", tabindex: "0", "aria-label": label, "aria-expanded": String(chosen), click: choose, keydown: pressed }, shown);
}

// A text with its line breaks, which can be scrolled by keys; `name` is read by screen readers.
function textBlock(name, text, marks) {
  if (text === null || text === undefined) return node("p", { class: "absent" }, "(missing)");
  if (text === "") return node("p", { class: "absent" }, "(empty)");
  const seen = new Set();
  const parts = pieces(text, marks).map((piece) => {
    const first = piece.marks.filter((mark) => !seen.has(mark));
    first.forEach((mark) => seen.add(mark));
    return piece.marks.length ? marked(piece, first.length > 0) : piece.text;
  });
  return node("div", { class: "text", dir: "auto", tabindex: "0", role: "group", "aria-label": name }, parts);
}

// A table of values: elements unchanged, numbers right-aligned, null as a dash.
function table(name, columns, rows) {
  const cell = (value) => (value instanceof Node ? value : node("bdi", {}, value === null || value === undefined ? "-" : String(value)));
  const number = (value) => typeof value === "number" || (typeof value === "string" && /^([+-]?\d[\d.]*|-)$/.test(value));
  return node("div", { class: "wide", tabindex: "0", role: "group", "aria-label": name }, node("table", {},
    node("thead", {}, node("tr", {}, columns.map((column) => node("th", { scope: "col" }, column)))),
    node("tbody", {}, rows.map((row) => node("tr", {}, row.map((value) => node("td", { class: number(value) ? "number" : null }, cell(value))))))));
}
