// ---- tables that are sorted, and taken along ---------------------------------------------------

// A table of TanStack Table: columns that are shown, order and filter are its state, its row model the rows
// that follow from them. A column has a `name`, and `get` gives the value of a row; rows without a value
// (null) come last, equal ones in the order of `rows`. With `down` the first click sorts the largest first. The
// second click turns the order round, and the third one brings back that of `rows`.
function tableOf(rows, columns) {
  const { compare } = new Intl.Collator();
  const order = (row, other, name) => {
    const [a, b] = [row.getValue(name), other.getValue(name)];
    return typeof a === "string" ? compare(a, b) : a - b;
  };
  return libraries.constructTable({
    features: libraries.features, data: rows,
    columns: columns.map((column) => ({ id: column.name, accessorFn: (row) => column.get(row) ?? undefined,
      sortFn: order, sortUndefined: "last", sortDescFirst: Boolean(column.down), meta: column })),
    // The filter is a list of predicates of a whole row: it is enough to ask one column.
    globalFilterFn: (row, name, wanted) => wanted.every((fits) => fits(row.original)),
    getColumnCanGlobalFilter: ({ id }) => id === columns[0].name,
  });
}

// The header of a column of such a table, which sorts by a click and calls `done` then.
function sortHeader(column, name, { number, done, aloud = name }) {
  const [order, arrow] = { asc: ["ascending", " ▲"], desc: ["descending", " ▼"] }[column.getIsSorted()] || ["none", ""];
  const click = (event) => {
    const { cellIndex, parentElement } = event.currentTarget.closest("th");
    const head = parentElement.parentElement;
    column.toggleSorting();
    done();
    head.rows[0].cells[cellIndex].querySelector("button").focus();
  };
  // Names of metrics may break behind their underscores.
  const parts = (name + arrow).split(/(?<=[_.])/).flatMap((part) => [node("wbr", {}), part]);
  return node("th", { scope: "col", "aria-sort": order, class: number ? "number" : null },
    node("button", { type: "button", "aria-label": `sort by ${aloud}`, title: aloud, click }, parts.slice(1)));
}

// Makes a table of slices sortable by each of its columns, the worst mean first. The line over all samples stays first.
function sortable(slices) {
  const [body] = slices.tBodies;
  const [all, ...lines] = body.rows;
  const valueOf = (number) => ({ cells }) => {
    const { value } = cells[number].dataset;
    if (number === 0) return cells[0].textContent;
    return value ? Number(value) : null;
  };
  const heads = [...slices.tHead.rows[0].cells].map((cell, number) => (
    { name: String(number), title: cell.textContent, down: "lower" in cell.dataset, get: valueOf(number) }));
  const table = tableOf(lines, heads);
  function draw() {
    slices.tHead.replaceChildren(node("tr", {}, heads.map(({ name, title }, number) => (
      sortHeader(table.getColumn(name), title, { number: number > 0, done: draw })))));
    body.replaceChildren(all, ...table.getRowModel().rows.map((row) => row.original));
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
