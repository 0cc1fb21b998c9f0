"""What a notebook shows: a result as HTML, and the progress of a run in one line."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.report import comparison_text
from claimflow.flows.report.formatting import (
    format_count,
    format_difference,
    format_interval,
    format_number,
    shorten,
)
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import gate_line
from claimflow.flows.report.samples import traced_samples
from claimflow.flows.report.templates import asset, render_template
from claimflow.flows.runner.observer import RunObserver, StepResult

_BETWEEN: Final = 0.2
"""Least seconds between two updates of the line."""


_SAMPLES: Final = 5
_LIMITS: Final = {"most_claims": 20, "most_verdicts": 6, "most_metrics": 40}
"""Parts of a sample that are shown: a page of a notebook holds many results."""

_METRICS: Final = 60


def result_html(
    run: RunDocument,
    left_out: Mapping[str, str],
    comparison: Comparison | None,
    warnings: Iterable[str],
) -> str:
    """A run as a part of a page: metrics with intervals, then the lowest samples to unfold.

    `comparison` is with the baseline, whose differences become a column. There is no script and no
    address in it; its style applies to nothing else of the page.
    """
    means = run.means or run.score_means
    changes = {one.metric: one.difference for one in comparison.metrics} if comparison else {}
    columns = ["metric", "mean", "95 % interval", "scored", "of"]
    columns += [f"change from {comparison.a.run_id}"] if comparison else []
    rows = []
    for row in means[:_METRICS]:
        interval = format_interval(row["low"], row["high"])
        counts = [f"{row['n_scored']:,}", f"{row['n']:,}"]
        cells = [row["name"], format_number(row["mean"]), interval, *counts]
        if comparison:
            change = changes.get(row["name"])
            cells.append(
                "-"
                if change is None
                else f"{format_difference(change.mean)} "
                f"({format_interval(change.low, change.high, format_difference)})"
            )
        rows.append(cells)
    more = len(means) - len(rows)
    head = [f"run {run.run_id}: {run.counts}", run.failed, run.partial_line]
    notes = [
        run.no_means if not run.means else None,
        f"and {format_count(more, 'metric')} more" if more else None,
        *(gate_line(run.gates, outcome) for outcome in ("fail", "inconclusive", "skipped")),
        *warnings,
        *(f"left out: {metric}, {reason}" for metric, reason in left_out.items()),
        *run.call_lines,
    ]
    lowest = run.lowest(_SAMPLES)
    traced = traced_samples(run.store, run.run_id, [one.sample_id for one in lowest])
    samples = [
        (f"{one.mean:.3f}  {one.sample_id}  {shorten(one.user_input, 80)}", sample)
        for one, sample in zip(lowest, traced, strict=True)
    ]
    if samples:
        one = len(samples) == 1
        notes.append("the lowest sample:" if one else f"the {len(samples)} lowest samples:")
    return _render(head, columns if rows else (), rows, notes, samples)


def sample_html(sample: Mapping[str, Any]) -> str:
    """A sample of `traced_samples` as a part of a page, with its claims to unfold."""
    return _render([], (), [], [], [(f"sample {sample['sample_id']}", sample)])


def comparison_html(comparison: Comparison) -> str:
    """What changed between two runs as a part of a page: the table of metrics."""
    sides = (("A", comparison.a), ("B", comparison.b))
    head = [f"{side} {run.run_id} {comparison_text.run_facts_text(run)}" for side, run in sides]
    head.append(comparison_text.sample_counts_text(comparison))
    rows = comparison_text.metric_rows(comparison)[:_METRICS]
    notes = [
        *(f"made differently: {line}" for line in comparison_text.step_change_lines(comparison)),
        *comparison_text.one_sided_lines(comparison),
        *(
            ": ".join((change, f"{cause}, {count}"))
            for change, cause, count in comparison_text.cause_rows(comparison)
        ),
    ]
    return _render(head, comparison_text.METRIC_COLUMNS if rows else (), rows, notes, [])


def _render(
    head: Iterable[str | None],
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str | None],
    samples: Sequence[tuple[str, Mapping[str, Any]]],
) -> str:
    facts = {
        "style": asset(_PACKAGE, "notebook.css"),
        "head": [shorten(line, 600) for line in head if line],
        "columns": columns,
        "rows": rows,
        "notes": [shorten(line, 600) for line in notes if line],
        "samples": samples,
        **_LIMITS,
    }
    return render_template(_PACKAGE, "notebook.html.j2", facts)


_PACKAGE: Final = "claimflow.flows.report"


class _ProgressLine(RunObserver):
    """Shows one line on the state of a run by `show`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._shown_at = 0.0
        self._started = time.monotonic()
        self._run = ""
        self._done = self._steps = 0

    def message(self, text: str) -> None:
        """Show it."""
        self._show(text)

    def run_started(self, run_id: str, steps: Sequence[str], killed: Sequence[str]) -> None:  # noqa: ARG002
        """Show the run."""
        self._run, self._steps = run_id, len(steps)
        self._update(force=True)

    def step_progress(self, step: str, done: int, total: int) -> None:
        """Show how many parts of a long table are made."""
        if total > 1:
            self._update(f"{step}: {done:,} of {total:,} parts")

    def questions_answered(self, step: str, done: int, total: int) -> None:
        """Show how many questions are answered."""
        self._update(f"{step}: {done:,} of {total:,} questions answered")

    def step_finished(self, result: StepResult) -> None:
        """Count it."""
        with self._lock:
            self._done += 1
        self._update(result.step, force=self._done == self._steps)

    def _update(self, text: str = "", *, force: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            if not force and now - self._shown_at < _BETWEEN:
                return
            self._shown_at = now
            steps = f"{self._done} of {format_count(self._steps, 'step')}"
            state = f"run {self._run}: {steps}, {now - self._started:.0f} s"
            self._show(f"{state}, {text}" if text and self._done < self._steps else state)


@contextmanager
def progress_observer(progress: bool | RunObserver | None) -> Iterator[RunObserver]:
    """An observer for a run: None shows a line in a notebook only, True on a terminal too."""
    if isinstance(progress, RunObserver):
        yield progress
    elif progress is not False and _in_notebook():
        yield _ProgressLine(_notebook_line())
    elif progress:
        yield _ProgressLine(_terminal_line)
        _end_terminal_line()
    else:
        yield RunObserver()


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def _notebook_line() -> Callable[[str], None]:
    """A function that replaces a line of the output of this cell."""
    # By name: IPython is there in a notebook only, and its function has no types.
    display: Any = import_module("IPython.display").display
    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)


def _terminal_line(text: str) -> None:
    """Replace the last line of standard error, or add one where it is no terminal."""
    end = "" if sys.stderr.isatty() else "\n"
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{start}{text}{end}")
    sys.stderr.flush()


def _end_terminal_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\n")
