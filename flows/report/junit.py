"""A run as JUnit XML."""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import polars as pl

from claimflow.flows.quality.gates import Outcome, recorded_outcomes
from claimflow.flows.report.formatting import format_number
from claimflow.flows.report.markdown import metric_name
from claimflow.flows.report.overview import RunHead, run_head
from claimflow.flows.report.run_text import gate_cells
from claimflow.flows.store import results
from claimflow.flows.store import results as accounts
from claimflow.flows.store.store import Store

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 lets into no document (section 2.2), not even by number."""

_TOLD: Final = 20


def run_junit(store: Store, run_id: str) -> str:
    """A run as JUnit XML: its gates, its steps and its metrics, each a suite of test cases.

    A gate that failed and a step with failed rows are failures, with their reasons. A gate that
    is inconclusive and a metric without a mean are skipped. A run that did not come to its end
    is an error.
    """
    run = run_head(store, run_id)
    suites = [
        _suite("run", [_of_run(run)]),
        _suite("gates", map(_of_gate, recorded_outcomes(store, run_id))),
        _suite("steps", _of_steps(store, run_id)),
        _suite("metrics", _of_metrics(results.summaries(store, run_id))),
    ]
    root = Element("testsuites", name=_clean(run.pipeline))
    for suite in suites:
        for case in suite:
            case.set("classname", f"{_clean(run.pipeline)}.{suite.get('name')}")
        if len(suite):
            suite.set("timestamp", run.started_at.isoformat(timespec="seconds"))
            root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(name: str, cases: Iterable[Element]) -> Element:
    suite = Element("testsuite", name=name)
    suite.extend(cases)
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(suite)))
    for counter, tag in kinds.items():
        suite.set(counter, str(len(suite.findall(f"*/{tag}"))))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in suite):.3f}")
    return suite


def _case(name: str, *, seconds: float = 0.0) -> Element:
    return Element("testcase", name=_clean(name), time=f"{seconds:.3f}")


def _of_run(run: RunHead) -> Element:
    case = _case("came to its end")
    _tell(case, "system-out", f"run {run.run_id}")
    if run.status != "done":
        words = f"the run is {run.status}"
        _tell(case, "error", run.reason or words, message=words)
    return case


def _of_gate(one: Outcome) -> Element:
    gate, value, interval, outcome, reason = gate_cells(one)
    case = _case(gate)
    words = f"{value} ({interval}), {reason}"
    if outcome == "pass":
        _tell(case, "system-out", words)
    else:
        tag = "failure" if outcome == "fail" else "skipped"
        _tell(case, tag, words, message=f"gate {outcome}: {gate}: {words}")
    return case


def _of_steps(store: Store, run_id: str) -> Iterator[Element]:
    for step in results.run_steps(store, run_id).iter_rows(named=True):
        case = _case(step["step"], seconds=step["seconds"])
        if step["failures"]:
            rows = accounts.failed_rows(store, run_id, step["step"], _TOLD).to_dicts()
            told = [
                ": ".join(filter(None, (row["sample_id"], row["failure"], row["reason"])))
                for row in rows
            ]
            more = step["failures"] - len(told)
            told += [f"and {more:,} more"] if more > 0 else []
            words = f"{step['failures']:,} of {step['row_count']:,} rows failed"
            _tell(case, "failure", "\n".join(told), message=words)
        yield case


def _of_metrics(summaries: pl.DataFrame) -> Iterator[Element]:
    whole = summaries.filter(pl.col("slice_field").is_null())
    for row in whole.iter_rows(named=True):
        case = _case(metric_name(row, whole))
        counts = f"{row['n_scored']:,} of {row['n']:,} samples scored"
        if row["mean"] is None:
            _tell(case, "skipped", "", message=counts)
        else:
            interval = "-"
            if row["low"] is not None:
                interval = f"{format_number(row['low'])} to {format_number(row['high'])}"
            _tell(case, "system-out", f"mean {format_number(row['mean'])} ({interval}), {counts}")
        yield case


def _tell(case: Element, tag: str, text: str, *, message: str | None = None) -> None:
    told = SubElement(case, tag)
    told.text = _clean(text) or None
    if message is not None:
        told.set("message", _clean(message))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
