// ---- the address of the page -------------------------------------------------------------------

// The names in a part of the address; null if it is not a list of them.
function namesIn(part) {
  try {
    const found = JSON.parse(part);
    return Array.isArray(found) ? found : null;
  } catch { return null; }
}

// The part of the address behind # says what is chosen and open: Back works, and a link leads to the same view.
// `filters` is their form, `list` and `columns` are those of the list, and `opened` is what is open. What an
// address says becomes the state of these by `choose`, which ticks columns, and `shown`, which draws the list
// and opens the sample.
function pageAddress({ filters, list, columns, opened, choose, shown }) {
  const firstNames = columns.filter((one) => one.first).map((one) => one.name);
  const state = { address: "", following: false };

  function addressOf({ sample = true } = {}) {
    const parts = new URLSearchParams();
    for (const input of filters.elements) if (input.name && input.value) parts.set(input.name, input.value);
    const order = list.order();
    if (order) parts.set("sort", (order.desc ? "-" : "") + order.id);
    const names = list.chosen().map((one) => one.name);
    if (String(names) !== String(firstNames)) parts.set("columns", JSON.stringify(names.slice(1)));
    if (sample && opened.row) {
      parts.set("sample", opened.row.id);
      if (opened.claim) parts.set("claim", opened.claim);
      if (opened.step) parts.set("step", opened.step);
    }
    if (!opened.markdown) parts.set("markdown", "off");
    return String(parts);
  }
  // Only a step that Back should undo is an entry of the history.
  function tell({ step = false } = {}) {
    const address = addressOf();
    if (address === state.address) return;
    state.address = address;
    if (state.following) return;
    if (step) history.pushState(null, "", `#${address}`);
    else history.replaceState(null, "", `#${address}`);
  }
  // Shows what the address says, when the page opens and when the reader goes back or follows a link in it.
  function follow() {
    const told = location.hash.slice(1);
    if (told === state.address || (told && !told.includes("="))) return;
    state.following = true;
    restore(new URLSearchParams(told));
    state.address = told;
    state.following = false;
  }
  function restore(parts) {
    const missing = restoreFilters(parts);
    const sort = parts.get("sort") || "";
    list.sort({ id: sort.replace(/^-/, ""), desc: sort.startsWith("-") });
    choose(namesIn(parts.get("columns")) || firstNames);
    shown(parts, missing.map((one) => `${one}=${parts.get(one)}`));
  }
  // Returns the filters that a link names and no sample of this page has: another run's failure, or a slice
  // without a sample here.
  function restoreFilters(parts) {
    filters.reset();
    for (const input of filters.elements) {
      const wanted = input.name && parts.get(input.name);
      if (wanted && (input.type !== "number" || Number.isFinite(Number(wanted)))) input.value = wanted;
    }
    const missing = ["verdict", "slice", "changed", "cause", "failure"].filter((name) => parts.get(name) && !filters.elements[name]);
    for (const input of filters.querySelectorAll("select")) {
      if (input.selectedIndex >= 0) continue;
      input.selectedIndex = 0;
      missing.push(input.name);
    }
    return missing;
  }
  window.addEventListener("popstate", follow);
  return { addressOf, tell, follow, following: () => state.following };
}
