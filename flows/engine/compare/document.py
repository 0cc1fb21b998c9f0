"""A comparison as JSON: nothing left out, keys that stay."""

import json
from typing import Any

from claimflow.flows.engine.compare.comparison import Comparison, RunFacts
from claimflow.flows.engine.compare.metrics import MetricDifference


def as_json(comparison: Comparison) -> str:
    """The whole comparison as one JSON object, described in `flows/README.md`."""
    one = comparison
    document: dict[str, Any] = {
        "a": _run(one.a),
        "b": _run(one.b),
        "by": one.by,
        "metrics": [_metric(metric) for metric in one.metrics],
        "steps": [
            {
                "step": step.step,
                "kind": step.kind,
                "same": step.same,
                "causes": [*step.causes, *(["edited by hand"] if step.edits else [])],
                "settings": list(step.settings),
            }
            for step in one.steps
        ],
        "only_a": {kind: names[0] for kind, names in one.only.items()},
        "only_b": {kind: names[1] for kind, names in one.only.items()},
        "samples": one.samples.to_dicts(),
        "scores": [
            {
                "metric": row["name"],
                "sample_id": row["sample_id"],
                "a": row["score_a"],
                "b": row["score_b"],
                "difference": row["difference"],
                **{key: row[key] for key in ("status_a", "status_b", "reason_a", "reason_b")},
            }
            for row in one.scores.iter_rows(named=True)
        ],
        "causes": one.causes.to_dicts(),
        "claims": one.claims.to_dicts(),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(run: RunFacts) -> dict[str, Any]:
    return run._asdict() | {"started_at": f"{run.started_at.isoformat(timespec='seconds')}Z"}


def _metric(metric: MetricDifference) -> dict[str, Any]:
    found = metric.difference
    return {
        "metric": metric.metric,
        "lower_is_better": metric.lower_is_better,
        "a": metric.a._asdict(),
        "b": metric.b._asdict(),
        "paired": found.samples if found else 0,
        "units": found.units if found else 0,
        "mean_a": metric.mean_a,
        "mean_b": metric.mean_b,
        "difference": found.mean if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "p": found.p if found else None,
        "p_holm": metric.p_holm,
        "finding": metric.finding,
    }
