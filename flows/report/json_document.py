"""A run as JSON."""

from typing import Any

import polars as pl

from claimflow.flows.quality.calibration import CorrectedStep
from claimflow.flows.quality.json_values import json_text
from claimflow.flows.report.run_document import MAX_SAMPLES, RunDocument
from claimflow.flows.store import results


def run_json(run: RunDocument, *, samples: int = MAX_SAMPLES) -> str:
    """A run as one JSON object, whose keys `flows/guides/report.md` describes.

    `samples` is the number of samples that are listed with their scores, those with the lowest
    mean first; the table `scores` has all of them.
    """
    summaries = run.summaries.drop("name")
    whole = pl.col("slice_field").is_null()
    unstable, voted = run.votes
    ambiguous, made = run.ambiguous_claims
    document: dict[str, Any] = {
        "run": run.head,
        "metrics": summaries.filter(whole).drop("slice_field", "slice_value").to_dicts(),
        "slices": summaries.filter(~whole).to_dicts(),
        "gates": run.gates,
        "steps": run.steps.drop("artifact_id").to_dicts(),
        "failures": run.failures,
        "calls": run.calls,
        "votes": {"unstable": unstable, "of": voted},
        **({"ambiguous_claims": {"count": ambiguous, "of": made}} if ambiguous else {}),
        "cascades": run.cascades,
        "canaries": [
            one._asdict() | {"judged": one.judged, "drifts": one.drifts} for one in run.canaries
        ],
        "untaught": run.untaught,
        "claims": run.claim_audit,
        "corrected": [_without_reliability(one) for one in run.corrected],
        "lowest": _lowest(run, samples),
    }
    return json_text(document)


def _without_reliability(one: CorrectedStep) -> dict[str, Any]:
    fields = one._asdict()
    del fields["reliability"], fields["slices"]
    return fields


def _lowest(run: RunDocument, count: int) -> list[dict[str, Any]]:
    lowest = results.lowest_samples(run.store, run.run_id, count).select("sample_id", "mean")
    scores = results.scores_of_samples(run.store, run.run_id, lowest["sample_id"].to_list())
    by_sample = scores.rows_by_key("sample_id", named=True)
    return [row | {"scores": by_sample[row["sample_id"]]} for row in lowest.to_dicts()]
