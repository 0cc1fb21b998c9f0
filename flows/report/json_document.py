"""A run as JSON."""

import json
from datetime import datetime
from typing import Any

import polars as pl

from claimflow.flows.quality.calibration import CorrectedStep, corrected_steps, plain
from claimflow.flows.quality.canaries import CanaryResult, canary_results
from claimflow.flows.quality.claim_audit import as_document
from claimflow.flows.report.overview import SAMPLES, RunHead, overview
from claimflow.flows.store import results
from claimflow.flows.store.store import Store


def run_json(store: Store, run_id: str, *, samples: int = SAMPLES) -> str:
    """A run as one JSON object, described in `flows/guides/report.md`.

    `samples` says how many samples are listed with their scores, those with the lowest mean
    first; the table `scores` has all of them.
    """
    found = overview(store, run_id)
    whole = pl.col("slice_field").is_null()
    unstable, voted = found.votes
    document: dict[str, Any] = {
        "run": _run(found.head),
        "metrics": found.summaries.filter(whole).drop("slice_field", "slice_value").to_dicts(),
        "slices": found.summaries.filter(~whole).to_dicts(),
        "gates": [one._asdict() for one in found.gates],
        "steps": found.steps.drop("artifact_id").to_dicts(),
        "failures": found.failures.to_dicts(),
        "calls": found.calls.to_dicts(),
        "votes": {"unstable": unstable, "of": voted},
        "cascades": [one._asdict() for one in found.cascades],
        "canaries": [_canaries(one) for one in canary_results(store, run_id)],
        "claims": as_document(found.claims),
        "corrected": [_corrected(one) for one in corrected_steps(store, run_id)],
        "lowest": _lowest(store, run_id, samples),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(head: RunHead) -> dict[str, Any]:
    times = {"started_at": _utc(head.started_at), "ended_at": _utc(head.ended_at)}
    return head._asdict() | times


def _canaries(one: CanaryResult) -> dict[str, Any]:
    moved = one.moved._asdict() if one.moved else None
    told = {"judged": one.judged, "drifts": one.drifts}
    return one._asdict() | told | {"moved": moved, "restless": one.restless._asdict()}


def _corrected(one: CorrectedStep) -> dict[str, Any]:
    told: dict[str, Any] = plain(one)
    return {name: value for name, value in told.items() if name != "reliability"}


def _utc(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat(timespec='seconds')}Z"


def _lowest(store: Store, run_id: str, count: int) -> list[dict[str, Any]]:
    lowest = results.lowest_samples(store, run_id, count)
    scores = results.scores_of_samples(store, run_id, lowest["sample_id"].to_list())
    by_sample = scores.partition_by("sample_id", as_dict=True, include_key=False)
    return [
        row | {"scores": by_sample[(row["sample_id"],)].to_dicts()}
        for row in lowest.select("sample_id", "mean").iter_rows(named=True)
    ]
