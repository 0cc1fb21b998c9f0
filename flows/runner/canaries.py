"""Canaries: labelled pairs put to each judge of a run."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.judge.estimate import Estimate, combine
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.gates import CanarySource
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.times import to_timedelta
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.counting import StepCounter, endpoints_by_step, estimate_entailment
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.samples.canaries import Canary
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.store import Store, insert, now, read_table
from claimflow.stages.base import Stage
from claimflow.stages.rows import Claim, content_key
from claimflow.stages.tables import schema

# What judges said of canaries, on record.


_TABLE: Final = "audit.canaries"
_TYPES: Final = dict.fromkeys(("verdict", "reason", "call_id"), pl.String)

_LAST: Final = """
SELECT canary::VARCHAR, max(asked_at) FROM audit.canaries
WHERE pipeline = $pipeline AND judge = $judge::UUID AND status = 'judged' GROUP BY canary
"""

_LEFT_OFF: Final = """
SELECT started_at FROM audit.runs
WHERE pipeline = $pipeline AND started_at > $after AND status <> 'done'
ORDER BY started_at LIMIT 1
"""


def record_verdicts(
    store: Store,
    rows: Sequence[Mapping[str, Any]],
    steps: Sequence[str],
    where: Mapping[str, Any],
) -> None:
    """Put what a judge said on record for each of the steps that have it."""
    frame = pl.DataFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)
    with store.writing() as connection:
        for step in steps:
            insert(connection, _TABLE, frame, **where, step=step)


def last_asked(store: Store, pipeline: str, judge: str) -> dict[str, datetime]:
    """When that judge was last asked for each canary that it gave a verdict on."""
    if not store.path.is_file():
        return {}
    with store.reading() as connection:
        if not has_canaries(connection):
            return {}
        found = connection.execute(_LAST, {"pipeline": pipeline, "judge": judge}).fetchall()
    return dict(found)


def first_unfinished_run(store: Store, pipeline: str, *, after: datetime) -> datetime | None:
    """When the first run of a pipeline after that moment began that is not done.

    What it was told is in the ledger, and on no record of canaries. None where there is none.
    """
    with store.reading() as connection:
        found = connection.execute(_LEFT_OFF, {"pipeline": pipeline, "after": after}).fetchall()
    return found[0][0] if found else None


def canary_scores(connection: duckdb.DuckDBPyConnection, run_id: str, step: str) -> pl.DataFrame:
    """Whether each verdict is its label, as scores: step, sample_id, status, score.

    Of all steps where `step` is blank.
    """
    if not has_canaries(connection):
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


def has_canaries(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether there is a table for them: a store of an older claimflow has none."""
    return has_table(connection, "audit", "canaries")


# Which judges of a pipeline are tried on its canaries, and which canaries each is asked anew.


PLACE = "canaries"
"""What leads the name of a step in the record of calls made for its canaries."""


class CanaryJudge(NamedTuple):
    """One judge, with its prompt and settings: `key`. `steps` have it; `step` asks for them all.

    `anew` is the same step under the name by which the judge is asked again. `stage` takes the
    premise of each canary for the reference of a sample.
    """

    key: str
    steps: tuple[str, ...]
    step: Step
    anew: Step
    stage: Stage


def canary_judges(pipeline: Pipeline, toolbox: Toolbox, wanted: Iterable[str]) -> list[CanaryJudge]:
    """The judges of those of the `wanted` steps that verify claims, each once."""
    wanted = set(wanted)
    found: dict[str, CanaryJudge] = {}
    for step in pipeline.steps if pipeline.canaries else ():
        if step.name not in wanted or step.stage.canary_settings is None:
            continue
        stage = step.stage.model_copy(update=dict(step.stage.canary_settings))
        how = (stage.use, stage.version, stage.model_dump(mode="json"), toolbox.identities(step))
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
    """Those that a judge is asked anew, which it was asked at `asked_at`, the oldest first.

    The embedded model always says the same and is never asked anew.
    """
    if not trial.step.judges or (source.fresh is None and source.every is None):
        return []
    old = [one for one in canaries if one.key in asked_at]
    if source.every is not None:
        old = [one for one in old if now - asked_at[one.key] >= to_timedelta(source.every)]
    return sorted(old, key=lambda one: asked_at[one.key])[: source.fresh]


def _named(step: Step, ending: str) -> Step:
    inputs: dict[str, Any] = dict(step.inputs)
    # No step of a file can have such a name.
    return Step(f"{PLACE}.{step.name}{ending}", step.stage, inputs, step.judges)


# The judges of a run tried on its canaries, and put on record.


