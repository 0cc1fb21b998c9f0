"""Builds the table of a step part by part and writes it to the store."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

import polars as pl

from claimflow.flows.errors import StoreError
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.chains import sample_columns
from claimflow.flows.runner.incremental import (
    SAMPLES,
    IncrementalTable,
    can_reuse_rows,
    unchanged_samples,
)
from claimflow.flows.runner.make import StageFailedError, make_table
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.part_maker import (
    PartMaker,
    StepTools,
    Tables,
    until_stopped,
)
from claimflow.flows.runner.prepare import SHARD
from claimflow.flows.runner.workers import Workers
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store.artifacts import (
    Artifact,
    ArtifactWriter,
    Provenance,
    read_artifact,
    read_shards,
)
from claimflow.flows.store.fingerprint import step_recipe
from claimflow.flows.store.segments import by_shard
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.rows import Sample
from claimflow.stages.tables import schema

GROUP: Final = 5
"""Parts read or written while the store is open once, since opening and closing costs CPU."""

AT_ONCE: Final = 10
"""Parts made in one call: their rows fill whole row groups, which DuckDB writes to its file
directly and not to its log first."""

_GROUP_BYTES: Final = 16 << 20
"""Bytes of parts that are written at once at most: writing needs several times as much memory."""

_AHEAD: Final = 4
"""Steps that workers begin while the samples are being stored."""

Item = TypeVar("Item")


_NO_STEPS: Final = StepSelection(())


def _no_tools(_step: Step) -> StepTools:
    return StepTools({})


def _no_provenance(step: Step, _inputs: Mapping[str, Artifact]) -> Provenance:
    raise KeyError(step.name)


class _EarlyTable(NamedTuple):
    """The table of a step that is written before `made_of`, its inputs by id, have a digest."""

    step: Step
    writer: ArtifactWriter
    made_of: Mapping[str, str]


class TableBuilder:
    """Builds the tables of one run; raises `StoppedError` when the run was stopped.

    `selection` has the steps of the run; the tables of those to be made again are made without
    rows of earlier tables. `lend` gives the tools of each step, `edited` says whether people
    corrected its rows, and `provenance` how its table is made of the tables of the steps it needs.
    """

    def __init__(  # noqa: PLR0913
        self,
        samples: SampleSource,
        store: Store,
        workers: Workers,
        stop: threading.Event,
        observer: RunObserver,
        *,
        selection: StepSelection = _NO_STEPS,
        lend: Callable[[Step], StepTools] = _no_tools,
        edited: Callable[[Step], bool] = lambda _: False,
        provenance: Callable[[Step, Mapping[str, Artifact]], Provenance] = _no_provenance,
    ) -> None:
        self._samples = samples
        self._store = store
        self._stop = stop
        self._observer = observer
        self._selection = selection
        self._lend = lend
        self._maker = PartMaker(
            samples, workers, stop, selection, shard=SHARD, lend=lend, edited=edited
        )
        self._provenance = provenance
        self._unchanged: dict[str, pl.DataFrame] = {}
        self._early: dict[str, _EarlyTable] = {}

    def close(self) -> None:
        """End what is made ahead and no step has asked for."""
        self._maker.ahead.close()
        for early in self._early.values():
            # Another error may be on its way.
            with suppress(StoreError):
                early.writer.discard()

    def build_samples(self, provenance: Provenance) -> Artifact:
        """Write the table of the samples; meanwhile workers begin with some of the steps."""
        for step in islice(filter(self._can_begin, self._selection.steps), _AHEAD):
            self._maker.begin(step)
        shards = -(-self._samples.count // SHARD)
        writer = ArtifactWriter(self._store, Sample, provenance, shards=shards)
        parts = until_stopped(self._samples.shards(SHARD), self._stop)
        artifact = self._write(writer, SAMPLES, parts, GROUP)
        self._maker.ahead.made(SAMPLES, artifact)
        return artifact

    def build(
        self, step: Step, provenance: Provenance, inputs: Mapping[str, Artifact]
    ) -> tuple[Artifact, int]:
        """Write the table that a step makes of `inputs`.

        Returns the table and the number of samples whose rows were copied from an earlier table.
        """
        if SAMPLES in inputs:
            self._maker.ahead.made(SAMPLES, inputs[SAMPLES])
        early = self._taken_early(step, provenance, inputs)
        if early is not None:
            return early, 0
        stage, lent = step.stage, self._lend(step)
        tools = lent.tools
        shards = inputs[SAMPLES].shards if stage.per_sample else 1
        writer = ArtifactWriter(self._store, stage.makes, provenance, shards=shards)
        size = GROUP
        unchanged = self._unchanged_samples(step, provenance.recipe)
        made_ahead = self._maker.ahead.take(step, inputs) if stage.per_sample else None
        send = partial(self._maker.sent, step, lent)
        if made_ahead is not None:
            if not stage.by_row:
                size = 1 if tools else AT_ONCE
            parts = send(made_ahead)
        elif not stage.per_sample:
            parts = send(_make_whole(self._store, step, inputs, tools))
        elif _can_batch_parts(stage, tools):
            size = AT_ONCE
            parts = send(_make_batched_parts(self._store, step, inputs, of=shards))
        elif unchanged.height:
            table = IncrementalTable(self._store, step, inputs, unchanged)
            remaining = self._samples.count - unchanged.height
            make = partial(self._maker.parts, [step], lent, samples=remaining)
            parts = send(table.parts(_grouped(range(shards), GROUP), make))
        else:
            size = 1 if tools else GROUP  # Rows that cost model calls are written at once.
            chain = self._maker.chain(step, tools)
            read = _input_parts(self._store, chain, inputs, of=shards, size=size)
            parts = self._maker.all_parts(chain, lent, read)
        try:
            followers = self._early_writers(step, writer, inputs) if stage.per_sample else []
            artifact = self._write(writer, step.name, parts, size, followers)
            self._maker.ahead.made(step.name, artifact)
            return artifact, unchanged.height
        except StageFailedError as error:
            self._observer.message(f"warning: step {step.name} failed, its table is empty: {error}")
            failures = max(1, self._samples.count)
            writer = ArtifactWriter(
                self._store, stage.makes, provenance, shards=shards, failures=failures
            )
            empty = pl.DataFrame(schema=schema(stage.makes))
            return self._write(writer, step.name, [empty] * shards, size), 0
        finally:
            # The steps that get its rows must not wait for more.
            parts.close()

    def _can_begin(self, step: Step) -> bool:
        """Whether workers can begin with a step, all of whose rows have to be made."""
        return (
            self._maker.can_begin(step)
            and self._unchanged_samples(step, step_recipe(step.stage, {})).is_empty()
        )

    def _unchanged_samples(self, step: Step, recipe: str) -> pl.DataFrame:
        """Those whose rows are in an earlier table, as `unchanged_samples` returns them."""
        if step.name not in self._unchanged:
            reuse = can_reuse_rows(step.stage) and step.name not in self._selection.again
            self._unchanged[step.name] = (
                unchanged_samples(self._store, step.stage, recipe, self._samples.shards(SHARD))
                if reuse
                else pl.DataFrame()
            )
        return self._unchanged[step.name]

    def _early_writers(
        self, first: Step, writer: ArtifactWriter, inputs: Mapping[str, Artifact]
    ) -> list[_EarlyTable]:
        """The tables of the steps that are made with `first`, whose own digest is not known yet.

        Their rows are stored while workers are busy, and not after them.
        """
        steps = self._maker.ahead.followers.pop(first.name, ())
        made = {SAMPLES: inputs[SAMPLES], first.name: writer.artifact()}
        found = []
        for step in steps:
            needed = {need: made[need] for need in step.needs}
            provenance = self._provenance(step, needed)._replace(fingerprint=str(uuid4()))
            early = ArtifactWriter(
                self._store, step.stage.makes, provenance, shards=writer.shards, early=True
            )
            made[step.name] = early.artifact()
            ids = {need: artifact.artifact_id for need, artifact in needed.items()}
            self._early[step.name] = _EarlyTable(step, early, ids)
            found.append(self._early[step.name])
        return found

    def _add_early(self, early: _EarlyTable, made: int) -> None:
        """Write the rows of a step as far as `made` parts of the first step of its chain are."""
        step, writer, _ = early
        count = made - writer.written
        if step.name not in self._early or (count < AT_ONCE and made < writer.shards):
            return
        parts = self._maker.ahead.next_parts(step, count)
        if parts is None:
            del self._early[step.name]
            self._maker.ahead.forget(step)
            writer.discard()
            return
        for group in _grouped_parts(parts, AT_ONCE):
            writer.add(writer.written, *group)

    def _taken_early(
        self, step: Step, provenance: Provenance, inputs: Mapping[str, Artifact]
    ) -> Artifact | None:
        """The table of a step whose rows are stored already, if they were made of `inputs`."""
        if step.name not in self._early:
            return None
        _, writer, made_of = self._early.pop(step.name)
        if made_of != {need: inputs[need].artifact_id for need in step.needs}:
            self._maker.ahead.forget(step)
            writer.discard()
            return None
        writer.name(provenance)
        self._observer.step_progress(step.name, writer.shards, writer.shards)
        self._maker.ahead.made(step.name, writer.artifact())
        return writer.artifact()

    def _write(
        self,
        writer: ArtifactWriter,
        name: str,
        parts: Iterable[pl.DataFrame],
        size: int,
        followers: Sequence[_EarlyTable] = (),
    ) -> Artifact:
        done = 0
        for group in _grouped_parts(parts, size):
            writer.add(done, *group)
            for early in followers:
                self._add_early(early, done + len(group))
            for _ in group:
                done += 1
                self._observer.step_progress(name, done, writer.shards)
        return writer.artifact()


def _grouped_parts(parts: Iterable[pl.DataFrame], size: int) -> Iterator[list[pl.DataFrame]]:
    """`parts` in lists of `size`, or of fewer that are `_GROUP_BYTES` together."""
    group: list[pl.DataFrame] = []
    for part in parts:
        group.append(part)
        if len(group) == size or sum(one.estimated_size() for one in group) > _GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def _grouped(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """`items` in lists of `size`; the last list may be shorter."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _make_whole(
    store: Store, step: Step, inputs: Mapping[str, Artifact], tools: Mapping[str, Any]
) -> Iterator[pl.DataFrame]:
    """The table of a stage that gets all samples at once."""
    yield make_table(step.stage, _whole_inputs(store, step, inputs), tools)


