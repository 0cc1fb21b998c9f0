"""Calibration of a run against labels: every step, the record of it, and corrected rates."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.quality.claim_changes import (
    Cause,
    Provenance,
    causes_between,
    step_provenance,
)
from claimflow.flows.quality.corrected_rates import Reliability
from claimflow.flows.quality.json_values import json_value
from claimflow.flows.quality.labels import KINDS, Kind, LabelTarget, label_targets
from claimflow.flows.quality.metric_differences import metadata_values, values_by_sample
from claimflow.flows.quality.step_calibration import (
    CorrectedRate,
    Drawing,
    PairedLabels,
    StepCalibration,
    calibrate_step,
    corrected_rates,
    paired_targets,
    step_reliability,
)
from claimflow.flows.store.arrow import insert
from claimflow.flows.store.runs import pipeline_and_start
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.store import Store, migrate, now
from claimflow.stages.rows import canonical, content_key

MAX_ROWS: Final = 50_000
"""The largest step that reports correct, since all of its rows are held in memory."""

_OPTIONAL_PACKAGES: Final = {"krippendorff": "krippendorff", "sklearn": "scikit-learn"}
"""Packages that `calibrate` needs, by module."""

_CORRECTED_KINDS: Final[tuple[Kind, ...]] = ("verdicts", "checks", "samples")


class EarlierCalibration(NamedTuple):
    """The newest recorded calibration of a step.

    `accuracy` is the agreement found then. `causes` are what has changed since in how the step's
    table is made.
    """

    run_id: str
    calibrated_at: datetime
    labels: int
    accuracy: float | None
    causes: tuple[Cause, ...]

    @property
    def stale(self) -> bool:
        """Whether the judge has changed since, so that the calibration no longer applies."""
        return bool(self.causes)


class RunCalibration(NamedTuple):
    """The calibration of each step of a run that has labels.

    The fields are the keys of the JSON document, described in `flows/guides/labels.md`. `earlier`
    is the newest recorded calibration before this one, by step.
    """

    run_id: str
    by: str | None
    found: list[StepCalibration]
    earlier: dict[str, EarlierCalibration]


class SliceReliability(NamedTuple):
    """The reliability of a step over the samples with one `value` of a metadata field."""

    field: str
    value: str | None
    reliability: Reliability


class CorrectedStep(NamedTuple):
    """The verdicts of a step, or one of its metrics, corrected by `labelled` labels.

    `slices` are by field, then by value. A step with `too_many` rows is not corrected.
    """

    kind: str
    step: str
    metric: str | None
    labelled: int
    drawing: Drawing | None
    corrected: list[CorrectedRate]
    reliability: Reliability | None
    slices: list[SliceReliability]
    too_many: bool


def calibrate(store: Store, run_id: str, *, by: str | None = None) -> RunCalibration:
    """Compare the judges of a run with the recorded labels, and record the result.

    `by` names a metadata field to slice by. Raises `InputError` where a package is not installed,
    and where there is neither a label for the run nor an earlier calibration of its steps.
    """
    _check_installed()
    migrate(store)
    earlier = earlier_calibrations(store, run_id)
    with store.reading() as connection:
        slice_of = metadata_values(connection, run_id, by) if by is not None else None
        paired = [one for kind in KINDS for _, one in paired_targets(connection, run_id, kind)]
    found = [calibrate_step(one, slice_of=slice_of) for one in paired if one and one.consensus]
    if not found and not earlier:
        what = f"no label belongs to run {run_id}"
        hint = "write a sheet by `claimflow label export`, and take it in by `label import`"
        raise InputError([Fault(str(store.path), what, hint)])
    _record(store, run_id, found)
    return RunCalibration(run_id, by, found, earlier)


_LARGE_STEPS: Final = """
SELECT step FROM audit.run_steps JOIN audit.artifacts USING (artifact_id)
WHERE run_steps.run_id = $run AND row_count > $max_rows::BIGINT
"""


def corrected_steps(
    store: Store,
    run_id: str,
    *,
    slice_fields: Iterable[str] = (),
    max_rows: int | None = MAX_ROWS,
) -> list[CorrectedStep]:
    """The corrected rates of each step of a run that has labels.

    `slice_fields` are the metadata fields by whose values reliability is given too. Steps of more
    than `max_rows` rows are only named. Writes nothing, and needs none of the optional packages of
    `calibrate`.
    """
    with store.reading() as connection:
        if not has_table(connection, "labels"):
            return []
        large = connection.execute(_LARGE_STEPS, {"run": run_id, "max_rows": max_rows}).fetchall()
        skipped = {step for (step,) in large}
        values = {field: values_by_sample(connection, run_id, field) for field in slice_fields}
        found = []
        for kind in _CORRECTED_KINDS:
            for target, pairs in paired_targets(connection, run_id, kind, without_steps=skipped):
                where = (kind, target.step, target.metric)
                if pairs is None:
                    found.append(CorrectedStep(*where, 0, None, [], None, [], too_many=True))
                elif pairs.consensus:
                    found.append(_corrected(target, pairs, values))
    return found


def _corrected(
    target: LabelTarget, pairs: PairedLabels, values: Mapping[str, Mapping[str, str | None]]
) -> CorrectedStep:
    whole = step_reliability(pairs, pairs.usable)
    return CorrectedStep(
        target.kind,
        target.step,
        target.metric,
        len(pairs.consensus),
        pairs.drawing,
        corrected_rates(pairs),
        whole,
        list(_slice_reliability(pairs, values)) if whole else [],
        too_many=False,
    )


def _slice_reliability(
    pairs: PairedLabels, values: Mapping[str, Mapping[str, str | None]]
) -> Iterator[SliceReliability]:
    for field, of_sample in values.items():
        for value, rows in pairs.slices(of_sample).items():
            found = step_reliability(pairs, rows)
            if found is not None:
                yield SliceReliability(field, value, found)


def reliability_of_step(store: Store, run_id: str, step: str) -> Reliability:
    """The reliability of the probabilities of a step that verifies claims.

    Raises `InputError` where there is no such step, or it has no labels or no probabilities.
    """
    found = [
        one
        for one in corrected_steps(store, run_id, max_rows=None)
        if (one.kind, one.step) == ("verdicts", step)
    ]
    for one in found:
        if one.reliability is not None:
            return one.reliability
    with store.reading() as connection:
        steps = [target.step for target in label_targets(connection, run_id, "verdicts")]
    if step not in steps:
        what, hint = f"no step {step!r} of run {run_id} makes verdicts", one_of(step, steps)
    elif found:
        what = f"the judge of step {step} gives no probabilities"
        hint = "name a step whose judge is the embedded model"
    else:
        what = f"no label is about the verdicts of step {step}"
        hint = f"write a sheet by `claimflow label export --step {step}`, and take it in"
    raise InputError([Fault("--kind reliability", what, hint)])


_NEWEST: Final = """
SELECT calibration_id::VARCHAR, run_id, step, stage, version, settings, tools, labels, figures,
       calibrated_at
