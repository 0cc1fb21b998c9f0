"""`assert_scores`: expectations on scores, for the test suites of users."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import checked_path
from claimflow.flows.pipeline.gates import Gate
from claimflow.flows.quality.gates import Outcome, gate_outcomes, recorded_outcomes
from claimflow.flows.quality.paired_statistics import ROUNDING
from claimflow.flows.report.formatting import (
    escape_controls,
    format_count,
    format_interval,
    format_number,
    shorten,
)
from claimflow.flows.report.run_document import RunDocument, StepMetric, named_metrics
from claimflow.flows.report.run_text import gate_cells
from claimflow.flows.result import Result
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import chosen_run, run_steps
from claimflow.flows.store.store import Store

_WORST: Final = 5


def assert_scores(
    result: Result | None = None,
    *,
    pipeline: str | Path | None = None,
    run: str | None = None,
    store: str | Path | None = None,
    limit: int | None = None,
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
    failed_rows: int = 0,
) -> str:
    """Assert that the means of a run meet expectations; returns the run id.

    `result` is what `claimflow.evaluate` returned; a partial one may pass, and `left_out` too.

    With `pipeline`, the path of a YAML file, the pipeline is run as `claimflow run` does, without
    Prefect and reusing what is in the store: `limit` takes the first samples only, `store` is a
    file to use instead of the pipeline's. Without it `run` names a run in `store`: a run id or its
    beginning, a tag, or `latest`. The default is the newest run, which must not be partial.

    `at_least` and `at_most` bound the mean over the scored samples by metric (`step.metric` if
    several steps make it); a metric without a mean fails. The run may not have failed by
    `fail_when`, no gate may have failed (those inconclusive or skipped may pass), and at most
    `failed_rows` rows.

    Raises `AssertionError` with every expectation that is not met: the mean, its 95 % interval,
    the number of scored samples, and the worst samples with their questions. Raises `InputError` if
    the pipeline, the run or a metric is not valid.
    """
    __tracebackhide__ = True
    faults = [
        *_number_faults("at_least", at_least or {}),
        *_number_faults("at_most", at_most or {}),
        *_number_faults("assert_scores", {"failed_rows": failed_rows}, lowest=0),
    ]
    if faults:
        raise InputError(faults)
    try:
        if result is None:
            found, run_id = _find_or_make_run(pipeline, run, store, limit)
        else:
            found, run_id = _run_of(result, pipeline, run, store, limit)
        document = RunDocument(found, run_id)
        chosen = result is not None or run is not None or limit is not None
        partial = None if chosen else document.head.partial
        lines = [
            *([document.failed] if document.failed else []),
            *([f"the run is partial: {partial}"] if partial else []),
            *_missed_bounds(found, run_id, at_least or {}, at_most or {}),
            *_failed_gates(found, run_id),
            *_failed_rows(found, run_id, failed_rows),
        ]
    except InputError as error:
        # pytest shows the frames below this one, unless the error is raised here.
        raise InputError(error.faults) from None
    if lines:
        raise AssertionError("\n".join([f"run {run_id} of {found.path}", *lines]))
    return run_id


def _number_faults(
    option: str, numbers: Mapping[str, object], *, lowest: float = -math.inf
) -> Iterator[Fault]:
    """A fault for each value that is no finite number, or is below `lowest`."""
    for name, number in numbers.items():
        place = f"{option}.{name}"
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not math.isfinite(number)
        ):
            yield Fault(place, f"{number!r} is not a finite number", "write a number")
        elif number < lowest:
            yield Fault(place, f"{number:g} is out of range", f"write {lowest:g} or more")


def _run_of(result: Result, *others: object) -> tuple[Store, str]:
    if any(other is not None for other in others):
        what, hint = "has a result and a run to find", "name one of them"
        raise InputError([Fault("assert_scores", what, hint)])
    return result.open_store(), result.run_id


def _find_or_make_run(
    pipeline: str | Path | None, run: str | None, store: str | Path | None, limit: int | None
) -> tuple[Store, str]:
    if pipeline is None:
        if store is None or limit is not None:
            what, hint = "has no pipeline", "name one, or the store of a run and no limit"
            raise InputError([Fault("assert_scores", what, hint)])
        found = Store(checked_path("store", store, "give the path of a DuckDB file").resolve())
        return found, chosen_run(found, run)
    if run is not None:
        what, hint = "has a pipeline and a run", "name the pipeline, or the run and its store"
        raise InputError([Fault("assert_scores", what, hint)])
    path = None if store is None else Path(store)
    prepared = prepare(Path(pipeline), limit=limit, store=path)
    result = run_pipeline(prepared)
    if result.nothing_to_do is not None:
        raise InputError([Fault("assert_scores", result.nothing_to_do, "name a store and a run")])
    return result.store, result.run_id


def _missed_bounds(
    store: Store, run_id: str, at_least: Mapping[str, float], at_most: Mapping[str, float]
) -> Iterator[str]:
    for option, lines in (("at_least", at_least), ("at_most", at_most)):
        metrics = named_metrics(store, run_id, lines, place=option)
        low = option == "at_least"
        # The outcome of a gate depends on the interval too: here only the mean counts.
        gates = {name: Gate(min=line) if low else Gate(max=line) for name, line in lines.items()}
        for one, metric in zip(gate_outcomes(store, run_id, gates), metrics, strict=True):
            lacks = None if one.value is None else (one.line - one.value) * (1 if low else -1)
            if lacks is None or lacks > ROUNDING:
                yield _describe(one, low=low)
                yield from _worst(store, run_id, metric, lowest=low)


def _describe(one: Outcome, *, low: bool) -> str:
    counts = one.reason.rpartition("; ")[2]
    if one.value is None:
        return f"{one.metric}: has no mean ({counts}), expected one"
    where = "below" if low else "above"
    interval = format_interval(one.low, one.high)
    return (
        f"{one.metric}: mean {format_number(one.value)} is {where} {one.line:g} "
        f"(95 % interval {interval}; {counts})"
    )


def _worst(store: Store, run_id: str, of: StepMetric, *, lowest: bool) -> Iterator[str]:
    with store.reading() as connection:
        found = read_table(
            connection,
            f"""
            SELECT sample_id, score, coalesce(user_input, response, '') AS text
            FROM scores JOIN samples USING (run_id, sample_id)
            WHERE run_id = $run AND scores.step = $step AND metric = $metric AND status = 'scored'
            ORDER BY score {"ASC" if lowest else "DESC"}, sample_id LIMIT {_WORST}
            """,
            run=run_id,
            step=of.step,
            metric=of.metric,
        )
    for sample, score, text in found.iter_rows():
        shown = f": {escape_controls(shorten(text))}" if text else ""
        which = "lowest" if lowest else "highest"
        yield f"  {which}: {escape_controls(sample)} {format_number(score)}{shown}"


def _failed_gates(store: Store, run_id: str) -> Iterator[str]:
    for one in recorded_outcomes(store, run_id):
        if one.outcome == "fail":
            gate, value, interval, _, reason = gate_cells(one)
            yield f"gate failed: {gate}: {value} ({interval}), {reason}"


def _failed_rows(store: Store, run_id: str, allowed: int) -> Iterator[str]:
    steps = run_steps(store, run_id).filter(pl.col("failures") > 0)
    failed = int(steps["failures"].sum())
    if failed > allowed:
        where = ", ".join(f"{row['step']} {row['failures']:,}" for row in steps.to_dicts())
        yield f"{format_count(failed, 'row')} failed, at most {allowed:,} allowed: {where}"