def _whole_inputs(store: Store, step: Step, inputs: Mapping[str, Artifact]) -> Tables:
    """The inputs of a step, read while the store is open once."""
    with store.reading() as connection:

        def table(name: str, wire: str) -> pl.DataFrame:
            row, columns = step.stage.inputs[name].row, step.stage.columns_of(name)
            return read_artifact(connection, row, inputs[wire], columns=columns)

        return step.collect(table)


def _input_parts(
    store: Store, chain: Sequence[Step], inputs: Mapping[str, Artifact], *, of: int, size: int
) -> Iterator[Tables]:
    """The inputs of the first step of a chain in `of` parts; of the samples what any step reads.

    `size` parts are read while the store is open once.
    """
    columns = sample_columns(chain)
    for shards in _grouped(range(of), size):
        tables = _read(store, chain[0], inputs, shards, of_samples=columns)
        parts = {name: by_shard(table, shards) for name, table in tables.items()}
        for number in range(len(shards)):
            yield {name: tables[number] for name, tables in parts.items()}


def _can_batch_parts(stage: Stage, tools: Mapping[str, Any]) -> bool:
    """Whether a stage can make several parts in one call, because its rows name their sample.

    Polars needs about a millisecond for each expression, however few the rows; a stage that
    goes through its rows in Python gains nothing.
    """
    return not tools and not stage.by_row and "sample_id" in stage.makes.model_fields


