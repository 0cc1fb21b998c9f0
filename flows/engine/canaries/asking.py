"""The judges of a run tried on its canaries, and put on record."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import polars as pl

from claimflow.flows.engine.canaries.judges import Trial, due, trials
from claimflow.flows.engine.canaries.record import last_asked, left_off, record
from claimflow.flows.engine.prepare import Prepared
from claimflow.flows.engine.reader.canaries import Canary
from claimflow.flows.engine.storage.store import Store, now
from claimflow.flows.engine.tools.toolbox import Toolbox
from claimflow.stages.rows import Claim
from claimflow.stages.tables import schema

_SAMPLES: Final = {"sample_id": pl.String, "reference": pl.String}
_SAID: Final = ("verdict", "status", "reason", "call_id")


def try_judges(
    prepared: Prepared, store: Store, toolbox: Toolbox, run_id: str, wanted: Collection[str]
) -> None:
    """Put the canaries to the judge of each of the `wanted` steps that verify claims.

    What each says goes on record for the run. Raises as asking a judge does.
    """
    pipeline, canaries = prepared.pipeline, prepared.canaries
    if pipeline.canaries is None:
        return
    for trial in trials(pipeline, toolbox, wanted):
        before = last_asked(store, pipeline.name, trial.key)
        again = due(canaries, pipeline.canaries, trial, before, now())
        keys = {one.key for one in again}
        rest = [one for one in canaries if one.key not in keys]
        since = answered_since(store, pipeline.name, again, before)
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
        record(store, rows, trial.steps, where | {"judged_at": judged_at})


def answered_since(
    store: Store, pipeline: str, again: Sequence[Canary], asked_at: Mapping[str, datetime]
) -> datetime | None:
    """The moment from which replies count for canaries that are asked anew.

    What a run was told that was killed while it asked need not be asked again. None: no run was.
    """
    if not again:
        return None
    return left_off(store, pipeline, after=max(asked_at[one.key] for one in again))


def _verdicts(
    trial: Trial, canaries: Sequence[Canary], tools: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """What the judge says of each, by key: verdict, status, reason and call."""
    if not canaries:
        return {}
    samples, claims = as_tables(canaries)
    made = trial.stage.run(samples, claims, **tools)
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
