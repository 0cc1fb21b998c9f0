"""Evaluations: the scores of the traced samples of a run, with why and by which judge."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid5

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.gates import gate_name_faults, step_meant
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.sendings import Sending
from claimflow.flows.store.store import Store
from claimflow.stages.rows import canonical, content_key

_NAMESPACE: Final = UUID("b8a2f3c4-6f52-5d0e-9a53-3f6c1d2e7a90")

_SAMPLES_AT_ONCE: Final = 1_000
"""Samples whose scores are read together; the store is closed while they are sent."""

_CLAIMS: Final = 3
_CLAIM: Final = 200
_LONGEST: Final = 1_000
"""Not entailed claims in an explanation, and letters of one of them and of the whole."""


_OF_JUDGES: Final = ("llm", "model")
"""The tools of a stage that judge, by their names in `audit.artifacts`."""


class Judging(NamedTuple):
    """How the scores of a step were made: models and hashes of prompts, sorted.

    `models` are language models that judge behind endpoints, `local` models that judge on this
    machine, and `others` those that split texts or compare them. One on this machine is NAME@HASH,
    with a hash of all that could change its replies.
    """

    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def provenance(self) -> dict[str, list[str]]:
        """What there is of it by the names that targets get."""
        known = {
            "judge_models": [*self.models, *self.local],
            "other_models": [*self.others],
            "prompt_hashes": [*self.prompts],
        }
        return {name: values for name, values in known.items() if values}


class Evaluation(NamedTuple):
    """A score of a traced sample, or why there is none.

    `evaluation_id` is the same however often it is sent to the same target. `label` is the verdict
    of a rubric with one check, or undefined; `failure` is the kind of a failure.
    """

    evaluation_id: str
    run_id: str
    pipeline: str
    sample_id: str
    name: str
    score: float | None
    label: str | None
    explanation: str | None
    failure: str | None
    trace_id: str
    span_id: str | None
    at: datetime
    judging: Judging
    version: str

    @property
    def provenance(self) -> dict[str, str | list[str]]:
        """Where the score comes from, for attributes and metadata."""
        return {
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "sample_id": clipped(self.sample_id, _CLAIM),
            "version": self.version,
            **self.judging.provenance,
        }


class _Run(NamedTuple):
    pipeline: str
    status: str
    at: datetime
    version: str


class _Step(NamedTuple):
    """A step with scores: the tables that its scores were made from, by step, and how."""

    name: str
    tables: tuple[str, ...]
    judging: Judging


class RunEvaluations:
    """The evaluations of a run for one target.

    `samples`, `untraced` and `names` count what was read so far: samples, those of them without a
    trace id, and the evaluations by metric. Raises `InputError` for a run that is in progress,
    and for metrics that it does not have.
    """

    def __init__(self, store: Store, sending: Sending) -> None:
        self.samples = self.untraced = 0
        self._store = store
        self._sending = sending
        with store.reading() as connection:
            self._run = _head(connection, sending.run_id)
            if self._run.status == "running":
                what = f"run {sending.run_id} is in progress"
                raise InputError([Fault("send", what, "send it when it has ended")])
            self._steps = _scoring_steps(connection, sending.run_id)
            made = connection.execute(
                "SELECT DISTINCT metric, step FROM scores WHERE run_id = $run ORDER BY ALL",
                {"run": sending.run_id},
            ).fetchall()
        makers: dict[str, list[str]] = {}
        for metric, step in made:
            makers.setdefault(metric, []).append(step)
        self._names = _names(makers, sending.metrics)

    def batches(self) -> Iterator[list[Evaluation]]:
        """The evaluations of some samples at a time, in the order of sample ids."""
        after = None
        while True:
            with self._store.reading() as connection:
                samples = read_table(
                    connection, _TRACED, run=self._sending.run_id, after=after, n=_SAMPLES_AT_ONCE
                )
                traced = samples.filter(pl.col("trace_id") != "")
                found = self._read(connection, traced) if traced.height else []
            if samples.is_empty():
                return
            after = samples["sample_id"][-1]
            self.samples += samples.height
            self.untraced += samples.height - traced.height
            yield found

    def _read(
        self, connection: duckdb.DuckDBPyConnection, traced: pl.DataFrame
    ) -> list[Evaluation]:
        wanted = {"run": self._sending.run_id, "samples": traced["sample_id"].to_list()}
        judged: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in read_table(connection, _JUDGED, **wanted).iter_rows(named=True):
            judged.setdefault((row["sample_id"], row["step"]), []).append(row)
        ids = {name: (trace, span) for name, trace, span in traced.iter_rows()}
        return [
            self._evaluation(row, *ids[row["sample_id"]], judged)
            for row in read_table(connection, _SCORES, **wanted).iter_rows(named=True)
            if (row["step"], row["metric"]) in self._names
        ]

    def _evaluation(
        self,
        row: Mapping[str, Any],
        trace_id: str,
        span_id: str,
        judged: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    ) -> Evaluation:
        step, sample, metric = row["step"], row["sample_id"], row["metric"]
        made = self._steps[step]
        rows = [one for table in made.tables for one in judged.get((sample, table), ())]
        scored = row["status"] == "scored"
        failures = sorted(one["failure"] for one in rows if one["failure"])
        why = _counts(rows) if scored else row["reason"]
        key = [self._sending.run_id, sample, step, metric, self._sending.target]
        return Evaluation(
            evaluation_id=str(uuid5(_NAMESPACE, canonical(key).decode("utf-8", "replace"))),
            run_id=self._sending.run_id,
            pipeline=self._run.pipeline,
            sample_id=sample,
            name=self._names[step, metric],
            score=row["score"] if scored else None,
            label=_label(rows) if scored else "undefined" if row["status"] == "undefined" else None,
            explanation=clipped(why, _LONGEST) if why else None,
            failure=(failures or ["failed"])[0] if row["status"] == "failed" else None,
            trace_id=trace_id,
            span_id=span_id or None,
            at=self._run.at,
            judging=made.judging,
            version=self._run.version,
        )


def run_judging(store: Store, run_id: str) -> Judging:
    """All models and prompts that the scores of a run depend on."""
    with store.reading() as connection:
        steps = _scoring_steps(connection, run_id).values()
    return _together(step.judging for step in steps)


def _together(judgings: Iterable[Judging]) -> Judging:
    """All that several of them have, each once."""
    each = zip(Judging(), *judgings, strict=True)
    return Judging(*(tuple(sorted({name for names in part for name in names})) for part in each))


def clipped(text: str, longest: int) -> str:
    """The text, cut off with an ellipsis where it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _head(connection: duckdb.DuckDBPyConnection, run_id: str) -> _Run:
    (found,) = connection.execute(
        "SELECT pipeline, status, coalesce(ended_at, started_at), made_by "
        "FROM audit.runs WHERE run_id = $run",
        {"run": run_id},
    ).fetchall()
    return _Run(*found)


