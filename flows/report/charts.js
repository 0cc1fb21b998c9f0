// ---- charts -----------------------------------------------------------------------------------

// Vega-Lite draws the specifications of charts as SVG. An element of the class `chart` has one, and the
// sentence that is read aloud, which stands in its place until the chart is seen, and without a script.

// What Vega would read or open: nothing. Links are elements, made below.
const refuse = () => Promise.reject(new Error("charts load nothing"));
const LOADER = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

const DESCRIBED = ["role", "aria-roledescription", "aria-label"];
const undescribe = (element) => DESCRIBED.forEach((attribute) => element.removeAttribute(attribute));

// Whether an address is inside this page, or of the server that the page is from.
function leadsInside(address) {
  if (address.startsWith("#")) return true;
  const to = new URL(address, location.href);
  return to.protocol.startsWith("http") && to.origin === location.origin;
}

// The width that there is for a chart. A cell of a table is as wide as its chart.
function roomFor(element) {
  const place = getComputedStyle(element.parentElement);
  if (place.display === "table-cell") return Infinity;
  return element.parentElement.clientWidth - parseFloat(place.paddingLeft) - parseFloat(place.paddingRight);
}

// Makes the plot of a view narrower, until it fits with its axes. These may change on the way.
async function narrow(view, picture, room) {
  for (let tries = 0; tries < 3; tries += 1) {
    const over = Number(picture().getAttribute("width")) - room;
    if (over <= 0) return;
    await view.width(Math.max(view.width() - over, LEAST)).resize().runAsync();
  }
}

const LEAST = 60;

async function drawChart(element, specification) {
  const { compile, expressionInterpreter, parse, View } = libraries;
  const room = roomFor(element);
  // Names beside a plot leave more than half of the room to it.
  const axis = { ...specification.config.axis, labelLimit: Math.min(specification.config.axis.labelLimit, room * 0.4) };
  const { spec } = compile({ ...specification, config: { ...specification.config, axis } });
  const view = new View(parse(spec, {}, { ast: true }), { expr: expressionInterpreter, loader: LOADER, renderer: "svg" });
  const place = document.createElement("div");
  await view.initialize(place).runAsync();
  await narrow(view, () => place.querySelector("svg"), room);
  // Nothing is listened for.
  view.finalize();
  const picture = place.querySelector("svg");
  for (const attribute of DESCRIBED) picture.setAttribute(attribute, place.getAttribute(attribute));
  // A group of marks has no name, and nothing to say.
  for (const group of picture.querySelectorAll("g[aria-roledescription$=container]")) undescribe(group);
  for (const mark of picture.querySelectorAll("path[aria-label]")) nameMark(mark, mark.__data__.href);
  joinMarks(picture);
  element.replaceChildren(picture);
  for (const one of [element, picture]) one.removeAttribute("style");
  thinWords(picture);
  drawn.set(element, { specification, room });
}

// Leaves out words in a plot that would stand on others: on those of layers before, and on newer ones.
function thinWords(picture) {
  const kept = [];
  for (const group of picture.querySelectorAll(".mark-text.role-mark")) {
    for (const word of [...group.querySelectorAll("text")].reverse()) {
      const box = word.getBoundingClientRect();
      if (kept.some((one) => one.left < box.right && box.left < one.right && one.top < box.bottom && box.top < one.bottom)) word.remove();
      else kept.push(box);
    }
  }
}

// Shows the words of a mark to those who point at it, and makes it a link that keys reach if it leads on.
function nameMark(mark, address) {
  const words = mark.getAttribute("aria-label");
  const [title, link] = ["title", "a"].map((one) => document.createElementNS(mark.namespaceURI, one));
  title.textContent = words;
  mark.append(title);
  if (!address || !leadsInside(address)) return;
  link.setAttribute("href", address);
  link.setAttribute("aria-label", words);
  undescribe(mark);
  mark.replaceWith(link);
  link.append(mark);
}

// Steps between the marks of a chart by keys, from the first one or the last one where they are infinite.
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

// Makes the links of a chart one stop of the Tab key: it leads to the one that was reached last by arrows, Home
// or End, which lead to the others.
function joinMarks(picture) {
  const links = [...picture.querySelectorAll("a")];
  const stop = (wanted) => links.forEach((link) => link.setAttribute("tabindex", link === wanted ? "0" : "-1"));
  stop(links[0]);
  picture.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const place = links.indexOf(event.target) + STEPS[event.key];
    const next = links[Math.max(0, Math.min(place, links.length - 1))];
    stop(next);
    next.focus();
  });
}

// What is drawn, and for how much room: where a window becomes wider or narrower it is drawn again.
const drawn = new Map();
window.addEventListener("resize", () => {
  for (const [element, { specification, room }] of drawn) {
    if (!element.isConnected) drawn.delete(element);
    else if (roomFor(element) !== room) awaitChart(element, specification);
  }
});

// Charts are drawn shortly before they are seen: a page may have hundreds in parts that are closed.
const unseen = new Map();
const seen = new IntersectionObserver(async (entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    drawUnseen(entry.target);
    // A chart takes 15 ms: the browser shows it, and hears the reader, before the next one.
    await new Promise((done) => setTimeout(done));
  }
}, { rootMargin: "300px", scrollMargin: "300px" });

function drawUnseen(element) {
  seen.unobserve(element);
  const specification = unseen.get(element);
  unseen.delete(element);
  if (specification && element.isConnected) drawChart(element, specification);
}

function awaitChart(element, specification) {
  unseen.set(element, specification);
  element.style.minHeight = `${specification.height + 40}px`;
  // Where it is observed already, this tells again whether it is seen.
  seen.unobserve(element);
  seen.observe(element);
}

// The charts in a part of the page that is new, which take their place at once.
function awaitCharts(part) {
  for (const element of part.querySelectorAll(".chart")) awaitChart(element, JSON.parse(element.dataset.chart));
}

// What is in a closed part is not printed, and has no room to fit into.
window.addEventListener("beforeprint", () => [...unseen.keys()].filter((element) => element.checkVisibility()).forEach(drawUnseen));
awaitCharts(document);
