"""Calibration of a run: its steps, corrected figures, earlier calibrations."""

import json
from collections.abc import Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.claim_changes import Cause, Making, causes_between, makings
from claimflow.flows.quality.corrected_rates import Reliability
from claimflow.flows.quality.labels import KINDS, Kind, parts
from claimflow.flows.quality.metric_differences import unit_of_samples
from claimflow.flows.quality.paired_labels import Drawing, held_parts
from claimflow.flows.quality.step_calibration import (
    Calibration,
    Corrected,
    calibration,
    corrected,
    plain,
    step_reliability,
)
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.store import Store, insert, now
from claimflow.stages.rows import canonical, content_key

# What the calibration needs beside claimflow's own dependencies.


NEEDED: Final = {"krippendorff": "krippendorff", "sklearn": "scikit-learn"}
"""The packages by the name of their module."""


def check_installed() -> None:
    """Raise `InputError` where a package is not installed."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not installed"
        raise InputError([Fault("calibrate", what, "run: pip install 'claimflow[calibrate]'")])


# What labels make of a run, for whoever tells of the run: corrected figures and reliability.


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


# Calibrations on record, and whether a judge is still the one that was calibrated.


_NEWEST: Final = """
SELECT calibration_id::VARCHAR, run_id, step, stage, version, settings, tools, labels, figures,
       calibrated_at
FROM audit.calibrations WHERE pipeline = $pipeline
QUALIFY row_number() OVER (
    PARTITION BY step ORDER BY calibrated_at DESC, calibrations.rowid DESC
) = 1
"""


class Earlier(NamedTuple):
    """The newest calibration of a step: of which run, when, on how many labels.

    `accuracy` is the agreement found then. `causes` are what differs in how the step's table is
    made now; where there are any it is stale.
    """

    run_id: str
    calibrated_at: datetime
    labels: int
    accuracy: float | None
    causes: tuple[Cause, ...]

    @property
    def stale(self) -> bool:
        """Whether it says nothing of the judge as it is now."""
        return bool(self.causes)


def record(store: Store, run_id: str, found: list[Calibration]) -> None:
    """Put on record what was found of each judge whose verdicts have labels, once.

    A calibration that says the same as the newest of its step is on record already.
    """
    with store.writing() as connection:
        pipeline, how = _pipeline(connection, run_id), makings(connection, run_id)
        newest = {row[2]: row[0] for row in _newest(connection, pipeline)}
        rows = [
            row
            for one in found
            if one.kind == "verdicts" and one.agreement is not None
            and (row := _row(run_id, pipeline, one, how[one.step]))["calibration_id"]
            != newest.get(one.step)
        ]  # fmt: skip
        if rows:
            insert(connection, "audit.calibrations", pl.DataFrame(rows, infer_schema_length=None))


def earlier(store: Store, run_id: str) -> dict[str, Earlier]:
    """The newest calibration of each judge of a run's pipeline, held against that run, by step.

    None of a store that an older claimflow made, where there is no table for them.
    """
    with store.reading() as connection:
        if not has_table(connection, "audit", "calibrations"):
            return {}
        how = makings(connection, run_id)
        found = _newest(connection, _pipeline(connection, run_id))
    return {row[2]: _earlier(row, how[row[2]]) for row in found if row[2] in how}


def _earlier(row: tuple[Any, ...], is_now: Making) -> Earlier:
    _, run_id, _, stage, version, settings, tools, labels, figures, at = row
    was = is_now._replace(
        stage=stage, version=version, settings=json.loads(settings), tools=json.loads(tools)
    )
    accuracy = json.loads(figures)["agreement"]["accuracy"]["value"]
    return Earlier(run_id, at, labels, accuracy, tuple(causes_between(was, is_now)))


def _row(run_id: str, pipeline: str, one: Calibration, making: Making) -> Mapping[str, Any]:
    figures = plain(one._replace(slices=[]))
    facts = {
        "run_id": run_id,
        "pipeline": pipeline,
        "step": one.step,
        "stage": making.stage,
        "version": making.version,
        "settings": canonical(dict(making.settings)).decode(),
        "tools": canonical(dict(making.tools)).decode(),
        "labels": one.agreement.n if one.agreement else 0,
        "figures": canonical(figures).decode(),
    }
    return {"calibration_id": content_key("calibration", facts), **facts, "calibrated_at": now()}


def _newest(connection: duckdb.DuckDBPyConnection, pipeline: str) -> list[tuple[Any, ...]]:
    return connection.execute(_NEWEST, {"pipeline": pipeline}).fetchall()


def _pipeline(connection: duckdb.DuckDBPyConnection, run_id: str) -> str:
    found = connection.execute(
        "SELECT pipeline FROM audit.runs WHERE run_id = $run", {"run": run_id}
    ).fetchall()
    return str(found[0][0])


# A whole run held against people, and put on record.


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
        hint = "write a sheet by `claimflow label export`, and take it in by `label import`"
        raise InputError([Fault(str(store.path), what, hint)])
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
        what, hint = f"no step {step!r} of run {run_id} makes verdicts", one_of(step, known)
    elif any((one.kind, one.step) == ("verdicts", step) for one in found):
        what = f"the judge of step {step} gives no probabilities"
        hint = "name a step whose judge is the embedded model"
    else:
        what = f"no label is about the verdicts of step {step}"
        hint = f"write a sheet by `claimflow label export --step {step}`, and take it in"
    raise InputError([Fault("--kind reliability", what, hint)])


def _slices(
    connection: duckdb.DuckDBPyConnection, run_id: str, field: str
) -> dict[str, str | None]:
    """The value of a metadata field by sample. Raises `InputError` where no sample has it."""
    units = unit_of_samples(connection, run_id, field)
    return {name: unit[1:] if unit.startswith("v") else None for name, unit in units.items()}
