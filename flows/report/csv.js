"use strict";

// ---- files for spreadsheet programs -----------------------------------------------------------

// The beginnings of a formula, also after blanks and in full-width characters: the same as in the sheets of
// `claimflow label export`.
const FORMULA = /^'*(?:\s*[=+\-@＝＋－＠]|[\t\r\n])/;

const guarded = (text) => (FORMULA.test(text) ? `'${text}` : text);
const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
const csvText = (rows) => `\ufeff${rows.map((row) => row.join(",")).join("\r\n")}\r\n`;

// A table as CSV for spreadsheet programs: null is empty, and no program takes a text for a formula.
function csvOf(titles, rows) {
  const cell = (value) => {
    if (value === null || typeof value === "number") return value === null ? "" : String(value);
    return quoted(guarded(value));
  };
  return csvText([titles, ...rows].map((row) => row.map(cell)));
}

function saveFile(name, text) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
