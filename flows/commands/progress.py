"""What a run says while it goes on: a bar on a terminal, a line a step in a log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from flows.engine.runner import Made, Watch


class LineWatch:
    """A plain line on standard error for every step."""

    def began(self, run_id: str, killed: list[str]) -> None:
        """Name the run, and earlier ones that died."""
        for name in killed:
            _line(f"run {name} was killed; the tables it had made are kept and will be reused")
        _line(f"run {run_id}")

    def advanced(self, step: str, done: int, of: int) -> None:
        """Say how far a table of many parts has come, every tenth part."""
        if of >= 10 and done < of and done % (of // 10) == 0:
            _line(f"  {step}: {done} of {of} parts")

    def finished(self, made: Made) -> None:
        """Say what became of a step."""
        _line(step_line(made))


class BarWatch(LineWatch):
    """The same lines above a bar of the steps that are being made."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress = progress
        self._all = progress.add_task("steps", total=steps)
        self._parts: dict[str, TaskID] = {}

    def advanced(self, step: str, done: int, of: int) -> None:
        """Move the bar of a table of many parts."""
        if of > 1:
            if step not in self._parts:
                self._parts[step] = self._progress.add_task(step, total=of)
            self._progress.update(self._parts[step], completed=done)

    def finished(self, made: Made) -> None:
        """Print the step's line above the bars and count it."""
        if made.step in self._parts:
            self._progress.remove_task(self._parts.pop(made.step))
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
    failures = f", {made.artifact.failures} failed" if made.artifact.failures else ""
    how = "reused" if made.reused else f"made in {made.seconds:.1f} s"
    return f"  {made.step}: {made.artifact.row_count:,} rows {how}{failures}"


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