def _names(
    makers: Mapping[str, Sequence[str]], wanted: Sequence[str]
) -> dict[tuple[str, str], str]:
    """The names of the metrics to send, by step and metric, after their step where several make it.

    Raises `InputError` for wanted metrics that the run lacks, or that several steps make.
    """
    faults = [Fault("--metrics", what, hint) for _, what, hint in gate_name_faults(wanted, makers)]
    if faults:
        raise InputError(faults)
    return {
        (step, metric): metric if len(steps) == 1 else f"{step}.{metric}"
        for metric, steps in makers.items()
        for step in steps
        if not wanted
        or f"{step}.{metric}" in wanted
        or (metric in wanted and step == step_meant(metric, steps))
    }


def _scoring_steps(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, _Step]:
    """The steps of a run that made scores, with what these were made from, all the way up."""
    rows = connection.execute(
        "SELECT artifact_id::VARCHAR, kind, settings, tools, inputs FROM audit.artifacts"
    ).fetchall()
    made = {artifact: rest for artifact, *rest in rows}
    steps = connection.execute(
        "SELECT artifact_id::VARCHAR, step FROM audit.run_steps WHERE run_id = $run",
        {"run": run_id},
    ).fetchall()
    step_of = dict(steps)
    found = {}
    for artifact, step in steps:
        if made[artifact][0] != "scores":
            continue
        above = _above(artifact, made)
        tables = sorted(
            step_of[one]
            for one in above
            if one in step_of and made[one][0] in ("verdicts", "rubric_verdicts")
        )
        judging = _together(_judging(*made[one][1:3]) for one in above)
        found[step] = _Step(step, tuple(tables), judging)
    return found


