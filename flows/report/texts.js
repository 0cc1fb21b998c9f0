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

// Code points of a text that are shown at a time: a browser lays out a few pages at once, not a book.
const PART = 20000;

// Where the parts of a long text begin, and where the last one ends: behind a line break or a blank.
function partsOf(points) {
  const cuts = [0];
  while (points.length - cuts.at(-1) > PART) {
    let cut = cuts.at(-1) + PART;
    while (cut > cuts.at(-1) + PART / 2 && !/\s/.test(points[cut - 1])) cut -= 1;
    cuts.push(cut);
  }
  return [...cuts, points.length];
}

// The code points `first` to `last` split where marks begin and end, each piece with the marks that cover
// it. Positions count code points, while JavaScript strings count UTF-16 units.
function pieces(points, marks, first, last) {
  const inside = marks.filter((mark) => mark.start >= 0 && mark.start < mark.end && mark.end <= points.length && mark.start < last && mark.end > first)
    .map((mark) => ({ mark, start: Math.max(mark.start, first), end: Math.min(mark.end, last) }));
  const at = new Map([[first, []], [last, []]]);
  for (const mark of inside) for (const place of [mark.start, mark.end]) at.set(place, [...(at.get(place) || []), mark]);
  const cuts = [...at.keys()].sort((a, b) => a - b);
  const open = new Set();
  return cuts.slice(0, -1).map((from, number) => {
    for (const one of at.get(from)) if (one.start === from) open.add(one.mark); else open.delete(one.mark);
    return { text: points.slice(from, cuts[number + 1]).join(""), marks: [...open] };
  });
}

// A piece of text covered by marks; `first` are those that begin in it. What differs from the other run is
// <ins> or <del> around it, with a sign where it begins. `ends` gets the piece as the last one of its marks.
function marked(piece, first, ends) {
  const differs = piece.marks.find((mark) => mark.kind === "added" || mark.kind === "removed");
  const others = piece.marks.filter((mark) => mark !== differs);
  const shown = others.length ? markedClaim({ text: piece.text, marks: others }) : piece.text;
  for (const mark of others) ends.set(mark, shown);
  if (!differs) return shown;
  const sign = first.includes(differs) ? node("span", { class: "differs", "aria-hidden": "true" }, differs.kind === "added" ? "+" : "−") : null;
  return node(differs.kind === "added" ? "ins" : "del", {}, sign, shown);
}

// A piece of text covered by claims or evidence. A claim can be chosen; where claims overlap, the piece
// shows the worst verdict and chooses the first claim.
function markedClaim(piece) {
  const claims = piece.marks.filter((mark) => mark.choose);
  const kind = worstOf(claims);
  const evidence = piece.marks.some((mark) => mark.kind === "evidence");
  const chosen = claims.some((mark) => mark.chosen);
  const classes = ["mark", kind, evidence && "evidence", chosen && "chosen"].filter(Boolean).join(" ");
  if (!claims.length) return node("span", { class: classes, role: "mark" }, piece.text);
  const label = `${spoken(kind)}${evidence ? ", evidence" : ""}: ${piece.text}`;
  const choose = claims[0].choose;
  const pressed = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } };
  // Not <button>: its text could not wrap with the surrounding lines, nor be selected with them.
  return node("span", { class: classes, role: "button", tabindex: "0", "aria-label": label, "aria-expanded": String(chosen), click: choose, keydown: pressed }, piece.text);
}

const worstOf = (marks) => WORST.find((one) => marks.some((mark) => mark.kind === one)) || null;

// Puts a sign behind the last piece of each mark; of marks that end in the same one it is that of the worst.
function addSigns(ends) {
  const ended = new Map();
  for (const [mark, element] of ends) ended.set(element, [...(ended.get(element) || []), mark]);
  for (const [element, marks] of ended) element.append(node("span", { class: "sign", "aria-hidden": "true" }, SIGNS[worstOf(marks)] || "❝"));
}

