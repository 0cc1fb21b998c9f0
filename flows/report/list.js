// ---- the list: its table, and the rows of it that are seen --------------------------------------

// At least so many rows are drawn above and below those that are seen. What is drawn changes by as many at
// once, not with each row that is scrolled.
const STEP = 20;

// The indexes of the rows that are drawn, as TanStack Virtual asks for them.
function drawnRange({ startIndex, endIndex, count }) {
  const first = Math.max(0, (Math.floor(startIndex / STEP) - 1) * STEP);
  const end = Math.min(count, (Math.floor(endIndex / STEP) + 2) * STEP);
  return Array.from({ length: end - first }, (_, place) => first + place);
}

// The list of `rows`: TanStack Table has its columns, order and filter, and TanStack Virtual says which rows
// are seen. `open` is called with the row that the reader opens, `sorted` when they sorted.
function sampleList(rows, columns, { open, sorted }) {
  const { elementScroll, observeElementOffset, observeElementRect, Virtualizer } = libraries;
  const [list, scroller] = [byId("list"), byId("scroller")];
  const [body] = list.tBodies;
  const table = tableOf(rows, columns);
  // Those that match, in their order; the first one that is drawn, and the one behind the last; the row whose
  // sample is open.
  const state = { rows, first: 0, last: 0, marked: null, height: 33, stale: true };
  const virtualizer = new Virtualizer({ count: 0, getScrollElement: () => scroller, estimateSize: () => state.height,
    observeElementRect, observeElementOffset, scrollToFn: elementScroll, rangeExtractor: drawnRange, onChange: drawRows });

  // What the reader chose; a column that has no values now is left out until it has some.
  const chosenColumns = () => table.getVisibleLeafColumns().map((column) => column.columnDef.meta);
  const shownColumns = () => table.getVisibleLeafColumns().filter((column) => !column.columnDef.meta.empty);
  function cell(column, row) {
    const value = column.get(row);
    if (!column.text) return node("td", { class: column.field ? null : "number", dir: column.field ? "auto" : null }, column.shown(value));
    const short = value === null ? "-" : Array.from(value.slice(0, 320)).slice(0, 140).join("");
    return node("td", { class: "asked", dir: "auto" }, short + (value !== null && short.length < value.length ? "…" : ""));
  }
  function line(row, number) {
    const current = row === state.marked;
    return node("tr", { class: current ? "current" : null, "aria-rowindex": number + 2, click: () => open(row) },
      node("th", { scope: "row", class: "id" }, node("button", { type: "button", class: "open", "aria-current": String(current) }, node("bdi", {}, row.id))),
      shownColumns().slice(1).map((column) => cell(column.columnDef.meta, row)));
  }
  // A header breaks where the words of a name end, so a column is as wide as its longest one, or its numbers.
  function width({ text, shown, field, title }) {
    const longest = Math.max(...title.split(/[\s_.-]/).map((word) => word.length));
    const column = node("col", { class: text ? "text" : shown && !field ? "number" : "id" });
    if (shown && !field) column.style.width = `max(${shown === String ? 56 : 88}px, ${Math.min(longest, 16)}ch + 36px)`;
    return column;
  }
  // Draws columns and rows after a change of the table's state; with `top` from the first row on.
  function draw({ top = false } = {}) {
    state.rows = table.getRowModel().rows.map((row) => row.original);
    state.stale = true;
    list.tHead.replaceChildren(node("tr", {}, shownColumns().map((column) => {
      const { title, aloud = title, shown, field } = column.columnDef.meta;
      return sortHeader(column, title, { number: Boolean(shown) && !field, aloud, done: () => { draw({ top: true }); sorted(); } });
    })));
    list.setAttribute("aria-rowcount", state.rows.length + 1);
    byId("widths").replaceChildren(...shownColumns().map((column) => width(column.columnDef.meta)));
    place();
    if (top) scrollTo(0);
    drawRows();
  }
  // Tells the library what the box holds, and makes the box as high as all rows would be.
  function place() {
    const head = list.tHead.offsetHeight;
    virtualizer.setOptions({ ...virtualizer.options, count: state.rows.length, scrollMargin: head, scrollPaddingStart: head,
      scrollPaddingEnd: scroller.offsetHeight - scroller.clientHeight });
    byId("rows").style.height = state.rows.length ? `${virtualizer.getTotalSize() + head}px` : "auto";
    // The library observes the box from its first height on.
    virtualizer._willUpdate();
  }
  // The browser tells of this scrolling later, but the rows are wanted now.
  function scrollTo(top) {
    scroller.scrollTop = top;
    scroller.dispatchEvent(new Event("scroll"));
  }
  // Draws the rows near those that are seen. All have one height, and the table stands where its first row
  // would stand if those above it were there.
  function drawRows() {
    const items = virtualizer.getVirtualItems();
    const [first, last] = items.length ? [items[0].index, items.at(-1).index + 1] : [0, 0];
    if (!state.stale && first === state.first && last === state.last) return;
    const held = body.contains(document.activeElement) ? numberOf(document.activeElement) : -1;
    const lines = (from, to) => state.rows.slice(from, to).map((row, number) => line(row, from + number));
    // Rows that stay are left as they are, unless all have changed or are far away.
    if (state.stale || first >= state.last || last <= state.first) body.replaceChildren(...lines(first, last));
    else {
      for (const row of [...body.rows].filter((_, at) => state.first + at < first || state.first + at >= last)) row.remove();
      body.prepend(...lines(first, state.first));
      body.append(...lines(state.last, last));
    }
    Object.assign(state, { first, last, stale: false });
    list.style.marginTop = `${first * state.height}px`;
    // The row that had the focus keeps it; if it is gone, the keys go on scrolling.
    if (held >= 0) (openerOf(held) || scroller).focus({ preventScroll: true });
    measure();
  }
  // A row is higher where the reader chose larger letters.
  function measure() {
    const height = body.rows.length ? body.rows[0].getBoundingClientRect().height : 0;
    if (!height || Math.abs(height - state.height) < 0.01) return;
    Object.assign(state, { height, stale: true });
    virtualizer.measure();
    place();
    drawRows();
  }
  // The place of the row with this element in the list, and the button that opens the row in a place.
  const numberOf = (element) => state.first + [...body.rows].indexOf(element.closest("tr"));
  const openerOf = (number) => { const row = body.rows[number - state.first]; return row ? row.querySelector("button.open") : null; };
  // Scrolls the list, not the page, so that the row is seen; returns the button that opens it.
  function reveal(number) {
    const [top] = virtualizer.getOffsetForIndex(number, "auto");
    scrollTo(top);
    return openerOf(number);
  }
  // Marks the row whose sample is open, null for none.
  function mark(row) {
    state.marked = row;
    for (const line of body.rows) {
      const current = state.rows[numberOf(line)] === row;
      line.querySelector("button.open").setAttribute("aria-current", String(current));
      line.classList.toggle("current", current);
    }
    if (state.rows.includes(row)) reveal(state.rows.indexOf(row));
  }
  // A window of another size has headers of another height, and rows too where the reader zoomed.
  new ResizeObserver(() => { place(); measure(); }).observe(list.tHead);
  return {
    rows: () => state.rows,
    // The first row that is seen.
    seen: () => Math.ceil(scroller.scrollTop / state.height),
    filter: (wanted) => { table.setGlobalFilter(wanted.length ? wanted : undefined); },
    // TanStack Table keeps the values of a row until it gets other data.
    forget: () => { table.setOptions((options) => ({ ...options, data: [...rows] })); },
    chosen: chosenColumns,
    columns: () => shownColumns().map((column) => column.columnDef.meta),
    // The first column is always shown, since it opens the row.
    choose: (names) => { table.setColumnVisibility(Object.fromEntries(columns.map(({ name }, number) => [name, number === 0 || names.includes(name)]))); },
    // What the rows are sorted by, as `{ id, desc }`; null for the order of the page.
    order: () => { const [order] = table.store.state.sorting; return order && !table.getColumn(order.id).columnDef.meta.empty ? order : null; },
    sort: (order) => { table.setSorting(order && table.getColumn(order.id) ? [order] : []); },
    draw, mark, numberOf, reveal,
  };
}
