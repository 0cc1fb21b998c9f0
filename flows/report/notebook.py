"""What a notebook shows: a result as HTML, and the progress of a run in one line."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from claimflow.flows.report.formatting import format_count
from claimflow.flows.runner.observer import RunObserver, StepResult

_BETWEEN: Final = 0.2
"""Least seconds between two updates of the line."""


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
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
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
