"""One run of a pipeline: find or make each step."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

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
        if name == SAMPLES:
            artifact, reused = self._samples()
        else:
            artifact, reused = self._step(self.steps[name], inputs)
        made = Made(name, artifact, reused, time.monotonic() - started)
        note(
            self._store,
            self.run_id,
            step=name,
            position=self._position[name],
            artifact=artifact,
            reused=reused,
            seconds=made.seconds,
        )
        self._watch.finished(made)
        return artifact

    def _samples(self) -> tuple[Artifact, bool]:
        source, digest = self._prepared.samples, self._prepared.digest
        key = content_key("samples", digest)
        found = find(self._store, key)
        if found:
            return found, True
        shards = -(-source.count // SHARD)
        making = Making(self.run_id, key, SAMPLES, 1, {"mapping": dict(source.mapping)}, {})
        draft = Draft(self._store, Sample, making, shards=shards)
        for shard, frame in enumerate(source.shards(SHARD)):
            self._add(draft, SAMPLES, shard, shards, frame)
        return draft.artifact(), False

    def _step(self, step: Step, inputs: Mapping[str, Artifact]) -> tuple[Artifact, bool]:
        digests = {need: artifact.digest for need, artifact in inputs.items()}
        tools = self._toolbox.identities(step.stage)
        key = step_fingerprint(step.stage, step.inputs, digests, tools)
        with self._turns[key]:
            found = None if step.name in self._again else find(self._store, key)
            if found:
                return found, True
            settings = step.stage.model_dump(mode="json")
            making = Making(self.run_id, key, step.stage.use, step.stage.version, settings, tools)
            return self._draft(step, inputs, making), False

    def _draft(self, step: Step, inputs: Mapping[str, Artifact], making: Making) -> Artifact:
        tools = self._toolbox.lend(step.stage)
        shards = inputs[SAMPLES].shards if step.stage.per_sample else 1
        draft = Draft(self._store, step.stage.makes, making, shards=shards)
        for shard in range(shards):
            part = shard if step.stage.per_sample else None
            table = step.stage.make(self._tables(step, inputs, part), tools)
            self._add(draft, step.name, shard, shards, table)
        return draft.artifact()

    def _add(self, draft: Draft, name: str, shard: int, shards: int, frame: pl.DataFrame) -> None:
        if self.stop.is_set():
            raise StoppedError
        draft.add(shard, frame)
        self._watch.advanced(name, shard + 1, shards)

    def _tables(
        self, step: Step, inputs: Mapping[str, Artifact], shard: int | None
    ) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        for name, wire in step.inputs.items():
            row = step.stage.inputs[name].row
            columns = step.stage.columns.get(name, ())
            if isinstance(wire, str):
                tables[name] = read(self._store, row, inputs[wire], shard=shard, columns=columns)
            else:
                tables[name] = {
                    w: read(self._store, row, inputs[w], shard=shard, columns=columns) for w in wire
                }
        return tables
