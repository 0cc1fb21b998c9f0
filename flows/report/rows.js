// ---- the rows of the list ----------------------------------------------------------------------

async function unpacked() {
  const bytes = Uint8Array.from(atob(byId("packed").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const packed = JSON.parse(await new Response(stream).text());
  return byId("packed").dataset.run ? packed : restored(packed);
}

// Restores what the packed samples leave out: repeated system messages, and what is the same in both runs.
function restored(samples) {
  const systems = [];
  for (const sample of samples) {
    for (const call of [...sample.calls, ...(sample.before ? sample.before.calls : [])]) {
      if (typeof call.system === "string") systems.push(call.system);
      else if (call.system !== null) call.system = systems[call.system];
    }
    if (sample.before) {
      sample.before = { ...sample, ...sample.before, before: null, calls: [...sample.before.calls, ...sample.calls] };
    }
  }
  return samples;
}

function counts(sample) {
  const found = { entailed: 0, contradicted: 0, neutral: 0, failed: 0 };
  for (const claim of sample.claims) {
    if (claim.status === "failed") found.failed += 1;
    for (const verdict of claim.verdicts.filter(isOfAll)) found[verdictOf(verdict)] += 1;
  }
  return found;
}

// A row of the list from a sample in the page.
function rowOf(sample) {
  const texts = [sample.sample_id, ...Object.values(sample.metadata).map((one) => (typeof one === "string" ? one : JSON.stringify(one))), sample.user_input, sample.response, sample.reference, ...(sample.retrieved_contexts || []), ...sample.claims.map((claim) => claim.claim)];
  const failures = [...sample.claims, ...sample.claims.flatMap((claim) => claim.verdicts), ...sample.checks].map((one) => one.failure);
  const answer = sample.response || "";
  return { id: sample.sample_id, asked: sample.user_input || answer, answer, mean: sample.mean, metadata: sample.metadata,
    counts: counts(sample), text: texts.filter(Boolean).join("\n").toLowerCase(),
    scores: new Map(sample.scores.map((one) => [scoreName(one, sample.scores), one])),
    failures: new Set(failures.filter(Boolean)), ...changesOf(sample.changes, answer, sample.before ? sample.before.response || "" : null), load: async () => sample };
}

// What the list needs of the changes of a sample. `earlier` is its answer in the first run, null where that
// lacks the sample; `before` is what it was if it has changed.
function changesOf(changes, answer, before) {
  const { claims, scores } = changes || { claims: [], scores: [] };
  const both = !changes || changes.state !== "new";
  return { both, earlier: before ?? (both ? answer : null), differs: Boolean(changes), flipped: claims.some((one) => one.change === "verdict flipped"), changed: claims.length,
    causes: new Set(claims.map((one) => one.cause)), moved: new Map(scores.map((one) => [one.name, one.difference])) };
}

// A row of the list in `claimflow view`, whose server has the sample itself.
function rowFrom(listed) {
  let loading = null;
  const load = async () => {
    loading = loading || fromServer("sample", { id: listed.id, against: byId("packed").dataset.against });
    try { return restored([structuredClone(await loading)])[0]; } catch (error) { loading = null; throw error; }
  };
  return { ...listed, text: null, scores: new Map(listed.scores.map(([name, status, score]) => [name, { status, score }])),
    failures: new Set(listed.failures), ...changesOf(listed.changes, listed.answer, listed.earlier ?? null), load };
}

async function fromServer(what, parameters) {
  const reply = await fetch(`/run/${encodeURIComponent(byId("packed").dataset.run)}/${what}?${new URLSearchParams(parameters)}`);
  if (!reply.ok) throw new Error(`the server answers ${reply.status} ${reply.statusText}`);
  return reply.json();
}
