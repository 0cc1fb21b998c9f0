"""One run of a pipeline: find or make each step."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import duckdb
import polars as pl

from flows.engine.artifacts import Artifact, Draft, Making, find
from flows.engine.errors import StoppedError
from flows.engine.fingerprint import step_fingerprint, step_recipe
from flows.engine.parts import (
    GROUP,
    Thing,
    grouped,
    input_parts,
    made_at_once,
    make_at_once,
    make_parts,
    whole_inputs,
)
from flows.engine.prepare import SHARD, Prepared
from flows.engine.runs import note
from flows.engine.store import Store
from flows.engine.toolbox import Toolbox
from flows.engine.wiring import Step
from flows.engine.workers import Workers
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
        self._workers = Workers(stop)

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

    def close(self) -> None:
        """End the processes that the run has started."""
        self._workers.close()

    def _samples(self) -> Making:
        key = content_key("samples", self._prepared.digest)
        settings = {"mapping": dict(self._prepared.samples.mapping)}
        recipe = content_key("recipe", SAMPLES)
        return Making(self.run_id, key, recipe, {}, SAMPLES, 1, settings, {})

    def _making(self, step: Step, inputs: Mapping[str, Artifact]) -> Making:
        stage = step.stage
        digests = {need: artifact.digest for need, artifact in inputs.items()}
        tools = self._toolbox.identities(step)
        key = step_fingerprint(stage, step.inputs, digests, tools)
        return Making(
            self.run_id,
            key,
            step_recipe(stage, tools),
            _made_of(step, inputs),
            stage.use,
            stage.version,
            stage.model_dump(mode="json"),
            tools,
        )

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
        draft = Draft(self._store, Sample, making, shards=-(-source.count // SHARD))
        return self._filled(draft, name, source.shards(SHARD), GROUP)

    def _draft(self, name: str, making: Making, inputs: Mapping[str, Artifact]) -> Artifact:
        step = self.steps[name]
        stage, tools = step.stage, self._toolbox.lend(step)
        shards = inputs[SAMPLES].shards if stage.per_sample else 1
        draft = Draft(self._store, stage.makes, making, shards=shards)
        if not stage.per_sample:
            whole = stage.make(whole_inputs(self._store, step, inputs), tools)
            return self._filled(draft, name, [whole], 1)
        if made_at_once(stage, tools):
            made = make_at_once(self._store, step, inputs, of=shards)
            return self._filled(draft, name, made, GROUP)
        size = 1 if tools else GROUP  # What a tool has said is written at once.
        parts = self._unless_stopped(input_parts(self._store, step, inputs, of=shards, size=size))
        made = make_parts(stage, parts, tools, self._workers, of=shards)
        return self._filled(draft, name, made, size)

    def _filled(
        self, draft: Draft, name: str, parts: Iterable[pl.DataFrame], size: int
    ) -> Artifact:
        done = 0
        for group in self._unless_stopped(grouped(parts, size)):
            draft.add(done, *group)
            for _ in group:
                done += 1
                self._watch.advanced(name, done, draft.shards)
        return draft.artifact()

    def _unless_stopped(self, things: Iterable[Thing]) -> Iterator[Thing]:
        for thing in things:
            if self.stop.is_set():
                raise StoppedError
            yield thing


def _made_of(step: Step, inputs: Mapping[str, Artifact]) -> dict[str, str | dict[str, str]]:
    """The artifact of each input of a step; those of a step that takes many by their step."""
    return {
        name: inputs[wire].artifact_id
        if isinstance(wire, str)
        else {one: inputs[one].artifact_id for one in wire}
        for name, wire in step.inputs.items()
    }