// A text with its line breaks, which can be scrolled by keys; `name` is read by screen readers. Of a long
// one a part is shown: what the reader asks for, or else the part with the chosen claim or evidence. Markdown
// is rendered if the reader wants it, but not where differences are marked, which may be in its signs.
function textBlock(name, text, marks, view) {
  if (text === null || text === undefined) return node("p", { class: "absent" }, "(missing)");
  if (text === "") return node("p", { class: "absent" }, "(empty)");
  const points = Array.from(text);
  const cuts = partsOf(points);
  const last = cuts.length - 2;
  const wanted = marks.find((mark) => mark.chosen || mark.kind === "evidence");
  const number = view.parts.get(name) ?? (wanted ? Math.max(cuts.findLastIndex((cut) => cut <= wanted.start), 0) : 0);
  const part = Math.min(number, last);
  view.parts.set(name, part);
  const [begin, end] = [cuts[part], cuts[part + 1]];
  const seen = new Set(marks.filter((mark) => mark.start < begin));
  const ends = new Map();
  const shown = (from, to) => pieces(points, marks, from, to).map((piece) => {
    const first = piece.marks.filter((mark) => !seen.has(mark));
    first.forEach((mark) => seen.add(mark));
    return piece.marks.length ? marked(piece, first, ends) : piece.text;
  });
  const differs = marks.some((mark) => mark.kind === "added" || mark.kind === "removed");
  const rendered = view.markdown && !differs && view.hasMarkdown(text);
  const block = node("div", { class: rendered ? "text markdown" : "text", dir: "auto", tabindex: "0", role: "group", "aria-label": name, "data-part": String(part) },
    rendered ? renderedMarkdown(points, begin, end, shown) : shown(begin, end));
  addSigns(ends);
  if (last === 0) return block;
  const go = (step) => () => { view.parts.set(name, part + step); view.draw(); };
  return [node("p", { class: "parts" }, `Part ${part + 1} of ${last + 1} of this text of ${points.length.toLocaleString("en")} letters `,
    node("button", { type: "button", "aria-label": `previous part of ${name}`, disabled: part === 0, click: go(-1) }, "Previous part"), " ",
    node("button", { type: "button", "aria-label": `next part of ${name}`, disabled: part === last, click: go(1) }, "Next part")), block];
}

// Puts a text on the clipboard and says so; a page without an origin may not use the clipboard of the
// browser's own interface.
function copied(text, button) {
  const held = node("textarea", { class: "aloud", "aria-label": "Copied text" });
  held.value = text;
  button.after(held);
  held.select();
  const done = document.execCommand("copy");
  held.remove();
  button.focus({ preventScroll: true });
  byId("told").textContent = done ? "Copied." : "The browser does not allow copying.";
  const { label = button.textContent } = button.dataset;
  button.dataset.label = label;
  button.textContent = done ? "✓ Copied" : "✗ Not allowed by the browser";
  setTimeout(() => { button.textContent = label; }, 2000);
}

// Nothing for a text that is missing or empty.
const copyButton = (name, text) => (text
  ? node("button", { type: "button", class: "copy", "aria-label": `Copy ${name}`, click: (event) => copied(text, event.currentTarget) }, "Copy") : null);

// The title of a text, with a button that copies it.
const textTitle = (level, title, text) => node("div", { class: "title" }, node(level, {}, title), copyButton(title, text));

// A table of values: elements unchanged, numbers right-aligned, null as a dash.
function table(name, columns, rows) {
  const cell = (value) => (value instanceof Node ? value : node("bdi", {}, value === null || value === undefined ? "-" : String(value)));
  const number = (value) => typeof value === "number" || (typeof value === "string" && /^([+-]?\d[\d.]*|-)$/.test(value));
  return node("div", { class: "wide", tabindex: "0", role: "group", "aria-label": name }, node("table", {},
    node("thead", {}, node("tr", {}, columns.map((column) => node("th", { scope: "col" }, column)))),
    node("tbody", {}, rows.map((row) => node("tr", {}, row.map((value) => node("td", { class: number(value) ? "number" : null }, cell(value))))))));
}
