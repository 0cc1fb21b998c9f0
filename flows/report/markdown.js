// ---- Markdown as elements ----------------------------------------------------------------------

// Each rendered text knows its place in the source, so that the marks of claims and evidence apply. HTML,
// links and images are not read: they stay text as they are written.

const MAX_NESTED = 6;
// Longer lines begin no block but code, and longer paragraphs have no bold or code in them.
const MAX_LINE = 2000;
const MAX_INLINE = 20000;

const FENCE = /^[ \t]*(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(?=\S)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]{0,40})([-*+]|(\d{1,9})[.)])[ \t]+(?=\S)/;

function linesOf(points) {
  const lines = [];
  let start = 0;
  for (let at = 0; at <= points.length; at += 1) {
    if (at < points.length && points[at] !== "\n") continue;
    lines.push({ start, end: at });
    start = at + 1;
  }
  return lines;
}

// The cells of a line of a table, without the blanks around them; null for a line that is none.
function cellsOf(points, { start, end }) {
  if (end - start > MAX_LINE) return null;
  const bars = [];
  for (let at = start; at < end; at += 1) if (points[at] === "|" && points[at - 1] !== "\\") bars.push(at);
  if (!bars.length) return null;
  const cells = [start - 1, ...bars].map((bar, number) => {
    let [from, to] = [bar + 1, bars[number] ?? end];
    while (from < to && /\s/.test(points[from])) from += 1;
    while (from < to && /\s/.test(points[to - 1])) to -= 1;
    return { start: from, end: to };
  });
  // A bar may begin and end the line.
  if (cells[0].start === cells[0].end) cells.shift();
  if (cells.length && cells.at(-1).start === cells.at(-1).end) cells.pop();
  return cells;
}

