"""One run of a pipeline: find or make each step."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import duckdb
import polars as pl

from flows.engine.artifacts import Artifact, Draft, Making, find, read
from flows.engine.errors import StoppedError
from flows.engine.fingerprint import step_fingerprint
from flows.engine.prepare import SHARD, Prepared
from flows.engine.runs import note
from flows.engine.store import Store
from flows.engine.toolbox import Toolbox
from flows.engine.wiring import Step
from stages.keys import content_key
from stages.rows import Sample

SAMPLES = "samples"


class Made(NamedTuple):
    """How a step ended: its table, whether it was found or made, and in what time."""

    step: str
    artifact: Artifact
    reused: bool
    seconds: float


class Watch(Protocol):
    """Whoever wants to see a run go on. Called from several threads."""

    def began(self, run_id: str, killed: list[str]) -> None:
        """A run is on record; `killed` are earlier runs that were found to have died."""
        ...

    def advanced(self, step: str, done: int, of: int) -> None:
        """`done` of `of` parts of a step's table are made."""
        ...

    def answered(self, step: str, done: int, of: int) -> None:
        """`done` of the `of` questions that a step is asking a model have been answered."""
        ...

    def finished(self, made: Made) -> None:
        """A step is done."""
        ...


class Run:
    """One execution of a prepared pipeline on its store.

    `again` names steps to make even where an equal table is on file. Setting `stop`, which
    the tools look at too, ends the run within moments.
    """

    def __init__(
        self,
        run_id: str,
        prepared: Prepared,
        store: Store,
        toolbox: Toolbox,
        *,
        stop: threading.Event,
        watch: Watch,
        again: frozenset[str] = frozenset(),
    ) -> None:
        self.run_id = run_id
        self.steps = {step.name: step for step in prepared.pipeline.steps}
        self.stop = stop
        self._prepared = prepared
        self._store = store
        self._toolbox = toolbox
        self._watch = watch
        self._again = again
        self._position = {name: i for i, name in enumerate([SAMPLES, *self.steps])}
        self._turns: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def make(self, name: str, inputs: Mapping[str, Artifact]) -> Artifact:
        """The table of a step, found or made from `inputs` (by the name of their step).

        Raises `StoppedError` when the run was asked to stop.
        """
        started = time.monotonic()
        making = self._samples() if name == SAMPLES else self._making(self.steps[name], inputs)
        with self._turns[making.fingerprint]:
            made = self._found(name, making, started)
            if made is None:
                draft = self._draft_samples if name == SAMPLES else self._draft
                artifact = draft(name, making, inputs)
                made = Made(name, artifact, False, time.monotonic() - started)
                with self._store.writing() as connection:
                    self._note(connection, made)
        self._watch.finished(made)
        return made.artifact

    def _samples(self) -> Making:
        key = content_key("samples", self._prepared.digest)
        settings = {"mapping": dict(self._prepared.samples.mapping)}
        return Making(self.run_id, key, SAMPLES, 1, settings, {})

    def _making(self, step: Step, inputs: Mapping[str, Artifact]) -> Making:
        stage = step.stage
        digests = {need: artifact.digest for need, artifact in inputs.items()}
        tools = self._toolbox.identities(step)
        key = step_fingerprint(stage, step.inputs, digests, tools)
        settings = stage.model_dump(mode="json")
        return Making(self.run_id, key, stage.use, stage.version, settings, tools)

    def _found(self, name: str, making: Making, started: float) -> Made | None:
        if name in self._again:
            return None
        with self._store.writing() as connection:
            artifact = find(connection, making.fingerprint)
            if artifact is None:
                return None
            made = Made(name, artifact, True, time.monotonic() - started)
            self._note(connection, made)
        return made

    def _note(self, connection: duckdb.DuckDBPyConnection, made: Made) -> None:
        note(
            connection,
            self.run_id,
            step=made.step,
            position=self._position[made.step],
            artifact=made.artifact,
            reused=made.reused,
            seconds=made.seconds,
        )

    def _draft_samples(self, name: str, making: Making, _: Mapping[str, Artifact]) -> Artifact:
        source = self._prepared.samples
        shards = -(-source.count // SHARD)
        draft = Draft(self._store, Sample, making, shards=shards)
        for shard, frame in enumerate(source.shards(SHARD)):
            self._add(draft, name, shard, shards, frame)
        return draft.artifact()

    def _draft(self, name: str, making: Making, inputs: Mapping[str, Artifact]) -> Artifact:
        step = self.steps[name]
        tools = self._toolbox.lend(step)
        shards = inputs[SAMPLES].shards if step.stage.per_sample else 1
        draft = Draft(self._store, step.stage.makes, making, shards=shards)
        for shard in range(shards):
            part = shard if step.stage.per_sample else None
            table = step.stage.make(self._tables(step, inputs, part), tools)
            self._add(draft, name, shard, shards, table)
        return draft.artifact()

    def _add(self, draft: Draft, name: str, shard: int, shards: int, frame: pl.DataFrame) -> None:
        if self.stop.is_set():
            raise StoppedError
        draft.add(shard, frame)
        self._watch.advanced(name, shard + 1, shards)

    def _tables(
        self, step: Step, inputs: Mapping[str, Artifact], shard: int | None
    ) -> dict[str, Any]:
        """The inputs of a step, whole or one part of each, read in one window."""
        with self._store.reading() as connection:

            def table(name: str, wire: str) -> pl.DataFrame:
                columns = step.stage.columns.get(name, ())
                row = step.stage.inputs[name].row
                return read(connection, row, inputs[wire], shard=shard, columns=columns)

            return {
                name: table(name, wire)
                if isinstance(wire, str)
                else {one: table(name, one) for one in wire}
                for name, wire in step.inputs.items()
            }
