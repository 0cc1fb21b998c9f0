"""Canaries: labelled claims that every judge of a run is tested on."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.judge.estimate import Estimate, combine
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.shared_ledger import LedgerToRead, SharedLedger
from claimflow.flows.pipeline.gates import CanarySource
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.times import to_timedelta
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.estimate import StepCounter, estimate_models
from claimflow.flows.runner.make import run_stage
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.samples.canaries import Canary
from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.store import Store, now
from claimflow.stages.base import Stage
from claimflow.stages.rows import Claim, content_key
from claimflow.stages.tables import schema

_TYPES: Final = dict.fromkeys(("verdict", "reason", "call_id"), pl.String)

_LAST: Final = """
SELECT canary::VARCHAR, max(asked_at) FROM audit.canaries
WHERE pipeline = $pipeline AND judge = $judge::UUID AND status = 'judged' GROUP BY canary
"""

# The first unfinished run after a time: its replies are in the ledger, its canaries not recorded.
_LEFT_OFF: Final = """
SELECT started_at FROM audit.runs
WHERE pipeline = $pipeline AND started_at > $after AND status <> 'done'
ORDER BY started_at LIMIT 1
"""


def last_asked(store: Store, pipeline: str, judge: str) -> dict[str, datetime]:
    """The time when a judge last gave a verdict on each canary."""
    if not store.path.is_file():
        return {}
    with store.reading() as connection:
        if not has_table(connection, "canaries"):
            return {}
        found = connection.execute(_LAST, {"pipeline": pipeline, "judge": judge}).fetchall()
    return dict(found)


def canary_scores(connection: duckdb.DuckDBPyConnection, run_id: str, step: str) -> pl.DataFrame:
    """Agreement of each verdict with its label as a score: step, sample_id, status, score.

    For all steps if `step` is empty.
    """
    if not has_table(connection, "canaries"):
        return pl.DataFrame(schema=_SCORES)
    return read_table(
        connection,
        """
        SELECT step, canary::VARCHAR AS sample_id,
               CASE status WHEN 'judged' THEN 'scored' ELSE 'failed' END AS status,
               CASE WHEN status = 'judged' THEN (verdict = label)::DOUBLE END AS score
        FROM audit.canaries WHERE run_id = $run AND $step IN ('', step)
        """,
        run=run_id,
        step=step,
    )


_SCORES: Final = {
    "step": pl.String,
    "sample_id": pl.String,
    "status": pl.String,
    "score": pl.Float64,
}


PLACE = "canaries"
"""Prefix of a step name in the record of the calls made for its canaries."""


class CanaryJudge(NamedTuple):
    """A judge with its prompt and settings, identified by `key`, and the `steps` that use it.

    `step` is the step on whose behalf it is asked, `anew` the same under the name for repeated
    questions. `stage` verifies claims against the reference, which is the premise of a canary.
    """

    key: str
    steps: tuple[str, ...]
    step: Step
    anew: Step
    stage: Stage


def canary_judges(pipeline: Pipeline, toolbox: Toolbox, wanted: Iterable[str]) -> list[CanaryJudge]:
    """The distinct judges of the `wanted` steps that verify claims."""
    wanted = set(wanted)
    found: dict[str, CanaryJudge] = {}
    for step in pipeline.steps if pipeline.canaries else ():
        if step.name not in wanted or step.stage.canary_settings is None:
            continue
        stage = step.stage.model_copy(update=dict(step.stage.canary_settings))
        how = (stage.use, stage.version, stage.fingerprint_settings(), toolbox.identities(step))
        key = content_key("canary judge", *how)
        if key in found:
            found[key] = found[key]._replace(steps=(*found[key].steps, step.name))
            continue
        asked, anew = _named(step, ""), _named(step, ".anew")
        found[key] = CanaryJudge(key, (step.name,), asked, anew, stage)
    return list(found.values())


def due_canaries(
    canaries: Sequence[Canary],
    source: CanarySource,
    trial: CanaryJudge,
    asked_at: Mapping[str, datetime],
    now: datetime,
) -> list[Canary]:
    """The canaries that a judge is to be asked again, the longest ago first.

    `asked_at` says when it was last asked. The embedded model is deterministic and never asked
    again.
    """
    if not trial.step.judges or (source.fresh is None and source.every is None):
        return []
    old = [one for one in canaries if one.key in asked_at]
    if source.every is not None:
        old = [one for one in old if now - asked_at[one.key] >= to_timedelta(source.every)]
    return sorted(old, key=lambda one: asked_at[one.key])[: source.fresh]


def _named(step: Step, ending: str) -> Step:
    inputs: dict[str, Any] = dict(step.inputs)
    # A pipeline file cannot contain a step of this name.
    return Step(f"{PLACE}.{step.name}{ending}", step.stage, inputs, step.judges)


_SAMPLES: Final = {"sample_id": pl.String, "reference": pl.String}
_ANSWER: Final = ("verdict", "status", "reason", "call_id")


def judge_canaries(
    prepared: Prepared, store: Store, toolbox: Toolbox, run_id: str, wanted: Collection[str]
) -> None:
    """Ask the judges of the `wanted` steps for verdicts on the canaries, and record them.

    Raises the errors that asking a judge raises.
    """
    pipeline, canaries = prepared.pipeline, prepared.canaries
    for trial in canary_judges(pipeline, toolbox, wanted):
        asked = _questions(prepared, store, trial)
        verdicts = {
            **_verdicts(trial, asked.rest, toolbox.lend(trial.step)),
            **_verdicts(trial, asked.again, toolbox.lend_anew(trial.anew, since=asked.since)),
        }
        again, judged_at = set(asked.again), now()
        rows = [
            {
                "canary": one.key,
                "claim": one.claim,
                "label": one.label,
                **dict(zip(_ANSWER, verdicts[one.key], strict=True)),
                "anew": one in again,
                "asked_at": judged_at if one in again else asked.at.get(one.key, judged_at),
            }
            for one in canaries
        ]
        frame = pl.DataFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)
        where = {"run_id": run_id, "pipeline": pipeline.name, "judge": trial.key}
        with store.writing() as connection:
            for step in trial.steps:
                insert(connection, "audit.canaries", frame, **where, judged_at=judged_at, step=step)


class _Questions(NamedTuple):
    """The canaries that a judge is asked `again`, and the `rest`, whose replies are reused.

    `at` is when it was last asked each canary. Replies from `since` on, or of this run if None,
    count for those that are asked again: replies to a run that was killed while it asked its
    canaries are not paid for twice.
    """

    again: Sequence[Canary]
    rest: Sequence[Canary]
    at: Mapping[str, datetime]
    since: datetime | None


def _questions(prepared: Prepared, store: Store, trial: CanaryJudge) -> _Questions:
    pipeline, canaries = prepared.pipeline, prepared.canaries
    at = last_asked(store, pipeline.name, trial.key)
    again = due_canaries(canaries, pipeline.canaries, trial, at, now()) if pipeline.canaries else []
    chosen = set(again)
    since = None
    if again:
        left_off = {"pipeline": pipeline.name, "after": max(at[one.key] for one in again)}
        with store.reading() as connection:
            found = connection.execute(_LEFT_OFF, left_off).fetchall()
        since = found[0][0] if found else None
    return _Questions(again, [one for one in canaries if one not in chosen], at, since)


def _verdicts(
    trial: CanaryJudge, canaries: Sequence[Canary], tools: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """The answer on each canary, by key: verdict, status, reason and call."""
    if not canaries:
        return {}
    samples, claims = as_tables(canaries)
    made = run_stage(trial.stage, {"samples": samples, "claims": claims}, tools)
    return {row[0]: row[1:] for row in made.select("claim_id", *_ANSWER).iter_rows()}


def as_tables(canaries: Sequence[Canary]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Canaries as a table of samples, whose reference is the premise, and a table of claims."""
    samples = [(one.key, one.premise) for one in canaries]
    claims = [
        {"claim_id": one.key, "sample_id": one.key, "claim": one.claim, "status": "made"}
        for one in canaries
    ]
    return (
        pl.DataFrame(samples, schema=_SAMPLES, orient="row"),
        pl.DataFrame(claims, schema=schema(Claim)),
    )


