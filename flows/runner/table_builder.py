"""The tables of a run, built part by part."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.incremental import (
    SAMPLES,
    IncrementalTable,
    can_reuse_rows,
    unchanged_samples,
)
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import SHARD
from claimflow.flows.runner.table_parts import (
    AT_ONCE,
    GROUP,
    Thing,
    grouped,
    input_parts,
    made_at_once,
    make_at_once,
    make_parts,
    whole_inputs,
)
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.artifacts import Artifact, ArtifactWriter, Provenance
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Sample


class BuiltTable(NamedTuple):
    """A table on file, and how many samples' rows in it were taken over from earlier ones."""

    artifact: Artifact
    taken_over: int = 0


class TableBuilder:
    """Makes tables and writes them; raises `StoppedError` when the run was asked to stop."""

    def __init__(
        self,
        samples: SampleSource,
        store: Store,
        workers: Workers,
        stop: threading.Event,
        observer: RunObserver,
    ) -> None:
        self._samples = samples
        self._store = store
        self._stop = stop
        self._observer = observer
        self._workers = workers

    def samples(self, making: Provenance) -> BuiltTable:
        """The table of the samples."""
        draft = ArtifactWriter(self._store, Sample, making, shards=-(-self._samples.count // SHARD))
        return BuiltTable(self._filled(draft, SAMPLES, self._samples.shards(SHARD), GROUP))

    def table(
        self,
        step: Step,
        making: Provenance,
        inputs: Mapping[str, Artifact],
        tools: Mapping[str, Any],
        *,
        anew: bool,
    ) -> BuiltTable:
        """The table that a step makes of `inputs`; no row is taken over where it is made `anew`."""
        stage = step.stage
        shards = inputs[SAMPLES].shards if stage.per_sample else 1
        draft = ArtifactWriter(self._store, stage.makes, making, shards=shards)
        size = GROUP
        known = pl.DataFrame()
        if can_reuse_rows(stage, tools) and not anew:
            known = self._unchanged(step, making)
        if not stage.per_sample:
            whole = stage.make(whole_inputs(self._store, step, inputs), tools)
            parts: Iterable[pl.DataFrame] = [whole]
        elif made_at_once(stage, tools):
            size = AT_ONCE
            parts = make_at_once(self._store, step, inputs, of=shards)
        elif known.height:
            worth = -(-(self._samples.count - known.height) // SHARD)
            taking = IncrementalTable(self._store, step, inputs, known)
            parts = self._unless_stopped(taking.parts(self._workers, worth=worth))
        else:
            size = 1 if tools else GROUP  # What a tool has said is written at once.
            read = input_parts(self._store, step, inputs, of=shards, size=size)
            parts = make_parts(stage, self._unless_stopped(read), tools, self._workers, of=shards)
        return BuiltTable(self._filled(draft, step.name, parts, size), known.height)

    def _unchanged(self, step: Step, making: Provenance) -> pl.DataFrame:
        samples = self._samples.shards(SHARD)
        return unchanged_samples(self._store, step.stage, making.recipe, samples)

    def _filled(
        self, draft: ArtifactWriter, name: str, parts: Iterable[pl.DataFrame], size: int
    ) -> Artifact:
        done = 0
        for group in self._unless_stopped(grouped(parts, size)):
            draft.add(done, *group)
            for _ in group:
                done += 1
                self._observer.step_progress(name, done, draft.shards)
        return draft.artifact()

    def _unless_stopped(self, things: Iterable[Thing]) -> Iterator[Thing]:
        for thing in things:
            if self._stop.is_set():
                raise StoppedError
            yield thing