def _above(artifact: str, made: Mapping[str, Sequence[str]]) -> set[str]:
    """A table and all tables that it was made from."""
    found, open_ = set[str](), [artifact]
    while open_:
        one = open_.pop()
        if one in made and one not in found:
            found.add(one)
            for given in json.loads(made[one][3]).values():
                open_ += given.values() if isinstance(given, dict) else [given]
    return found


def _judging(settings: str, tools: str) -> Judging:
    """How a table was made, by the settings of its stage and the identities of its tools."""
    prompt = json.loads(settings).get("prompt")
    models, local, others = list[str](), list[str](), list[str]()
    for tool, identity in json.loads(tools).items():
        behind = [*_endpoints(identity)]
        name = identity.get("name", "embedded judge" if tool == "model" else f"embedded {tool}")
        here = f"{clipped(name, _CLAIM)}@{content_key('model', identity)}"
        if tool not in _OF_JUDGES:
            others += behind or [here]
        elif behind:
            models += behind
        else:
            local.append(here)
    prompts = [content_key("prompt", prompt)] if prompt else []
    return Judging(*map(tuple, (models, prompts, local, others)))


def _endpoints(identity: Any) -> Iterator[str]:
    """The names of the models that a tool asks behind endpoints: of one, or of a panel."""
    if isinstance(identity, dict):
        if isinstance(identity.get("model"), str):
            yield clipped(identity["model"], _CLAIM)
        identity = list(identity.values())
    if isinstance(identity, list):
        for part in identity:
            yield from _endpoints(part)


def _label(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The verdict of a rubric that has one check, such as pass or fail; of others there is none."""
    if len(rows) == 1 and rows[0]["is_check"]:
        verdict: str | None = rows[0]["verdict"]
        return verdict
    return None


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many verdicts there are of each kind, and the first ones that are not entailed."""
    if not rows:
        return ""
    counted = Counter(row["verdict"] or row["status"] for row in rows)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    what = "check" if rows[0]["is_check"] else "verdict"
    text = f"{len(rows)} {what}{'' if len(rows) == 1 else 's'}: {kinds}"
    low = [row for row in rows if row["is_low"] and row["text"]]
    order = {"contradicted": 0, "neutral": 1}
    low.sort(key=lambda row: (order.get(row["verdict"], 2), row["start"] or 0, row["text"]))
    shown = [f"{row['verdict']}: {clipped(row['text'], _CLAIM)}" for row in low[:_CLAIMS]]
    return "; ".join([text, *shown])


_TRACED: Final = """
SELECT sample_id, trim(coalesce(metadata ->> '$.trace_id', '')) AS trace_id,
       trim(coalesce(metadata ->> '$.span_id', '')) AS span_id
FROM samples WHERE run_id = $run AND ($after::VARCHAR IS NULL OR sample_id > $after)
ORDER BY sample_id LIMIT $n
"""

_SCORES: Final = """
SELECT step, sample_id, metric, score, status, reason FROM scores
WHERE run_id = $run AND sample_id IN (SELECT unnest($samples)) ORDER BY sample_id, step, metric
"""

_JUDGED: Final = """
WITH made AS (
  SELECT DISTINCT ON (claim_id) claim_id, sample_id, claim, start FROM claims
  WHERE run_id = $run AND sample_id IN (SELECT unnest($samples)) ORDER BY claim_id, step
)
SELECT sample_id, step, verdict, status, failure, claim AS text, start, false AS is_check,
       -- Of several passages each alone need not entail a claim.
       passage IS NULL AND verdict IN ('contradicted', 'neutral') AS is_low
FROM verdicts JOIN made USING (claim_id) WHERE run_id = $run
UNION ALL
SELECT sample_id, step, verdict, status, failure,
       coalesce(nullif(check_name, 'criterion') || ': ', '') || criterion, NULL, true, score < 1
FROM rubric_verdicts WHERE run_id = $run AND sample_id IN (SELECT unnest($samples))
"""
"""Verdicts on claims and checks of rubrics, with what they are about."""
