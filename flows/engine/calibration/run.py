"""A whole run held against people, and put on record."""

from typing import NamedTuple

import duckdb

from claimflow.flows.engine.calibration.corrections import corrections
from claimflow.flows.engine.calibration.held import held_parts
from claimflow.flows.engine.calibration.libraries import check_installed
from claimflow.flows.engine.calibration.records import Earlier, earlier, record
from claimflow.flows.engine.calibration.reliability import Reliability
from claimflow.flows.engine.calibration.steps import Calibration, calibration
from claimflow.flows.engine.compare.pairs import unit_of_samples
from claimflow.flows.engine.errors import Fault, InputError, one_of
from claimflow.flows.engine.labels.units import KINDS, parts
from claimflow.flows.engine.storage.store import Store


class RunCalibration(NamedTuple):
    """What labels say of a run: of each part that has some.

    `earlier` is the newest calibration on record before this one, by step.
    """

    run_id: str
    by: str | None
    found: list[Calibration]
    earlier: dict[str, Earlier]


def calibrate(store: Store, run_id: str, *, by: str | None = None) -> RunCalibration:
    """Hold the judges of a run against the labels on record, and put that on record.

    Raises `InputError` where a library is not installed, or where no label is about anything
    of the run and no earlier calibration about its steps.
    """
    check_installed()
    with store.writing():
        pass  # A store of an older claimflow gets the tables that it lacks.
    before = earlier(store, run_id)
    with store.reading() as connection:
        slice_of = _slices(connection, run_id, by) if by is not None else None
        beside = [one for kind in KINDS for _, one in held_parts(connection, run_id, kind)]
    found = [calibration(one, slice_of=slice_of) for one in beside if one and one.words]
    if not found and not before:
        what = f"no label is about anything of run {run_id}"
        right = "write a sheet by `claimflow label export`, and take it in by `label import`"
        raise InputError([Fault(str(store.path), what, right)])
    record(store, run_id, found)
    return RunCalibration(run_id, by, found, before)


def reliability_of(store: Store, run_id: str, step: str) -> Reliability:
    """Whether the probabilities of a step that verifies claims can be believed.

    Raises `InputError` where there is no such step, and where it has no labels or gave no
    probabilities.
    """
    found = corrections(store, run_id, most=None)
    for one in found:
        if (one.kind, one.step) == ("verdicts", step) and one.reliability is not None:
            return one.reliability
    with store.reading() as connection:
        known = [part.step for part in parts(connection, run_id, "verdicts")]
    if step not in known:
        what, right = f"no step {step!r} of run {run_id} makes verdicts", one_of(step, known)
    elif any((one.kind, one.step) == ("verdicts", step) for one in found):
        what = f"the judge of step {step} gives no probabilities"
        right = "name a step whose judge is the embedded model"
    else:
        what = f"no label is about the verdicts of step {step}"
        right = f"write a sheet by `claimflow label export --step {step}`, and take it in"
    raise InputError([Fault("--kind reliability", what, right)])


def _slices(
    connection: duckdb.DuckDBPyConnection, run_id: str, field: str
) -> dict[str, str | None]:
    """The value of a metadata field by sample. Raises `InputError` where no sample has it."""
    units = unit_of_samples(connection, run_id, field)
    return {name: unit[1:] if unit.startswith("v") else None for name, unit in units.items()}
