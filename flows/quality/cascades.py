"""Results of cascades: which model judged, calls saved, audit of the embedded model."""

from typing import Final, NamedTuple

from claimflow.flows.quality.distributions import clopper_pearson
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store


class CascadeResult(NamedTuple):
    """Counts of the verdicts of a step that has a cascade.

    `settled` verdicts are by the embedded model, `referred` by the judge, and `audited` by the
    judge although the embedded model was certain; `failed` have no verdict. On `disagreed` of the
    audited the two disagree on whether the claim is entailed, on `relabelled` on the verdict.
    `low` and `high` bound the 95 % interval of the share of settled verdicts that the judge would
    disagree with, None where none was audited. The fields are keys of JSON documents.
    """

    step: str
    verdicts: int
    settled: int
    referred: int
    audited: int
    failed: int
    disagreed: int
    relabelled: int
    calls_saved: int
    low: float | None = None
    high: float | None = None


_STEPS: Final = """
SELECT step FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND (settings ->> '$.cascade') IS NOT NULL
"""

_COUNTS: Final = """
SELECT step, verdicts, settled, referred, audited, failed, disagreed, relabelled, calls_saved
FROM cascades JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run ORDER BY position
"""


def cascade_results(store: Store, run_id: str) -> list[CascadeResult]:
    """The results of the cascades of a run, in the order of their steps."""
    with store.reading() as connection:
        # Counting joins every verdict of the run with its claim, and most runs have no cascade.
        if read_table(connection, _STEPS, run=run_id).is_empty():
            return []
        rows = read_table(connection, _COUNTS, run=run_id).rows()
    results = [CascadeResult(*row) for row in rows]
    bounds = [clopper_pearson(one.disagreed, one.audited) for one in results]
    return [
        one._replace(low=low, high=high) for one, (low, high) in zip(results, bounds, strict=True)
    ]