// The blocks of these lines: `lines` of text, `items` of a list, `rows` of a table, or `blocks` in a quotation.
function blocksOf(points, lines, depth = 0) {
  const blocks = [];
  const textOf = ({ start, end }) => (end - start > MAX_LINE ? "" : points.slice(start, end).join(""));
  const headOf = ({ start, end }) => points.slice(start, Math.min(end, start + 60)).join("");
  const isDelimiter = (line) => {
    const cells = line && /^[\s|:-]+$/.test(textOf(line)) ? cellsOf(points, line) : null;
    return Boolean(cells && cells.length && cells.every((cell) => /^:?-+:?$/.test(textOf(cell))));
  };
  const isTable = (at) => isDelimiter(lines[at + 1]) && cellsOf(points, lines[at]) !== null;
  const begins = (at) => [FENCE, HEADING, QUOTE, ITEM].some((one) => one.test(headOf(lines[at]))) || RULE.test(textOf(lines[at])) || isTable(at);
  const isBlank = (line) => line.end - line.start < 200 && !textOf(line).trim();
  const isLong = (line) => line.end - line.start > MAX_LINE;
  let at = 0;
  // Takes lines until the block ends.
  const take = (wanted) => {
    const first = at;
    while (at < lines.length && wanted(lines[at])) at += 1;
    return lines.slice(first, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const [head, text] = [headOf(line), textOf(line)];
    if (isBlank(line)) { at += 1; continue; }
    const fence = FENCE.exec(head);
    if (fence) {
      at += 1;
      const inner = take((one) => !(FENCE.exec(headOf(one)) || ["", ""])[1].startsWith(fence[1]));
      at += 1;
      blocks.push({ kind: "code", lines: inner });
    } else if (!isLong(line) && HEADING.test(head)) {
      const [prefix, { length }] = HEADING.exec(head);
      blocks.push({ kind: "heading", top: length < 3, lines: [{ start: line.start + prefix.length, end: line.end }] });
      at += 1;
    } else if (text && RULE.test(text)) {
      blocks.push({ kind: "rule", lines: [line] });
      at += 1;
    } else if (isTable(at)) {
      const header = cellsOf(points, line);
      at += 2;
      const rows = take((one) => !isBlank(one) && cellsOf(points, one) !== null).map((one) => cellsOf(points, one));
      blocks.push({ kind: "table", header, rows });
    } else if (QUOTE.test(head) && depth < MAX_NESTED) {
      const inner = take((one) => QUOTE.test(headOf(one))).map((one) => ({ start: one.start + QUOTE.exec(headOf(one))[0].length, end: one.end }));
      blocks.push({ kind: "quote", blocks: blocksOf(points, inner, depth + 1) });
    } else if (ITEM.test(head)) {
      blocks.push({ kind: "list", items: takeItems() });
    } else {
      const first = at;
      at += 1;
      while (at < lines.length && !isBlank(lines[at]) && !begins(at)) at += 1;
      blocks.push({ kind: "text", lines: lines.slice(first, at) });
    }
  }
  // The items of a list with their indentations; a line behind an item goes on with it.
  function takeItems() {
    const items = [];
    while (at < lines.length) {
      const found = ITEM.exec(headOf(lines[at]));
      if (found) {
        const [all, indent, , number] = found;
        items.push({ indent: indent.replaceAll("\t", "    ").length, number: number === undefined ? null : Number(number),
          lines: [{ start: lines[at].start + all.length, end: lines[at].end }] });
        at += 1;
      } else if (isBlank(lines[at])) {
        let next = at;
        while (next < lines.length && isBlank(lines[next])) next += 1;
        if (next === lines.length || !ITEM.test(headOf(lines[next]))) break;
        at = next;
      } else if (begins(at)) {
        break;
      } else {
        const [{ length }] = /^[ \t]{0,40}/.exec(headOf(lines[at]));
        items.at(-1).lines.push({ start: lines[at].start + length, end: lines[at].end });
        at += 1;
      }
    }
    return items;
  }
  return blocks;
}

const EMPHASIS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const isLetter = (point) => point !== undefined && /[\p{L}\p{N}]/u.test(point);
const isSpace = (point) => point === undefined || /\s/.test(point);

// The text of lines as tokens: a `place` in the source each (-1 for a line break), `open` and `close` of an
// element. Signs of Markdown that are a pair are left out; others are text.
function inlineTokens(points, lines) {
  const places = lines.flatMap(({ start, end }, number) => [...(number ? [-1] : []), ...Array.from({ length: end - start }, (_, at) => start + at)]);
  const at = (number) => (number in places ? (places[number] < 0 ? "\n" : points[places[number]]) : undefined);
  const tokens = [];
  const open = [];
  const without = new Set();
  const literal = (from, to) => { for (let number = from; number < to; number += 1) tokens.push({ place: places[number] }); };
  for (let number = 0; number < places.length;) {
    const sign = at(number);
    let length = 1;
    while (at(number + length) === sign) length += 1;
    if (sign === "\\" && length === 1 && /[!-/:-@[-`{-~]/.test(at(number + 1) || "")) {
      literal(number + 1, number + 2);
      number += 2;
    } else if (sign === "`") {
      let close = without.has(length) ? places.length : number + length;
      for (let run = 0; close < places.length; close += Math.max(run, 1)) {
        for (run = 0; at(close + run) === "`";) run += 1;
        if (run === length) break;
      }
      if (close >= places.length) { without.add(length); literal(number, number + length); number += length; continue; }
      tokens.push({ open: "code" });
      literal(number + length, close);
      tokens.push({ close: "code" });
      number = close + length;
    } else if ("*_~".includes(sign) && length <= 3) {
      const [before, after] = [at(number - 1), at(number + length)];
      // Within a word only ** is emphasis: 2*3*4 and snake_case are none.
      const signs = { 1: [sign], 2: [sign + sign], 3: [sign + sign, sign] }[length];
      const within = (one) => one !== "**" && isLetter(before) && isLetter(after);
      const closing = [...open].reverse().filter((one) => signs.includes(one.sign)).map((one) => one.sign);
      const order = closing.length === signs.length ? closing : signs;
      let done = number;
      for (const one of order) {
        const known = EMPHASIS[one] && !within(one);
        const place = open.findLastIndex((other) => other.sign === one);
        const from = done;
        done += one.length;
        const token = { signs: places.slice(from, done) };
        if (known && place >= 0 && !isSpace(before)) {
          open[place].token.open = EMPHASIS[one];
          open.length = place;
          token.close = EMPHASIS[one];
        } else if (known && !isSpace(after) && open.length < MAX_NESTED) {
          open.push({ sign: one, token });
        }
        tokens.push(token);
      }
      number += length;
    } else {
      literal(number, number + length);
      number += length;
    }
  }
  return tokens.flatMap((token) => (token.open || token.close || !token.signs ? [token] : token.signs.map((place) => ({ place }))));
}

// The elements of lines of text; `shown(from, to)` is a stretch of the source with its marks.
function inlineNodes(points, lines, shown) {
  const size = lines.reduce((sum, { start, end }) => sum + end - start, 0);
  if (size > MAX_INLINE) return lines.flatMap(({ start, end }, number) => [number ? "\n" : null, shown(start, end)]);
  const stack = [{ name: null, children: [] }];
  let run = null;
  const flush = () => { if (run) stack.at(-1).children.push(shown(...run)); run = null; };
  for (const token of inlineTokens(points, lines)) {
    if (token.place !== undefined && run && token.place === run[1]) { run[1] += 1; continue; }
    flush();
    if (token.open) stack.push({ name: token.open, children: [] });
    else if (token.close) { const { name, children } = stack.pop(); stack.at(-1).children.push(node(name, {}, children)); }
    else if (token.place < 0) stack.at(-1).children.push("\n");
    else run = [token.place, token.place + 1];
  }
  flush();
  return stack[0].children;
}

// Items as nested lists.
function listNodes(items, content, depth = 0) {
  const lists = [];
  for (let at = 0; at < items.length;) {
    const first = items[at];
    const name = first.number === null ? "ul" : "ol";
    const made = [];
    while (at < items.length && (items[at].number === null) === (first.number === null) && (!made.length || items[at].indent <= first.indent + 1)) {
      let next = at + 1;
      while (next < items.length && items[next].indent > items[at].indent + 1 && depth < MAX_NESTED) next += 1;
      const inner = content(items[at].lines);
      const nested = listNodes(items.slice(at + 1, next), content, depth + 1);
      if (inner.length || nested.length) made.push(node("li", {}, inner, nested));
      at = next;
    }
    if (made.length) lists.push(node(name, { start: name === "ol" ? String(first.number) : null }, made));
  }
  return lists;
}

// The elements of the source from `begin` to `end`; `shown` gives a stretch of it with its marks.
function renderedMarkdown(points, begin, end, shown) {
  const content = (lines) => {
    const inside = lines.map((line) => ({ start: Math.max(line.start, begin), end: Math.min(line.end, end) })).filter((line) => line.start < line.end);
    return inside.length ? inlineNodes(points, inside, shown) : [];
  };
  const row = (cells, name) => {
    const made = cells.map((cell) => content([cell]));
    return made.some((cell) => cell.length) ? node("tr", {}, made.map((cell) => node(cell.length ? name : "td", { scope: name === "th" && cell.length ? "col" : null }, cell))) : null;
  };
  const plain = (lines) => lines.filter((line) => line.start < end && line.end > begin)
    .map((line) => [shown(Math.max(line.start, begin), Math.min(line.end, end)), "\n"]);
  const filled = (name, attributes, children) => (children.flat(Infinity).filter(Boolean).length ? node(name, attributes, children) : null);
  const makers = {
    text: (block) => filled("p", {}, content(block.lines)),
    heading: (block) => filled("h5", { class: block.top ? "top" : null }, content(block.lines)),
    rule: (block) => (block.lines[0].start >= begin && block.lines[0].end <= end ? node("hr", {}) : null),
    code: (block) => filled("pre", {}, plain(block.lines)),
    table: (block) => filled("table", {}, [filled("thead", {}, [row(block.header, "th")]), filled("tbody", {}, block.rows.map((cells) => row(cells, "td")))]),
    quote: (block) => filled("blockquote", {}, nodes(block.blocks)),
    list: (block) => listNodes(block.items, content),
  };
  const nodes = (blocks) => blocks.map((block) => makers[block.kind](block));
  return nodes(blocksOf(points, linesOf(points)));
}

// Whether a text has a heading, a list of several items, a table, code, a quotation or bold words.
function looksLikeMarkdown(text) {
  if (/(\*\*|__)(?=\S)[^\n*_]{1,500}\1|(?<!`)`[^`\n]{1,200}`(?!`)/.test(text)) return true;
  const points = Array.from(text);
  return blocksOf(points, linesOf(points)).some((block) => (block.kind === "list" ? block.items.length > 1 : !["text", "rule"].includes(block.kind)));
}
