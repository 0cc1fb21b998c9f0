"""What labels make of a run, for whoever tells of the run: corrected figures and reliability."""

from typing import Final, NamedTuple

from claimflow.flows.engine.calibration.held import Drawing, held_parts
from claimflow.flows.engine.calibration.reliability import Reliability
from claimflow.flows.engine.calibration.steps import Corrected, corrected, step_reliability
from claimflow.flows.engine.labels.units import Kind
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.store_schema import has_table

MOST: Final = 50_000
"""Rows of a step up to which it is corrected by the way: all of them are in memory."""

_KINDS: Final[tuple[Kind, ...]] = ("verdicts", "samples")


class Correction(NamedTuple):
    """The verdicts of a step, or one of its metrics, `labelled` of whose rows people labelled.

    Not looked at, and so with nothing to say, where `too_many` rows are in it.
    """

    kind: str
    step: str
    metric: str | None
    labelled: int
    drawing: Drawing | None
    corrected: list[Corrected]
    reliability: Reliability | None
    too_many: bool


def corrections(store: Store, run_id: str, *, most: int | None = MOST) -> list[Correction]:
    """What the labels on record make of each step of a run that they are about.

    Steps of more than `most` rows are not looked at. Nothing is written, and none of the
    libraries of `claimflow calibrate` is needed.
    """
    with store.reading() as connection:
        if not has_table(connection, "audit", "labels"):
            return []
        large = {
            step for (step,) in connection.execute(_LARGE, {"run": run_id, "most": most}).fetchall()
        }
        found = []
        for kind in _KINDS:
            for part, held in held_parts(connection, run_id, kind, without=large):
                where = (kind, part.step, part.metric)
                if held is None:
                    found.append(Correction(*where, 0, None, [], None, too_many=True))
                elif held.words:
                    told = (held.drawing, corrected(held), step_reliability(held))
                    found.append(Correction(*where, len(held.words), *told, too_many=False))
    return found


_LARGE: Final = """
SELECT step FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND row_count > $most::BIGINT
"""
