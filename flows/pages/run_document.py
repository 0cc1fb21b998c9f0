"""What a run found, as JSON: keys that stay, for programs."""

import json
from datetime import datetime
from typing import Any, Final

import polars as pl

from flows.engine import accounts, results
from flows.engine.canaries.account import CanaryAccount, canaries_of
from flows.engine.gates import outcomes_of
from flows.engine.store import Store

_TIMES: Final = ("started_at", "ended_at")


def as_json(store: Store, run_id: str, *, samples: int = 20) -> str:
    """A run as one JSON object, described in `flows/README.md`.

    `samples` says how many samples are listed with their scores, those with the lowest mean
    first; the table `scores` has all of them.
    """
    summaries = results.summaries(store, run_id)
    whole = pl.col("slice_field").is_null()
    document: dict[str, Any] = {
        "run": _run(store, run_id),
        "metrics": summaries.filter(whole).drop("slice_field", "slice_value").to_dicts(),
        "slices": summaries.filter(~whole).to_dicts(),
        "gates": [one._asdict() for one in outcomes_of(store, run_id)],
        "steps": results.run_steps(store, run_id).drop("artifact_id").to_dicts(),
        "failures": accounts.failures(store, run_id).to_dicts(),
        "calls": accounts.calls_made(store, run_id).to_dicts(),
        "canaries": [_canaries(one) for one in canaries_of(store, run_id)],
        "lowest": _lowest(store, run_id, samples),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(store: Store, run_id: str) -> dict[str, Any]:
    found = results.all_runs(store).filter(pl.col("run_id") == run_id).row(0, named=True)
    tags = found["tags"].split(", ") if found["tags"] else []
    names = ("run_id", "pipeline", "status", "reason")
    return (
        {name: found[name] for name in names}
        | {name: _utc(found[name]) for name in _TIMES}
        | {"tags": tags, "failures": found["failures"]}
    )


def _canaries(one: CanaryAccount) -> dict[str, Any]:
    moved = one.moved._asdict() if one.moved else None
    told = {"judged": one.judged, "drifts": one.drifts}
    return one._asdict() | told | {"moved": moved, "restless": one.restless._asdict()}


def _utc(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat(timespec='seconds')}Z"


def _lowest(store: Store, run_id: str, count: int) -> list[dict[str, Any]]:
    lowest = results.lowest(store, run_id, count)
    scores = results.scores_of_samples(store, run_id, lowest["sample_id"].to_list())
    by_sample = scores.partition_by("sample_id", as_dict=True, include_key=False)
    return [
        row | {"scores": by_sample[(row["sample_id"],)].to_dicts()}
        for row in lowest.select("sample_id", "mean").iter_rows(named=True)
    ]
