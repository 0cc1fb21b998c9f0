"""The steps of a run as Prefect task runs."""

import logging
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final

from prefect import Task, get_run_logger
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from claimflow.flows.errors import PendingError, StoreBusyError, StoreError
from claimflow.flows.orchestration.artifacts import PROGRESS_SECONDS, ProgressArtifacts
from claimflow.flows.report.formatting import format_count
from claimflow.flows.report.run_text import step_result_text
from claimflow.flows.runner.observer import MakeStep, RunObserver, StepResult
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.results import calls_of_step
from claimflow.flows.store.store import Store

RETRIES: Final = 2
"""How often a step is retried while another process keeps the store locked."""

RETRY_DELAY: Final = 60.0
"""Seconds between two tries."""

AWAITING: Final = "AwaitingBatches"
"""The state, of type Completed, of a flow run or task run that ended before its batches did.

Not "Pending": to an automation that would be a run which has yet to start."""


def _is_not_event_traceback(record: logging.LogRecord) -> bool:
    """Filter: of an event that the server did not take Prefect logs a line and a traceback."""
    return "failed to process item" not in record.getMessage()


logging.getLogger("prefect._internal.concurrency").addFilter(_is_not_event_traceback)


class TaskRunObserver(RunObserver):
    """Makes each step in a task run of the current flow run, and logs with Prefect's logger.

    A task run ends with a line on rows made, reused and failed, calls and their cost,
    which Prefect logs and shows as the message of its state. A step whose task run Prefect
    cannot record is made all the same. A step that takes longer than `progress_every` seconds has
    a progress artifact.
    """

    def __init__(
        self,
        store: Store,
        *,
        delay: float = RETRY_DELAY,
        progress_every: float = PROGRESS_SECONDS,
    ) -> None:
        self._store = store
        self._delay = delay
        self._progress_every = progress_every
        self._pipeline = ""
        self._progress = ProgressArtifacts("", "")
        self._run_id = ""
        self._results: dict[str, StepResult] = {}
        self._states: dict[str, State[Any]] = {}
        # Other threads make the steps and have messages; they do not inherit the context of the
        # flow run.
        self._context = copy_context()

    def message(self, text: str) -> None:
        """Log it."""
        self._context.copy().run(get_run_logger).info(text)

    def run_prepared(self, prepared: Prepared) -> None:
        """Log how many samples there are and which columns their fields are read from."""
        self._pipeline = prepared.pipeline.name
        mapping = prepared.samples.mapping.items()
        fields = ", ".join(f"{name} from {column}" for name, column in mapping)
        get_run_logger().info("%d samples: %s", prepared.samples.count, fields)

    def run_started(
        self,
        run_id: str,
        steps: Sequence[str],  # noqa: ARG002
        killed: Sequence[str],
    ) -> None:
        """Log the id of the run, and of earlier ones that were killed."""
        self._run_id = run_id
        self._progress = ProgressArtifacts(self._pipeline, run_id, every=self._progress_every)
        for name in killed:
            get_run_logger().warning("run %s was killed; what it had made is kept", name)
        get_run_logger().info("run %s", run_id)

    def step_progress(self, step: str, done: int, total: int) -> None:
        """Show it, now and then, as an artifact of the task run."""
        self._progress.update(step, done, total)

    def step_finished(self, result: StepResult) -> None:
        """Keep the result for the message of the task run."""
        self._results[result.step] = result

    def make_step(self, step: str, inputs: Mapping[str, Artifact], make: MakeStep) -> Artifact:
        """Make a step in a task run; raises only what `make` raises."""
        return self._context.copy().run(self._make_in_task, step, inputs, make)

    def _make_in_task(self, step: str, inputs: Mapping[str, Artifact], make: MakeStep) -> Artifact:
        def beginning(step: str, inputs: Mapping[str, Artifact]) -> Artifact:
            self._progress.begin(step)
            return make(step, inputs)

        made = _MakeOnce(step, inputs, beginning)

        def work() -> State[None]:
            try:
                made.artifact()
            except PendingError as error:
                return Completed(name=AWAITING, message=str(error))
            return Completed(message=self._message(step))

        task = Task(
            work,
            name=step,
            task_run_name=step,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=RETRIES,
            retry_delay_seconds=self._delay,
            retry_condition_fn=_store_was_busy,
        )
        after = [self._states[need] for need in inputs if need in self._states]
        try:
            self._states[step] = task(return_state=True, wait_for=after)
        except Exception as error:
            get_run_logger().warning("%s: not on record in Prefect (%r)", step, error)
        return made.result()

    def _message(self, step: str) -> str:
        result = self._results[step]
        return f"{step_result_text(result)}{'' if result.reused else self._cost(step)}"

    def _cost(self, step: str) -> str:
        try:
            calls, priced, cost = calls_of_step(self._store, self._run_id, step)
        except StoreError:
            return ""
        if not calls:
            return ""
        known = "" if cost is None else f", {cost:.4f} USD"
        unknown = (
            f", {format_count(calls - priced, 'call')} of unknown price" if calls > priced else ""
        )
        return f", {format_count(calls, 'call')}{known}{unknown}"


class _MakeOnce:
    """Makes a step once, however often Prefect calls or retries its task."""

    def __init__(self, step: str, inputs: Mapping[str, Artifact], make: MakeStep) -> None:
        self._step = step
        self._inputs = inputs
        self._make = make
        self._artifact: Artifact | None = None
        self._error: Exception | None = None

    def artifact(self) -> Artifact:
        """The table; made now unless it was made before. A failed attempt is repeated."""
        if self._artifact is None:
            try:
                self._artifact = self._make(self._step, self._inputs)
            except Exception as error:
                self._error = error
                raise
        return self._artifact

    def result(self) -> Artifact:
        """The table, or the error of the last attempt; made now if Prefect never called it."""
        if self._artifact is None and self._error is not None:
            raise self._error
        return self.artifact()


def _store_was_busy(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, StoreBusyError)
