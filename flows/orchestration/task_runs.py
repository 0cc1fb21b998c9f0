"""The steps of a run as Prefect task runs."""

import logging
from collections.abc import Mapping
from contextvars import copy_context
from typing import Any, Final

from prefect import Task, get_run_logger
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from claimflow.flows.errors import StoreBusyError, StoreError
from claimflow.flows.report.phrases import made_words
from claimflow.flows.report.text import counted
from claimflow.flows.runner.execute import Make
from claimflow.flows.runner.run import Made
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.results import calls_of_step
from claimflow.flows.store.store import Store

RETRIES: Final = 2
"""How often a step is tried again when another process kept the store, each time for a minute."""

RETRY_DELAY: Final = 60.0


def _short(record: logging.LogRecord) -> bool:
    """Whether a line is worth it: of an event without a server two are written, one of pages."""
    return "failed to process item" not in record.getMessage()


logging.getLogger("prefect._internal.concurrency").addFilter(_short)


class Seen:
    """Watches a run: says which one it is, and keeps how its steps ended."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}

    def began(self, run_id: str, killed: list[str]) -> None:
        """Say which run this is, and which earlier ones died."""
        logger = get_run_logger()
        for name in killed:
            logger.warning("run %s was killed; what it had made is kept", name)
        logger.info("run %s", run_id)

    def advanced(self, step: str, done: int, of: int) -> None:
        """Parts of a table are not worth a line."""

    def answered(self, step: str, done: int, of: int) -> None:
        """Nor are questions."""

    def finished(self, made: Made) -> None:
        """Keep what became of a step."""
        self.made[made.step] = made


class TaskRuns:
    """Makes the steps of the run `run_id`, each in a task run of the flow run that goes on here.

    `seen` watches the same run. A task run ends with a line on rows made, reused, taken over
    and failed, calls and their cost, which Prefect logs and shows as the message of its state.
    """

    def __init__(
        self, run_id: str, store: Store, make: Make, seen: Seen, *, delay: float = RETRY_DELAY
    ) -> None:
        self._run_id = run_id
        self._store = store
        self._make_step = make
        self._seen = seen
        self._delay = delay
        self._states: dict[str, State[Any]] = {}
        # The engine's threads do not know of the flow run.
        self._context = copy_context()

    def make(self, name: str, inputs: Mapping[str, Artifact]) -> Artifact:
        """As `Run.make`, and raises what that does; nothing that goes wrong in Prefect."""
        return self._context.copy().run(self._make, name, inputs)

    def _make(self, name: str, inputs: Mapping[str, Artifact]) -> Artifact:
        step = _Step(self._make_step, name, inputs)

        def work() -> State[None]:
            step.make()
            return Completed(message=self._words(name))

        after = [self._states[need] for need in inputs if need in self._states]
        try:
            self._states[name] = self._task(name, work)(return_state=True, wait_for=after)
        except Exception as error:
            get_run_logger().warning("%s: not on record in Prefect (%r)", name, error)
        return step.result()

    def _task(self, name: str, work: Any) -> Task[[], Any]:
        return Task(
            work,
            name=name,
            task_run_name=name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=RETRIES,
            retry_delay_seconds=self._delay,
            retry_condition_fn=_store_was_busy,
        )

    def _words(self, name: str) -> str:
        made = self._seen.made[name]
        return f"{made_words(made)}{'' if made.reused else self._cost(name)}"

    def _cost(self, name: str) -> str:
        try:
            calls, priced, cost = calls_of_step(self._store, self._run_id, name)
        except StoreError:
            return ""
        if not calls:
            return ""
        known = "" if cost is None else f", {cost:.4f} USD"
        unknown = f", {counted(calls - priced, 'call')} of unknown price" if calls > priced else ""
        return f", {counted(calls, 'call')}{known}{unknown}"


class _Step:
    """A step, made once and for all whatever becomes of the word about it."""

    def __init__(self, make: Make, name: str, inputs: Mapping[str, Artifact]) -> None:
        self._make = make
        self._name = name
        self._inputs = inputs
        self._artifact: Artifact | None = None
        self._error: Exception | None = None

    def make(self) -> Artifact:
        if self._artifact is None:
            try:
                self._artifact = self._make(self._name, self._inputs)
            except Exception as error:
                self._error = error
                raise
        return self._artifact

    def result(self) -> Artifact:
        """What was made, or what kept it from being made; made now where nobody came to it."""
        if self._artifact is None and self._error is not None:
            raise self._error
        return self.make()


def _store_was_busy(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, StoreBusyError)
