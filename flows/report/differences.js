// ---- what differs between two runs -------------------------------------------------------------

// Words and lines compared at most, and differences found at most: this bounds time and memory.
const MAX_COMPARED = 40000;
const MAX_DIFFERENCES = 1000;

// Words, blanks and single signs; each letter of a script without blanks is a word.
const WORDS = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}]|[\p{L}\p{M}\p{N}_]+|\s+|./gsu;
const LINES = /[^\n]*\n|[^\n]+/gu;

// The fewest removals from `one` and additions of `other` that make them equal, as sets of places (the
// algorithm of Myers); null if they are too many.
function edits(one, other) {
  let begin = 0;
  while (begin < one.length && begin < other.length && one[begin] === other[begin]) begin += 1;
  let [n, m] = [one.length, other.length];
  while (n > begin && m > begin && one[n - 1] === other[m - 1]) { n -= 1; m -= 1; }
  const removed = new Set();
  const added = new Set();
  const middle = MAX_DIFFERENCES + 1;
  const ends = new Int32Array(2 * middle + 1);
  const trace = [];
  const down = (at, k, d) => k === -d || (k !== d && at(k - 1) < at(k + 1));
  [n, m] = [n - begin, m - begin];
  for (let d = 0; d <= MAX_DIFFERENCES; d += 1) {
    trace.push(ends.slice(middle - d - 1, middle + d + 2));
    for (let k = -d; k <= d; k += 2) {
      let x = down((place) => ends[middle + place], k, d) ? ends[middle + k + 1] : ends[middle + k - 1] + 1;
      while (x < n && x - k < m && one[begin + x] === other[begin + x - k]) x += 1;
      ends[middle + k] = x;
      if (x < n || x - k < m) continue;
      let at = n - m;
      for (let left = d; left > 0; left -= 1) {
        const was = (place) => trace[left][place + left + 1];
        const from = down(was, at, left) ? at + 1 : at - 1;
        if (from > at) added.add(begin + was(from) - from); else removed.add(begin + was(from));
        at = from;
      }
      return { removed, added };
    }
  }
  return null;
}

// The changed tokens as ranges of code points; a blank between two of them is in the range.
function ranges(tokens, changed, kind) {
  const found = [];
  let [start, blank] = [0, null];
  tokens.forEach((token, number) => {
    const end = start + Array.from(token).length;
    const last = found.at(-1);
    if (!changed.has(number)) blank = last && last.end === start && /^[^\S\n]+$/.test(token) ? last : null;
    else if (blank || (last && last.end === start)) { (blank || last).end = end; blank = null; }
    else found.push({ start, end, kind });
    start = end;
  });
  return found;
}

// The marks of what was removed from text `a` and added in text `b`, and by which unit; none where they
// are too long or too different.
function textDifferences(a, b) {
  for (const [unit, pattern] of [["word", WORDS], ["line", LINES]]) {
    const [one, other] = [a.match(pattern) || [], b.match(pattern) || []];
    if (one.length + other.length > MAX_COMPARED || (unit === "line" && one.length === 1 && other.length === 1)) continue;
    const found = edits(one, other);
    if (found) return { unit, removed: ranges(one, found.removed, "removed"), added: ranges(other, found.added, "added") };
  }
  return { unit: "none", removed: [], added: [] };
}

// As `textDifferences`, remembered while the sample is open; nothing for equal texts and where one is missing.
function differencesOf(a, b, view) {
  if (a === b || !a || !b) return { unit: null, removed: [], added: [] };
  const key = JSON.stringify([a, b]);
  if (!view.differences.has(key)) view.differences.set(key, textDifferences(a, b));
  return view.differences.get(key);
}

// What the marks mean, above both texts.
function note({ unit }) {
  const told = { word: "− only in A, + only in B", line: "− lines only in A, + lines only in B: too many words differ to be marked",
    none: "The texts are too long or too different for their differences to be marked." };
  return unit ? node("p", { class: "note" }, told[unit]) : null;
}

