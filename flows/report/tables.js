// ---- tables that are sorted, and taken along ---------------------------------------------------

// The header of a column that sorts by a click. `order` is a value of aria-sort.
function sortHeader(name, { order, number, click, aloud = name }) {
  const arrow = { descending: " ▼", ascending: " ▲", none: "" }[order];
  return node("th", { scope: "col", "aria-sort": order, class: number ? "number" : null },
    node("button", { type: "button", "aria-label": `sort by ${aloud}`, title: aloud, click }, name + arrow));
}

// Rows sorted by the values of `get`; rows without a value come last, equal ones by `rank`.
function sorted(rows, get, down) {
  const order = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  return [...rows].sort((one, other) => {
    const [a, b] = [get(one), get(other)];
    if (a === null || b === null) return (a === null) - (b === null) || one.rank - other.rank;
    return (down ? order(b, a) : order(a, b)) || one.rank - other.rank;
  });
}

// Makes a table of slices sortable by each of its columns, the worst mean first. The line over all samples stays first.
function sortable(slices) {
  const [body] = slices.tBodies;
  const [all, ...lines] = body.rows;
  const rows = lines.map((line, rank) => ({ line, rank }));
  const heads = [...slices.tHead.rows[0].cells].map((cell) => ({ name: cell.textContent, down: "lower" in cell.dataset }));
  const valueOf = (number) => ({ line }) => {
    const { value } = line.cells[number].dataset;
    if (number === 0) return line.cells[0].textContent;
    return value ? Number(value) : null;
  };
  const state = { by: null, down: false };
  function draw() {
    slices.tHead.replaceChildren(node("tr", {}, heads.map(({ name, down }, number) => sortHeader(name, {
      order: state.by === number ? (state.down ? "descending" : "ascending") : "none", number: number > 0, click: () => {
        state.down = state.by === number ? !state.down : down;
        state.by = number;
        draw();
        slices.tHead.querySelectorAll("button")[number].focus();
      } }))));
    const shown = state.by === null ? rows : sorted(rows, valueOf(state.by), state.down);
    body.replaceChildren(all, ...shown.map(({ line }) => line));
  }
  slices.classList.add("sortable");
  draw();
}

document.querySelectorAll("table.slices").forEach(sortable);

// The text of a cell, or its number; pictures are left out.
function cellOf(cell) {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("svg, button").forEach((one) => one.remove());
  const text = copy.textContent.trim();
  return /^[+-]?\d[\d,]*(\.\d+)?$/.test(text) ? Number(text.replaceAll(",", "")) : text;
}

// A button below each table of the report, which the browser makes a file of.
function downloads() {
  for (const part of document.querySelectorAll("main .wide[aria-label]:not(#scroller)")) {
    const made = part.querySelector("table");
    const name = part.getAttribute("aria-label");
    const rows = () => [...made.querySelectorAll("tbody tr")].map((row) => [...row.cells].map(cellOf));
    const titles = () => [...made.tHead.rows[0].cells].map((cell) => cell.textContent.replace(/ [▲▼]$/, ""));
    const save = () => saveFile(`${name.toLowerCase().replace(/\W+/g, "-")}.csv`, csvOf(titles(), rows()));
    part.after(node("button", { type: "button", class: "copy", "aria-label": `${name} as CSV`, click: save }, "CSV"));
  }
}
