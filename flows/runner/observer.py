"""Observers of a run: progress bars, log lines, Prefect task runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.artifacts import Artifact

MakeStep = Callable[[str, Mapping[str, Artifact]], Artifact]
"""Makes the table of a step by name, from the tables of the steps it needs."""


class StepResult(NamedTuple):
    """How a step ended: its table, whether it was reused or made, and in how many seconds.

    `reused_samples` counts the samples whose rows were copied from an earlier table.
    """

    step: str
    artifact: Artifact
    reused: bool
    seconds: float
    reused_samples: int = 0


class RunObserver:
    """Receives the events of a run. Every method does nothing here: override what you need.

    The methods are called from several threads. An exception raised in one fails the run.
    """

    def message(self, text: str) -> None:
        """A message for the user, such as which model is being downloaded."""

    def run_prepared(self, prepared: Prepared) -> None:
        """The pipeline and its samples are known; nothing has been written or asked yet."""

    def run_started(self, run_id: str, steps: Sequence[str], killed: Sequence[str]) -> None:
        """The run is recorded; `steps` will be reused or made, `samples` first.

        `killed` are the ids of earlier runs whose processes were found to have died.
        """

    def step_progress(self, step: str, done: int, total: int) -> None:
        """`done` of the `total` parts of a step's table are made."""

    def questions_answered(self, step: str, done: int, total: int) -> None:
        """`done` of the `total` questions that a step asks a model are answered."""

    def step_finished(self, result: StepResult) -> None:
        """A step was reused or made."""

    def make_step(self, step: str, inputs: Mapping[str, Artifact], make: MakeStep) -> Artifact:
        """Make a step by calling `make`; an override can wrap the call, or repeat it."""
        return make(step, inputs)
