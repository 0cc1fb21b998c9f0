"""How the means of a run stand among those of the runs before it."""

from datetime import datetime
from typing import Final, NamedTuple

from claimflow.flows.engine.report.metrics import StepMetric
from claimflow.flows.engine.storage.store import Store

_RUNS: Final = 20


class PastMean(NamedTuple):
    """The mean of a metric in a run, with its 95 % interval, where there is one."""

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None


def past_means(store: Store, run_id: str) -> dict[StepMetric, list[PastMean]]:
    """The means over all samples in the newest 20 runs of the pipeline, up to this one.

    The oldest comes first. Of the runs before it those count that are done.
    """
    with store.reading() as connection:
        rows = connection.execute(_PAST, {"run": run_id, "count": _RUNS}).fetchall()
    found: dict[StepMetric, list[PastMean]] = {}
    for step, metric, *mean in rows:
        found.setdefault(StepMetric(step, metric), []).append(PastMean(*mean))
    return found


_PAST: Final = """
WITH this AS (FROM audit.runs WHERE run_id = $run),
     past AS (SELECT run_id, started_at FROM audit.runs
              WHERE pipeline = (SELECT pipeline FROM this)
                AND started_at <= (SELECT started_at FROM this)
                AND (status = 'done' OR run_id = $run)
              ORDER BY started_at DESC, run_id DESC LIMIT $count)
SELECT scores, metric, run_id, started_at, mean, low, high
FROM summaries JOIN past USING (run_id) WHERE slice_field IS NULL
ORDER BY started_at, run_id, scores, metric
"""
