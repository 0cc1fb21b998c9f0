"""Whether a run fails for its failed rows, and the metrics that have no score."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.pipeline.gates import FailWhen
from claimflow.flows.runner.canaries import canary_scores
from claimflow.flows.store import results
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store

_LONGEST_CAUSE: Final = 200


class UnscoredMetric(NamedTuple):
    """A metric of a step that is scored for no sample: why, and for how many samples each."""

    step: str
    metric: str
    samples: int
    failed: int
    reason: str | None


def failure_reason(store: Store, run_id: str, rule: FailWhen) -> str | None:
    """Why a run fails by `rule`, in one line; None where it does not.

    It fails when the share of failed rows in the table of any of its steps, or of failed
    canaries, is above the limit, and when a metric has no score and failures. The line names the
    first cause, in the order of the steps, and counts the others.
    """
    found = list(_excesses(store, run_id, rule.failed_rows))
    steps = {step for step, _ in found}
    found += [
        (
            one.step,
            f"no sample has a score for {one.metric}: {one.failed:,} of {one.samples:,} failed",
        )
        for one in unscored_metrics(store, run_id)
        if one.failed and one.step not in steps
    ]
    if not found:
        return None
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0][1]}{more}"


def unscored_metrics(store: Store, run_id: str) -> list[UnscoredMetric]:
    """The metrics of a run that are scored for no sample, in the order of its steps."""
    with store.reading() as connection:
        rows = read_table(connection, _UNSCORED, run=run_id).rows()
    return [UnscoredMetric(*row) for row in rows]


_UNSCORED: Final = """
SELECT step, metric, count(*), count(*) FILTER (scores.status = 'failed'), mode(reason)
FROM scores JOIN audit.run_steps USING (run_id, step) WHERE run_id = $run
GROUP BY step, metric, position HAVING count(*) FILTER (scores.status = 'scored') = 0
ORDER BY position, metric
"""


def _excesses(store: Store, run_id: str, limit: float) -> Iterator[tuple[str, str]]:
    """The steps with a larger share of failed rows than `limit`, and a sentence on each."""
    for step in results.run_steps(store, run_id).iter_rows(named=True):
        # A failed table whose rows have no status is empty.
        failed, rows = step["failures"], max(step["row_count"], step["failures"])
        if failed and failed / rows > limit:
            excess = _excess(failed, rows, f"rows of {step['step']}", limit)
            yield step["step"], f"{excess}: {_cause(store, run_id, step['step'])}"
    with store.reading() as connection:
        canaries = canary_scores(connection, run_id, "")
    for (name,), rows_of in canaries.group_by("step", maintain_order=True):
        failed, count = rows_of.filter(pl.col("status") == "failed").height, rows_of.height
        if failed / count > limit:
            yield str(name), _excess(failed, count, f"canaries of {name}", limit)


def _excess(failed: int, count: int, what: str, limit: float) -> str:
    share = f"{failed:,} of {count:,} {what} failed ({_percent(failed / count)})"
    return f"{share}, more than fail_when allows ({_percent(limit)})"


def _cause(store: Store, run_id: str, step: str) -> str:
    """The kind and reason of most failed rows of a step."""
    kinds = results.failures(store, run_id).filter(step=step).rows(named=True)
    rows = kinds or results.failed_rows(store, run_id, step, 1).rows(named=True)
    texts = [rows[0]["failure"], rows[0]["reason"]] if rows else []
    cause = " ".join(": ".join(filter(None, texts)).split())
    return cause if len(cause) <= _LONGEST_CAUSE else f"{cause[:_LONGEST_CAUSE]}…"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
