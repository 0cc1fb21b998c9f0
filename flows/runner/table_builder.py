"""Builds the table of a step part by part and writes it to the store."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    Item,
    can_batch_parts,
    grouped,
    input_parts,
    make_batched_parts,
    make_parts,
    whole_inputs,
)
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.artifacts import Artifact, ArtifactWriter, Provenance
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Sample


class TableBuilder:
    """Builds the tables of one run; raises `StoppedError` when the run was stopped."""

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

    def build_samples(self, provenance: Provenance) -> Artifact:
        """Write the table of the samples."""
        shards = -(-self._samples.count // SHARD)
        writer = ArtifactWriter(self._store, Sample, provenance, shards=shards)
        return self._write(writer, SAMPLES, self._samples.shards(SHARD), GROUP)

    def build(
        self,
        step: Step,
        provenance: Provenance,
        inputs: Mapping[str, Artifact],
        tools: Mapping[str, Any],
        *,
        anew: bool,
    ) -> tuple[Artifact, int]:
        """Write the table that a step makes of `inputs`.

        Returns it and the number of samples whose rows were copied from an earlier table, which
        is 0 where the table is made `anew`.
        """
        stage = step.stage
        shards = inputs[SAMPLES].shards if stage.per_sample else 1
        writer = ArtifactWriter(self._store, stage.makes, provenance, shards=shards)
        size = GROUP
        unchanged = pl.DataFrame()
        if can_reuse_rows(stage, tools) and not anew:
            samples = self._samples.shards(SHARD)
            unchanged = unchanged_samples(self._store, stage, provenance.recipe, samples)
        if not stage.per_sample:
            whole = stage.make(whole_inputs(self._store, step, inputs), tools)
            parts: Iterable[pl.DataFrame] = [whole]
        elif can_batch_parts(stage, tools):
            size = AT_ONCE
            parts = make_batched_parts(self._store, step, inputs, of=shards)
        elif unchanged.height:
            remaining = -(-(self._samples.count - unchanged.height) // SHARD)
            table = IncrementalTable(self._store, step, inputs, unchanged)
            parts = self._until_stopped(table.parts(self._workers, remaining=remaining))
        else:
            size = 1 if tools else GROUP  # Rows that cost model calls are written at once.
            read = input_parts(self._store, step, inputs, of=shards, size=size)
            parts = make_parts(stage, self._until_stopped(read), tools, self._workers, of=shards)
        return self._write(writer, step.name, parts, size), unchanged.height

    def _write(
        self, writer: ArtifactWriter, name: str, parts: Iterable[pl.DataFrame], size: int
    ) -> Artifact:
        done = 0
        for group in self._until_stopped(grouped(parts, size)):
            writer.add(done, *group)
            for _ in group:
                done += 1
                self._observer.step_progress(name, done, writer.shards)
        return writer.artifact()

    def _until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self._stop.is_set():
                raise StoppedError
            yield item