_SAMPLES: Final = {"sample_id": pl.String, "reference": pl.String}
_SAID: Final = ("verdict", "status", "reason", "call_id")


def judge_canaries(
    prepared: Prepared, store: Store, toolbox: Toolbox, run_id: str, wanted: Collection[str]
) -> None:
    """Put the canaries to the judge of each of the `wanted` steps that verify claims.

    What each says goes on record for the run. Raises as asking a judge does.
    """
    pipeline, canaries = prepared.pipeline, prepared.canaries
    if pipeline.canaries is None:
        return
    for trial in canary_judges(pipeline, toolbox, wanted):
        before = last_asked(store, pipeline.name, trial.key)
        again = due_canaries(canaries, pipeline.canaries, trial, before, now())
        keys = {one.key for one in again}
        rest = [one for one in canaries if one.key not in keys]
        since = reuse_replies_since(store, pipeline.name, again, before)
        said = {
            **_verdicts(trial, rest, toolbox.lend(trial.step)),
            **_verdicts(trial, again, toolbox.lend_anew(trial.anew, since=since)),
        }
        judged_at = now()
        rows = [
            {
                "canary": one.key,
                "claim": one.claim,
                "label": one.label,
                **dict(zip(_SAID, said[one.key], strict=True)),
                "anew": one.key in keys,
                "asked_at": judged_at if one.key in keys else before.get(one.key, judged_at),
            }
            for one in canaries
        ]
        where = {"run_id": run_id, "pipeline": pipeline.name, "judge": trial.key}
        record_verdicts(store, rows, trial.steps, where | {"judged_at": judged_at})


def reuse_replies_since(
    store: Store, pipeline: str, again: Sequence[Canary], asked_at: Mapping[str, datetime]
) -> datetime | None:
    """The moment from which replies count for canaries that are asked anew.

    What a run was told that was killed while it asked need not be asked again. None: no run was.
    """
    if not again:
        return None
    return first_unfinished_run(store, pipeline, after=max(asked_at[one.key] for one in again))


def _verdicts(
    trial: CanaryJudge, canaries: Sequence[Canary], tools: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """What the judge says of each, by key: verdict, status, reason and call."""
    if not canaries:
        return {}
    samples, claims = as_tables(canaries)
    made = trial.stage.run(samples=samples, claims=claims, **tools)
    return {row[0]: row[1:] for row in made.select("claim_id", *_SAID).iter_rows()}


def as_tables(canaries: Sequence[Canary]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Canaries as samples whose reference is the premise, and as a claim of each."""
    samples = [(one.key, one.premise) for one in canaries]
    claims = [
        {"claim_id": one.key, "sample_id": one.key, "claim": one.claim, "status": "made"}
        for one in canaries
    ]
    return (
        pl.DataFrame(samples, schema=_SAMPLES, orient="row"),
        pl.DataFrame(claims, schema=schema(Claim)),
    )


# What a run would ask of judges for its canaries: counted, with nobody asked.


def canary_estimates(
    prepared: Prepared, store: Store, wanted: Collection[str]
) -> dict[tuple[str, ...], Estimate]:
    """What the judge of each of the `wanted` steps would be asked, by the steps that have it.

    Steps without a language model are left out. Nothing is written.
    """
    if prepared.pipeline.canaries is None:
        return {}
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    return {
        trial.steps: _estimate(prepared, store, trial)
        for trial in canary_judges(prepared.pipeline, toolbox, wanted)
        if trial.step.judges
    }


def _estimate(prepared: Prepared, store: Store, trial: CanaryJudge) -> Estimate:
    pipeline, canaries = prepared.pipeline, prepared.canaries
    asked_at = last_asked(store, pipeline.name, trial.key)
    again = (
        due_canaries(canaries, pipeline.canaries, trial, asked_at, now())
        if pipeline.canaries
        else []
    )
    keys = {one.key for one in again}
    rest = [one for one in canaries if one.key not in keys]
    since = reuse_replies_since(store, pipeline.name, again, asked_at)
    endpoints, foreseen = (
        endpoints_by_step(pipeline)[trial.steps[0]],
        estimate_entailment(pipeline, store),
    )
    parts = []
    for some, fresh, moment in ((rest, False, None), (again, since is None, since)):
        counter = StepCounter(endpoints, store, set(), foreseen, fresh=fresh, since=moment)
        if some:
            samples, claims = as_tables(some)
            trial.stage.run(samples=samples, claims=claims, **counter.lend(trial.stage))
        parts.append(counter.estimate(about=foreseen.guessed))
    return combine(parts)._replace(who=parts[0].who)
