"""What a run says while it goes on: a bar on a terminal, a line a step in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from claimflow.flows.report.phrases import made_words
from claimflow.flows.runner.run import Made, Watch

_SECONDS: Final = 15.0
"""Between two lines on how many questions are answered."""


class LineWatch:
    """A plain line on standard error for every step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = clock()

    def began(self, run_id: str, killed: list[str]) -> None:
        """Name the run, and earlier ones that died."""
        for name in killed:
            _line(f"run {name} was killed; the tables it had made are kept and will be reused")
        _line(f"run {run_id}")

    def advanced(self, step: str, done: int, of: int) -> None:
        """Say how far a table of many parts has come, every tenth part."""
        if of >= 10 and done < of and done % (of // 10) == 0:
            _line(f"  {step}: {done} of {of} parts")

    def answered(self, step: str, done: int, of: int) -> None:
        """Say how far a model has come, every now and then."""
        if self._clock() - self._told_at >= _SECONDS:
            self._told_at = self._clock()
            _line(f"  {step}: {done:,} of {of:,} questions answered")

    def finished(self, made: Made) -> None:
        """Say what became of a step."""
        _line(step_line(made))


class BarWatch(LineWatch):
    """The same lines above a bar of the steps that are being made."""

    def __init__(self, progress: Progress, steps: int) -> None:
        super().__init__()
        self._progress = progress
        self._all = progress.add_task("steps", total=steps)
        self._bars: dict[str, TaskID] = {}

    def advanced(self, step: str, done: int, of: int) -> None:
        """Move the bar of a table of many parts."""
        if of > 1:
            self._move(step, done, of)

    def answered(self, step: str, done: int, of: int) -> None:
        """Move the bar of the questions that a step is asking."""
        self._move(f"{step}: questions", done, of)

    def _move(self, name: str, done: int, of: int) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=of)
        self._progress.update(self._bars[name], completed=done, total=of)

    def finished(self, made: Made) -> None:
        """Print the step's line above the bars and count it."""
        for name in (made.step, f"{made.step}: questions"):
            if name in self._bars:
                self._progress.remove_task(self._bars.pop(name))
        self._progress.console.print(step_line(made), markup=False, highlight=False)
        self._progress.advance(self._all)


@contextmanager
def watching(steps: int) -> Iterator[Watch]:
    """A watch for a run of `steps` steps, fit for where standard error goes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineWatch()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarWatch(progress, steps)


def step_line(made: Made) -> str:
    """One line on a finished step."""
    return f"  {made.step}: {made_words(made)}"


def _line(text: str) -> None:
    # Steps end side by side: `print` writes the end of a line apart, and another comes between.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
