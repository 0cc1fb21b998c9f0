"""Results of cascades: who judged, calls saved, audits."""

from typing import Final, NamedTuple

from claimflow.flows.store.store import Store, read_table


class CascadeAccount(NamedTuple):
    """The verdicts of a step that has a cascade, counted.

    `settled` are the embedded model's, `referred` went to the judge, `audited` are those that
    the judge gave where the embedded model was sure; `failed` have no verdict. Of the audited
    the judge `disagreed` on whether the claim is entailed, and `relabelled` counts those that
    have another verdict at all. `low` and `high` bound the 95 % interval of the share of
    settled verdicts that it would disagree on, None where none was audited.
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


def cascades_of(store: Store, run_id: str) -> list[CascadeAccount]:
    """The cascades of a run, in the order of their steps."""
    with store.reading() as connection:
        # Counting joins every verdict of the run with its claim, and most runs have no cascade.
        if read_table(connection, _STEPS, run=run_id).is_empty():
            return []
        rows = read_table(connection, _COUNTS, run=run_id).rows()
    counted = [CascadeAccount(*row) for row in rows]
    bounds = [exact_interval(one.disagreed, one.audited) for one in counted]
    return [
        one._replace(low=low, high=high) for one, (low, high) in zip(counted, bounds, strict=True)
    ]


def exact_interval(hits: int, of: int) -> tuple[float, float] | tuple[None, None]:
    """Bounds of the 95 % interval of a share of which `hits` in `of` were seen; None of nothing.

    Exact (Clopper and Pearson 1934): each bound is passed in at most 2.5 of 100 such draws.
    """
    if not of:
        return None, None
    # Takes a while to import, and most runs have no cascade.
    from scipy.special import betaincinv

    low = float(betaincinv(hits, of - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, of - hits, 0.975)) if hits < of else 1.0
    return low, high