// What became of each context, and which contexts of the first run are gone. One that is in neither list
// elsewhere has changed from the one at the same place.
function pairedContexts(earlier, now) {
  const [known, kept] = [new Map(earlier.map((text, number) => [text, number])), new Set(now)];
  const pairs = now.map((text, number) => {
    if (earlier[number] === text) return { told: null, changed: false };
    if (known.has(text)) return { told: `[${known.get(text)}] in A`, changed: false };
    const changed = number < earlier.length && !kept.has(earlier[number]);
    return { told: changed ? "changed" : "only in B", changed };
  });
  const gone = earlier.map((_, number) => number).filter((number) => !kept.has(earlier[number]) && !(pairs[number] || { changed: false }).changed);
  return { pairs, gone };
}

// ---- claims of both runs -----------------------------------------------------------------------

const told = (verdict, reason) => node("div", { dir: "auto" }, SIGNS[verdict] ? verdictLabel(verdict) : verdict || "-", reason ? `: ${reason}` : "");

// A line for each change of a claim, flips first, then the claims of one run only.
function changedClaims(sample, view) {
  const { changes, before } = sample;
  const find = (of, text) => (of ? of.claims.find((claim) => claim.claim === text && text !== null) : null);
  const opener = (claim, text) => (claim ? node("button", { type: "button", class: "aligned", click: () => view.choose(claim) }, node("bdi", {}, text)) : text);
  const line = (one) => {
    if (one.change !== "claim text changed") {
      return [one.change, opener(find(sample, one.claim) || find(before, one.claim), one.claim), told(one.a, one.reason_a), told(one.b, one.reason_b), one.step, one.cause];
    }
    const [only, of] = one.b === null ? ["only in A", before] : ["only in B", sample];
    const claim = find(of, one.claim);
    const verdict = claim ? told(judged(claim)) : told(null);
    return [only, opener(claim, one.claim), of === before ? verdict : told(null), of === before ? told(null) : verdict, one.step, one.cause];
  };
  const place = (one) => (one.change !== "claim text changed" ? 0 : one.b === null ? 1 : 2);
  return [...changes.claims].sort((a, b) => place(a) - place(b)).slice(0, MOST_CLAIMS).map(line);
}

// The claims of both runs that have not changed, with their verdict in each.
function keptClaims(sample) {
  const { changes, before } = sample;
  const changed = new Set(changes.claims.map((one) => one.claim));
  const earlier = new Map((before ? before.claims : []).map((claim) => [`${claim.of} ${claim.claim}`, claim]));
  return sample.claims.filter((claim) => claim.claim !== null && !changed.has(claim.claim) && earlier.has(`${claim.of} ${claim.claim}`))
    .map((claim) => [claim.claim, told(judged(earlier.get(`${claim.of} ${claim.claim}`))), told(judged(claim))]);
}

function changesPanel(sample, view) {
  const { changes } = sample;
  if (!changes) return byId("packed").dataset.against ? node("p", {}, "The same in both runs.") : null;
  const claims = changedClaims(sample, view);
  const kept = keptClaims(sample);
  const scores = changes.scores.map((one) => [one.name, one.score_a === null ? one.status_a : digits(one.score_a), one.score_b === null ? one.status_b : digits(one.score_b), one.difference === null ? "-" : signed(one.difference)]);
  const fields = changes.fields.length ? ` (${changes.fields.join(", ")})` : "";
  return node("section", { "aria-label": "What changed" }, node("h4", {}, "What changed from A to B"),
    changes.state === "same" ? null : node("p", {}, `The sample is ${changes.state}${fields}.`),
    claims.length ? table("Claims that changed", ["change", "claim", "A", "B", "step", "cause"], claims) : null,
    changes.claims.length > claims.length ? node("p", {}, `The first ${claims.length} of ${changes.claims.length.toLocaleString("en")}, flips first.`) : null,
    kept.length ? fold(view, "kept claims", {}, `Claims that are the same in both runs: ${kept.length.toLocaleString("en")}${kept.length > MOST_CLAIMS ? `, the first ${MOST_CLAIMS} here` : ""}`,
      table("Claims that are the same", ["claim", "A", "B"], kept.slice(0, MOST_CLAIMS))) : null,
    scores.length ? table("Scores that changed", ["metric", "A", "B", "B - A"], scores) : null);
}