def canary_estimates(
    prepared: Prepared,
    store: Store,
    wanted: Collection[str],
    shared: SharedLedger | None = None,
) -> dict[tuple[str, ...], Estimate]:
    """The calls that canaries would cost, by the steps that share a judge.

    Steps without a language model are left out. What is in `shared` costs no call. No call is made
    and nothing is written.
    """
    if prepared.pipeline.canaries is None:
        return {}
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    return {
        trial.steps: _estimate(prepared, LedgerToRead(store, shared), trial)
        for trial in canary_judges(prepared.pipeline, toolbox, wanted)
        if trial.step.judges
    }


def _estimate(prepared: Prepared, ledger: Ledger, trial: CanaryJudge) -> Estimate:
    pipeline = prepared.pipeline
    asked = _questions(prepared, ledger.store, trial)
    endpoints = pipeline.endpoints_of(trial.step)
    models = estimate_models(pipeline, ledger.store)
    parts = []
    for some, fresh, since in (
        (asked.rest, False, None),
        (asked.again, asked.since is None, asked.since),
    ):
        counter = StepCounter(endpoints, ledger, set(), models, fresh=fresh, since=since)
        if some:
            samples, claims = as_tables(some)
            tables = {"samples": samples, "claims": claims}
            run_stage(trial.stage, tables, counter.lend(trial.stage))
        parts.append(counter.estimate(about=models.guessed))
    return combine(parts)._replace(who=parts[0].who)
