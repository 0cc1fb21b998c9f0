"use strict";

const sheet = JSON.parse(document.getElementById("sheet").textContent);
const labels = sheet.rows.map((row) => row.cells[sheet.columns.indexOf("label")]);
const choices = document.getElementById("choices");
let place = 0;
let saved = true;

// Characters that change the direction of text, so that it would be displayed in another order.
const directionMarks = /[\u202A-\u202E\u2066-\u2069]/g;

function labelled() {
  return labels.filter((label) => label !== "").length;
}

function cellText(row, column) {
  const cell = row.cells[sheet.columns.indexOf(column)];
  return row.guarded.includes(column) ? cell.slice(1) : cell;
}

function section(column, text) {
  const title = document.createElement("h2");
  title.textContent = column.replaceAll("_", " ");
  const body = document.createElement("p");
  body.dir = "auto";
  body.tabIndex = 0;
  body.textContent = text.replace(directionMarks, "\ufffd");
  return [title, body];
}

function show() {
  const row = sheet.rows[place];
  const parts = sheet.read.map((column) => [column, cellText(row, column)]);
  document.getElementById("texts").replaceChildren(
    ...parts.filter(([, text]) => text !== "").flatMap(([column, text]) => section(column, text)),
  );
  for (const input of choices.querySelectorAll("input")) {
    if (input.type === "radio") {
      input.checked = input.value === labels[place];
    } else {
      input.value = labels[place];
    }
  }
  const where = `Row ${place + 1} of ${sheet.rows.length}, ${labelled()} labelled`;
  document.getElementById("progress").textContent = where;
}

function go(step) {
  place = Math.min(sheet.rows.length - 1, Math.max(0, place + step));
  show();
}

function label(value) {
  labels[place] = value;
  saved = false;
  show();
}

function choice(value, number) {
  const whole = document.createElement("label");
  const input = document.createElement("input");
  input.type = "radio";
  input.name = "label";
  input.value = value;
  input.addEventListener("change", () => label(value));
  whole.append(input, ` ${value} (${number + 1})`);
  return whole;
}

function rating() {
  const whole = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { type: "number", min: "0", max: "1", step: "any" });
  input.addEventListener("change", () => {
    if (input.checkValidity()) {
      label(input.value);
    } else {
      input.reportValidity();
    }
  });
  whole.append("From 0 to 1: ", input);
  return whole;
}

function csv() {
  const quoted = (cell) => `"${cell.replaceAll('"', '""')}"`;
  const last = sheet.columns.indexOf("label");
  const lines = sheet.rows.map((row, n) =>
    row.cells.map((cell, column) => quoted(column === last ? labels[n] : cell)).join(","),
  );
  return `\ufeff${[sheet.columns.map(quoted).join(","), ...lines].join("\r\n")}\r\n`;
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "labels.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  saved = true;
}

document.getElementById("question").textContent = sheet.question;
choices.append(...(sheet.values.length ? sheet.values.map(choice) : [rating()]));
document.getElementById("back").addEventListener("click", () => go(-1));
document.getElementById("next").addEventListener("click", () => go(1));
document.getElementById("none").addEventListener("click", () => label(""));
document.getElementById("save").addEventListener("click", save);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.type === "number") {
    return;
  }
  const value = event.key === "0" ? "" : sheet.values[Number(event.key) - 1];
  if (value !== undefined) {
    label(value);
  } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    event.preventDefault();
    go(event.key === "ArrowRight" ? 1 : -1);
  }
});
window.addEventListener("beforeunload", (event) => {
  if (!saved) {
    event.preventDefault();
  }
});
show();
