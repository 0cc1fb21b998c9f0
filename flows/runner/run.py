"""One run of a pipeline: each step found or made."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import duckdb

from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.corrections import CorrectedTable, find_corrected, make_corrected
from claimflow.flows.runner.incremental import SAMPLES
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.table_builder import BuiltTable, TableBuilder
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.flows.store.artifacts import Artifact, Provenance, find_artifact
from claimflow.flows.store.edits import Edit, Edits
from claimflow.flows.store.fingerprint import step_fingerprint, step_recipe
from claimflow.flows.store.runs import record_step
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key


class Run:
    """One execution of the chosen steps of a pipeline on its store.

    Setting `stop`, which the tools look at too, ends the run within moments.
    """

    def __init__(
        self,
        run_id: str,
        prepared: Prepared,
        choice: StepSelection,
        store: Store,
        toolbox: Toolbox,
        workers: Workers,
        *,
        stop: threading.Event,
        observer: RunObserver,
    ) -> None:
        self.run_id = run_id
        self.steps = {step.name: step for step in choice.steps}
        self.stop = stop
        self._prepared = prepared
        self._again = choice.again
        self._store = store
        self._toolbox = toolbox
        self._observer = observer
        self.results: dict[str, StepResult] = {}
        self._position = {name: i for i, name in enumerate([SAMPLES, *self.steps])}
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._drafting = TableBuilder(prepared.samples, store, workers, stop, observer)
        self._edits = Edits(store, prepared.pipeline.name, lambda: prepared.samples.shards(SHARD))

    def make(self, name: str, inputs: Mapping[str, Artifact]) -> Artifact:
        """The table of a step, found or made from `inputs` (by the name of their step).

        Raises `StoppedError` when the run was asked to stop.
        """
        started = time.monotonic()
        making = self._samples() if name == SAMPLES else self._making(self.steps[name], inputs)
        edits = self._edits.of(self.steps[name]) if name != SAMPLES else []
        with self._turns[making.fingerprint]:
            made = self._found(name, making, started, last=not edits)
            if made is None:
                artifact, taken_over = self._drafted(name, making, inputs)
                seconds = time.monotonic() - started
                made = StepResult(name, artifact, False, seconds, taken_over)
                if not edits:
                    with self._store.writing() as connection:
                        self._note(connection, made)
            if edits:
                made = self._edited(made, making, edits, started)
        self.results[name] = made
        self._observer.step_finished(made)
        return made.artifact

    def _drafted(self, name: str, making: Provenance, inputs: Mapping[str, Artifact]) -> BuiltTable:
        if name == SAMPLES:
            return self._drafting.samples(making)
        step = self.steps[name]
        tools = self._toolbox.lend(step)
        return self._drafting.table(step, making, inputs, tools, anew=name in self._again)

    def _samples(self) -> Provenance:
        key = content_key("samples", self._prepared.samples.digest)
        settings = {"mapping": dict(self._prepared.samples.mapping)}
        recipe = content_key("recipe", SAMPLES)
        return Provenance(self.run_id, key, recipe, {}, SAMPLES, 1, settings, {})

    def _making(self, step: Step, inputs: Mapping[str, Artifact]) -> Provenance:
        stage = step.stage
        digests = {need: artifact.digest for need, artifact in inputs.items()}
        tools = self._toolbox.identities(step)
        key = step_fingerprint(stage, step.inputs, digests, tools)
        return Provenance(
            self.run_id,
            key,
            step_recipe(stage, tools),
            _made_of(step, inputs),
            stage.use,
            stage.version,
            stage.model_dump(mode="json"),
            tools,
        )

    def _edited(
        self, below: StepResult, making: Provenance, edits: Sequence[Edit], started: float
    ) -> StepResult:
        """The table with what people corrected laid over the one that the step gave."""
        row = self.steps[below.step].stage.makes
        overlay = CorrectedTable(row, below.artifact, edits)
        found = find_corrected(self._store, overlay)
        artifact = found or make_corrected(
            self._store, overlay, making, lambda: self._prepared.samples.shards(SHARD)
        )
        seconds = time.monotonic() - started
        made = StepResult(below.step, artifact, found is not None, seconds, below.taken_over)
        with self._store.writing() as connection:
            self._note(connection, made)
        return made

    def _found(
        self, name: str, making: Provenance, started: float, *, last: bool
    ) -> StepResult | None:
        """The table on file; put on record where it is the `last` word on the step."""
        if name in self._again:
            return None
        with self._store.writing() as connection:
            artifact = find_artifact(connection, making.fingerprint)
            if artifact is None:
                return None
            made = StepResult(name, artifact, True, time.monotonic() - started)
            if last:
                self._note(connection, made)
        return made

    def _note(self, connection: duckdb.DuckDBPyConnection, made: StepResult) -> None:
        record_step(
            connection,
            self.run_id,
            step=made.step,
            position=self._position[made.step],
            artifact=made.artifact,
            reused=made.reused,
            seconds=made.seconds,
        )


def _made_of(step: Step, inputs: Mapping[str, Artifact]) -> dict[str, str | dict[str, str]]:
    """The artifact of each input of a step; those of a step that takes many by their step."""
    return {
        name: inputs[wire].artifact_id
        if isinstance(wire, str)
        else {one: inputs[one].artifact_id for one in wire}
        for name, wire in step.inputs.items()
    }
