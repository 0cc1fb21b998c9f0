"""Progress of a run on standard error: a bar on a terminal, one line per step in a log."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from claimflow.flows.cli.output import write_message
from claimflow.flows.cli.stores import remember_store
from claimflow.flows.report.formatting import format_count
from claimflow.flows.report.run_text import step_result_text
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.store import Store

_SECONDS: Final = 15.0
"""Between two lines on how far the steps are."""


class LineObserver(RunObserver):
    """Writes one plain line for every step. Later commands find the `store` of the run."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._written_at = clock()

    def message(self, text: str) -> None:
        """Write it."""
        write_message(text)

    def run_prepared(self, prepared: Prepared) -> None:
        """Write the number of samples, the columns they are read from, and unshared limits."""
        mapping = prepared.samples.mapping.items()
        renamed = [f"{field} from {column}" for field, column in mapping if field != column]
        columns = f" ({', '.join(renamed)})" if renamed else ""
        write_message(f"{format_count(prepared.samples.count, 'sample')}{columns}")
        for place, limit in prepared.pipeline.shared_limits().items():
            write_message(
                f"{place}: {limit} is shared by runs that Prefect tracks; this one keeps to its "
                "own pace (set PREFECT_API_URL to share it)"
            )

    def run_started(
        self,
        run_id: str,
        steps: Sequence[str],  # noqa: ARG002
        killed: Sequence[str],
    ) -> None:
        """Write the id of the run, and of earlier ones that were killed."""
        for name in killed:
            write_message(
                f"run {name} was killed; the tables it had made are kept and will be reused"
            )
        write_message(f"run {run_id}")
        remember_store(self._store)

    def step_progress(self, step: str, done: int, total: int) -> None:
        """Write how many parts of a table are made, at most every 15 seconds."""
        if done < total:
            self._write_at_times(f"  {step}: {done:,} of {total:,} parts of the samples")

    def questions_answered(self, step: str, done: int, total: int) -> None:
        """Write how many questions are answered, at most every 15 seconds."""
        self._write_at_times(f"  {step}: {done:,} of {total:,} questions answered")

    def _write_at_times(self, line: str) -> None:
        if self._clock() - self._written_at >= _SECONDS:
            self._written_at = self._clock()
            write_message(line)

    def step_finished(self, result: StepResult) -> None:
        """Write how the step ended."""
        write_message(step_line(result))


class BarObserver(LineObserver):
    """The same lines above progress bars of the steps that are being made."""

    def __init__(self, store: Store, progress: Progress) -> None:
        super().__init__(store)
        self._progress = progress
        self._all = progress.add_task("steps", total=None)
        self._bars: dict[str, TaskID] = {}

    def run_started(self, run_id: str, steps: Sequence[str], killed: Sequence[str]) -> None:
        """As above; the number of steps is known from now on."""
        super().run_started(run_id, steps, killed)
        self._progress.update(self._all, total=len(steps))

    def step_progress(self, step: str, done: int, total: int) -> None:
        """Move the bar of a table of many parts."""
        if total > 1:
            self._move(step, done, total)

    def questions_answered(self, step: str, done: int, total: int) -> None:
        """Move the bar of the questions that a step is asking."""
        self._move(f"{step}: questions", done, total)

    def _move(self, name: str, done: int, total: int) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._bars[name], completed=done, total=total)

    def step_finished(self, result: StepResult) -> None:
        """Print the step's line above the bars and count it."""
        for name in (result.step, f"{result.step}: questions"):
            if name in self._bars:
                self._progress.remove_task(self._bars.pop(name))
        self._progress.console.print(step_line(result), markup=False, highlight=False)
        self._progress.advance(self._all)


@contextmanager
def progress_observer(store: Store) -> Iterator[RunObserver]:
    """An observer for a run on `store`: bars where standard error is a terminal, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineObserver(store)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarObserver(store, progress)


def step_line(result: StepResult) -> str:
    """One line on a finished step."""
    return f"  {result.step}: {step_result_text(result)}"
