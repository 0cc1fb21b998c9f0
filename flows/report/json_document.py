"""A run as JSON."""

from datetime import datetime
from typing import Any

import polars as pl

from claimflow.flows.quality.calibration import CorrectedStep
from claimflow.flows.quality.canaries import CanaryResult
from claimflow.flows.quality.json_values import json_text, json_value
from claimflow.flows.report.run_document import MAX_SAMPLES, RunDocument, RunHead
from claimflow.flows.store import results


def run_json(run: RunDocument, *, samples: int = MAX_SAMPLES) -> str:
    """A run as one JSON object, whose keys `flows/guides/report.md` describes.

    `samples` is the number of samples that are listed with their scores, those with the lowest
    mean first; the table `scores` has all of them.
    """
    summaries = run.summaries.drop("name")
    whole = pl.col("slice_field").is_null()
    unstable, voted = run.votes
    document: dict[str, Any] = {
        "run": _head(run.head),
        "metrics": summaries.filter(whole).drop("slice_field", "slice_value").to_dicts(),
        "slices": summaries.filter(~whole).to_dicts(),
        "gates": [one._asdict() for one in run.gates],
        "steps": run.steps.drop("artifact_id").to_dicts(),
        "failures": run.failures,
        "calls": run.calls,
        "votes": {"unstable": unstable, "of": voted},
        "cascades": [one._asdict() for one in run.cascades],
        "canaries": [_canaries(one) for one in run.canaries],
        "claims": json_value(run.claim_audit),
        "corrected": [_corrected(one) for one in run.corrected],
        "lowest": _lowest(run, samples),
    }
    return json_text(document)


def _head(head: RunHead) -> dict[str, Any]:
    times = {"started_at": _utc(head.started_at), "ended_at": _utc(head.ended_at)}
    return head._asdict() | times


def _utc(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat(timespec='seconds')}Z"


def _canaries(one: CanaryResult) -> dict[str, Any]:
    moved = one.moved._asdict() if one.moved else None
    derived = {"judged": one.judged, "drifts": one.drifts}
    return one._asdict() | derived | {"moved": moved, "restless": one.restless._asdict()}


def _corrected(one: CorrectedStep) -> dict[str, Any]:
    document: dict[str, Any] = json_value(one)
    return {name: value for name, value in document.items() if name != "reliability"}


def _lowest(run: RunDocument, count: int) -> list[dict[str, Any]]:
    lowest = results.lowest_samples(run.store, run.run_id, count).select("sample_id", "mean")
    scores = results.scores_of_samples(run.store, run.run_id, lowest["sample_id"].to_list())
    by_sample = scores.partition_by("sample_id", as_dict=True, include_key=False)
    return [
        row | {"scores": by_sample[(row["sample_id"],)].to_dicts()}
        for row in lowest.iter_rows(named=True)
    ]
