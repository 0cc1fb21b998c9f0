"""A whole run held against people, and put on record."""

from collections.abc import Iterator
from typing import NamedTuple

import duckdb
import polars as pl

from flows.engine.calibration.held import Held, held
from flows.engine.calibration.libraries import check_installed
from flows.engine.calibration.records import Earlier, earlier, record
from flows.engine.calibration.steps import Calibration, calibration
from flows.engine.compare.pairs import unit_of_samples
from flows.engine.errors import Fault, InputError
from flows.engine.labels.record import in_force
from flows.engine.labels.units import KINDS, Kind, parts
from flows.engine.store import Store


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
        beside = [one for kind in KINDS for one in _held(connection, run_id, kind)]
    found = [calibration(one, slice_of=slice_of) for one in beside]
    if not found and not before:
        what = f"no label is about anything of run {run_id}"
        right = "write a sheet by `claimflow label export`, and take it in by `label import`"
        raise InputError([Fault(str(store.path), what, right)])
    record(store, run_id, found)
    return RunCalibration(run_id, by, found, before)


def _held(connection: duckdb.DuckDBPyConnection, run_id: str, kind: Kind) -> Iterator[Held]:
    """The parts of a run of that kind that labels are about."""
    labels = in_force(connection, kind)
    if labels.is_empty():
        return
    for part in parts(connection, run_id, kind):
        about = labels.filter(pl.col("metric").eq_missing(pl.lit(part.metric)))
        beside = held(connection, part, about) if about.height else None
        if beside and beside.words:
            yield beside


def _slices(
    connection: duckdb.DuckDBPyConnection, run_id: str, field: str
) -> dict[str, str | None]:
    """The value of a metadata field by sample. Raises `InputError` where no sample has it."""
    units = unit_of_samples(connection, run_id, field)
    return {name: unit[1:] if unit.startswith("v") else None for name, unit in units.items()}
