"""A run as JUnit XML."""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from claimflow.flows.quality.gates import Outcome
from claimflow.flows.report.formatting import format_interval, format_number
from claimflow.flows.report.run_document import RunDocument, RunHead
from claimflow.flows.report.run_text import gate_cells
from claimflow.flows.store.results import failed_rows

_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids (section 2.2), even as character references."""

_MAX_ROWS: Final = 20
"""Failed rows of a step that are listed."""


def run_junit(run: RunDocument) -> str:
    """A run as JUnit XML: its gates, its steps and its metrics, each a suite of test cases.

    A failed gate and a step with failed rows are failures, with their reasons. An inconclusive
    gate, a gate that was not checked and a metric without a mean are skipped, as is the case that
    only a partial run has. A run that did not finish is an error.
    """
    suites = [
        _suite("run", [_run_case(run.head), *_partial_cases(run)]),
        _suite("gates", map(_gate_case, run.gates)),
        _suite("steps", _step_cases(run)),
        _suite("metrics", _metric_cases(run)),
    ]
    root = Element("testsuites", name=_clean(run.head.pipeline))
    for suite in suites:
        for case in suite:
            case.set("classname", f"{_clean(run.head.pipeline)}.{suite.get('name')}")
        if len(suite):
            suite.set("timestamp", run.head.started_at.isoformat(timespec="seconds"))
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


def _run_case(run: RunHead) -> Element:
    case = _case("came to its end")
    _add(case, "system-out", f"run {run.run_id}")
    if run.status != "done":
        message = f"the run is {run.status}{f': {run.reason}' if run.reason else ''}"
        _add(case, "error", run.reason or message, message=message)
    return case


def _partial_cases(run: RunDocument) -> Iterator[Element]:
    if run.partial_line:
        case = _case("has all samples and steps")
        _add(case, "skipped", "", message=f"{run.head.partial}; {run.partial_line}")
        yield case


def _gate_case(one: Outcome) -> Element:
    gate, value, interval, outcome, reason = gate_cells(one)
    case = _case(gate)
    text = f"{value} ({interval}), {reason}"
    if outcome == "pass":
        _add(case, "system-out", text)
    else:
        tag = "failure" if outcome == "fail" else "skipped"
        _add(case, tag, text, message=f"gate {outcome}: {gate}: {text}")
    return case


def _step_cases(run: RunDocument) -> Iterator[Element]:
    for step in run.steps.iter_rows(named=True):
        case = _case(step["step"], seconds=step["seconds"])
        if step["failures"]:
            rows = failed_rows(run.store, run.run_id, step["step"], _MAX_ROWS)
            lines = [": ".join(filter(None, row)) for row in rows.iter_rows()]
            more = step["failures"] - len(lines)
            lines += [f"and {more:,} more"] if more > 0 else []
            message = f"{step['failures']:,} of {step['row_count']:,} rows failed"
            _add(case, "failure", "\n".join(lines), message=message)
        yield case


def _metric_cases(run: RunDocument) -> Iterator[Element]:
    for row in run.means:
        case = _case(row["name"])
        counts = f"{row['n_scored']:,} of {row['n']:,} samples scored"
        if row["mean"] is None:
            _add(case, "skipped", "", message=counts)
        else:
            interval = format_interval(row["low"], row["high"])
            _add(case, "system-out", f"mean {format_number(row['mean'])} ({interval}), {counts}")
        yield case


def _add(case: Element, tag: str, text: str, *, message: str | None = None) -> None:
    element = SubElement(case, tag)
    element.text = _clean(text) or None
    if message is not None:
        element.set("message", _clean(message))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