def _make_batched_parts(
    store: Store, step: Step, inputs: Mapping[str, Artifact], *, of: int
) -> Iterator[pl.DataFrame]:
    """As `_make_parts`, several parts in one call: the same rows in the same order."""
    for shards in _grouped(range(of), AT_ONCE):
        columns = step.stage.columns_of(SAMPLES)
        tables = _read(store, step, inputs, shards, of_samples=columns)
        shard_of = tables["samples"].select("sample_id", "shard")
        given = {name: table.drop("shard") for name, table in tables.items()}
        made = make_table(step.stage, given, {})
        placed = made.join(shard_of, on="sample_id", how="left", maintain_order="left")
        yield from by_shard(placed, shards)


def _read(
    store: Store,
    step: Step,
    inputs: Mapping[str, Artifact],
    shards: Sequence[int],
    *,
    of_samples: Sequence[str],
) -> dict[str, pl.DataFrame]:
    wires = {name: wire for name, wire in step.inputs.items() if isinstance(wire, str)}
    rows = step.stage.inputs
    columns = {name: step.stage.columns_of(name) for name in wires} | {SAMPLES: of_samples}
    with store.reading() as connection:
        return {
            name: read_shards(
                connection, rows[name].row, inputs[wire], shards, columns=columns[name]
            )
            for name, wire in wires.items()
        }