FROM audit.calibrations WHERE pipeline = $pipeline
QUALIFY row_number() OVER (
    PARTITION BY step ORDER BY calibrated_at DESC, calibrations.rowid DESC
) = 1
"""


def earlier_calibrations(store: Store, run_id: str) -> dict[str, EarlierCalibration]:
    """The newest calibration of each step of a run, compared with how the run made the step.

    Empty for a store of an older version, which has no table of calibrations.
    """
    with store.reading() as connection:
        if not has_table(connection, "calibrations"):
            return {}
        provenance = step_provenance(connection, run_id)
        pipeline, _ = pipeline_and_start(connection, run_id)
        rows = _newest(connection, pipeline)
    return {row[2]: _earlier(row, provenance[row[2]]) for row in rows if row[2] in provenance}


def _earlier(row: tuple[Any, ...], current: Provenance) -> EarlierCalibration:
    _, run_id, _, stage, version, settings, tools, labels, figures, at = row
    calibrated = current._replace(
        stage=stage, version=version, settings=json.loads(settings), tools=json.loads(tools)
    )
    accuracy = json.loads(figures)["agreement"]["accuracy"]["value"]
    causes = tuple(causes_between(calibrated, current))
    return EarlierCalibration(run_id, at, labels, accuracy, causes)


def _record(store: Store, run_id: str, found: list[StepCalibration]) -> None:
    """Record the calibrations of verdicts and checks, except those equal to their step's newest."""
    with store.writing() as connection:
        pipeline, _ = pipeline_and_start(connection, run_id)
        provenance = step_provenance(connection, run_id)
        newest = {row[2]: row[0] for row in _newest(connection, pipeline)}
        rows = [
            _record_row(run_id, pipeline, one, provenance[one.step])
            for one in found
            if one.kind in ("verdicts", "checks") and one.agreement is not None
        ]
        rows = [row for row in rows if row["calibration_id"] != newest.get(row["step"])]
        if rows:
            insert(connection, "audit.calibrations", pl.DataFrame(rows, infer_schema_length=None))


def _record_row(
    run_id: str, pipeline: str, calibration: StepCalibration, provenance: Provenance
) -> Mapping[str, Any]:
    facts = {
        "run_id": run_id,
        "pipeline": pipeline,
        "step": calibration.step,
        "stage": provenance.stage,
        "version": provenance.version,
        "settings": canonical(dict(provenance.settings)).decode(),
        "tools": canonical(dict(provenance.tools)).decode(),
        "labels": calibration.agreement.n if calibration.agreement else 0,
        "figures": canonical(json_value(calibration._replace(slices=[]))).decode(),
    }
    return {"calibration_id": content_key("calibration", facts), **facts, "calibrated_at": now()}


def _newest(connection: duckdb.DuckDBPyConnection, pipeline: str) -> list[tuple[Any, ...]]:
    return connection.execute(_NEWEST, {"pipeline": pipeline}).fetchall()


def _check_installed() -> None:
    """Raise `InputError` where an optional package is not installed."""
    missing = [package for module, package in _OPTIONAL_PACKAGES.items() if not find_spec(module)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not installed"
        raise InputError([Fault("calibrate", what, "run: pip install 'claimflow[calibrate]'")])
