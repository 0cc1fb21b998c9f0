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

async function drawChart(element, specification) {
  const { compile, expressionInterpreter, parse, View } = libraries;
  const view = new View(parse(compile(specification).spec, {}, { ast: true }), { expr: expressionInterpreter, loader: LOADER, renderer: "svg" });
  const drawn = document.createElement("div");
  await view.initialize(drawn).runAsync();
  // It stays as it is: nothing is listened for.
  view.finalize();
  const picture = drawn.querySelector("svg");
  for (const attribute of DESCRIBED) picture.setAttribute(attribute, drawn.getAttribute(attribute));
  // A group of marks has no name, and nothing to say.
  for (const group of picture.querySelectorAll("g[aria-roledescription$=container]")) undescribe(group);
  for (const mark of picture.querySelectorAll("path[aria-label]")) nameMark(mark, mark.__data__.href);
  element.replaceChildren(picture);
  for (const one of [element, picture]) one.removeAttribute("style");
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

// The charts in a part of the page that is new, which take their place at once.
function awaitCharts(part) {
  for (const element of part.querySelectorAll(".chart")) {
    const specification = JSON.parse(element.dataset.chart);
    unseen.set(element, specification);
    element.style.minHeight = `${specification.height + 40}px`;
    seen.observe(element);
  }
}

window.addEventListener("beforeprint", () => [...unseen.keys()].forEach(drawUnseen));
awaitCharts(document);
