"""Builds the table of a step part by part and writes it to the store."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.judge import PART
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.chains import MadeAhead, link, sample_columns
from claimflow.flows.runner.incremental import (
    SAMPLES,
    IncrementalTable,
    can_reuse_rows,
    unchanged_samples,
)
from claimflow.flows.runner.make import (
    Link,
    StageFailedError,
    is_importable,
    make_chain,
    make_table,
)
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import SHARD
from claimflow.flows.runner.tools import CachedEmbedder, CachedEntailment, StoppableParser
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

_PARSED: Final = 100
"""Samples that a worker parses at once, in a few seconds."""

_AT_ENDPOINT: Final = 2
"""Parts whose questions an endpoint answers at the same time: it need not wait while the rows of a
part are made, nor for the slowest of its answers."""

_EMBEDDED: Final = CachedEmbedder, CachedEntailment, StoppableParser
"""The tools whose models can run on workers."""

_CHUNK_BYTES: Final = 8 << 20
"""Bytes of samples that a worker gets at once; Dask warns of 10 MB."""

_AHEAD: Final = 4
"""Steps that workers begin while the samples are being stored."""

_SIDE_BY_SIDE: Final = 4
"""Parts whose questions a cluster answers at the same time: 160 batches of texts."""

Tables = Mapping[str, Any]
Item = TypeVar("Item")


class TableBuilder:
    """Builds the tables of one run; raises `StoppedError` when the run was stopped.

    The tables of the steps in `again` are made anew, without rows of earlier tables. `followers`
    gives the steps that can be made together with one.
    """

    def __init__(
        self,
        samples: SampleSource,
        store: Store,
        workers: Workers,
        stop: threading.Event,
        observer: RunObserver,
        *,
        again: Collection[str] = (),
        followers: Callable[[Step], Sequence[Step]] = lambda _: (),
    ) -> None:
        self._samples = samples
        self._store = store
        self._stop = stop
        self._observer = observer
        self._workers = workers
        self._again = again
        self._followers = followers
        self._unchanged: dict[str, pl.DataFrame] = {}
        self._ahead = MadeAhead()

    def close(self) -> None:
        """End what workers make that no step has asked for."""
        self._ahead.close()

    def build_samples(self, provenance: Provenance, steps: Iterable[Step] = ()) -> Artifact:
        """Write the table of the samples; meanwhile workers begin with those of `steps`."""
        for step in islice(filter(self._can_begin, steps), _AHEAD):
            chain = self._chain(step, {})
            cut = self._chunks_of_part(step.stage, {})
            parts = self._sample_parts(sample_columns(chain) or tuple(Sample.model_fields))
            self._ahead.start(step, self._parts_of_workers(chain, parts, {}, cut=cut))
        shards = -(-self._samples.count // SHARD)
        writer = ArtifactWriter(self._store, Sample, provenance, shards=shards)
        artifact = self._write(writer, SAMPLES, self._samples.shards(SHARD), GROUP)
        self._ahead.made(SAMPLES, artifact)
        return artifact

    def build(
        self,
        step: Step,
        provenance: Provenance,
        inputs: Mapping[str, Artifact],
        tools: Mapping[str, Any],
        *,
        in_batches: bool = False,
        part_made: Callable[[], None] = lambda: None,
    ) -> tuple[Artifact, int]:
        """Write the table that a step makes of `inputs`.

        With `in_batches` all parts are made at the same time, so that they wait together.
        `part_made` is called in the thread of a part when it is made beside others. Returns the
        table and the number of samples whose rows were copied from an earlier table.
        """
        stage = step.stage
        shards = inputs[SAMPLES].shards if stage.per_sample else 1
        writer = ArtifactWriter(self._store, stage.makes, provenance, shards=shards)
        size = GROUP
        unchanged = self._unchanged_samples(step, provenance.recipe)
        made_ahead = self._ahead.take(step, inputs) if stage.per_sample else None
        parts: Iterable[pl.DataFrame]
        if made_ahead is not None:
            parts = made_ahead
            size = GROUP if stage.by_row else AT_ONCE
        elif not stage.per_sample:
            parts = _make_whole(self._store, step, inputs, tools)
        elif _can_batch_parts(stage, tools):
            size = AT_ONCE
            parts = _make_batched_parts(self._store, step, inputs, of=shards)
        elif unchanged.height:
            remaining = self._samples.count - unchanged.height
            table = IncrementalTable(self._store, step, inputs, unchanged)
            parts = self._until_stopped(
                table.parts(
                    _grouped(range(shards), GROUP),
                    lambda changed: self._parts([step], changed, tools, samples=remaining),
                )
            )
        else:
            size = 1 if tools else GROUP  # Rows that cost model calls are written at once.
            chain = self._chain(step, tools)
            self._ahead.made(SAMPLES, inputs[SAMPLES])
            read = _input_parts(self._store, chain, inputs, of=shards, size=size)
            parts = self._parts(
                chain,
                self._until_stopped(read),
                tools,
                samples=self._samples.count,
                in_batches=in_batches,
                part_made=part_made,
            )
        try:
            artifact = self._write(writer, step.name, parts, size)
            self._ahead.made(step.name, artifact)
            return artifact, unchanged.height
        except StageFailedError as error:
            self._observer.message(f"warning: step {step.name} failed, its table is empty: {error}")
            failures = max(1, self._samples.count)
            writer = ArtifactWriter(
                self._store, stage.makes, provenance, shards=shards, failures=failures
            )
            empty = pl.DataFrame(schema=schema(stage.makes))
            return self._write(writer, step.name, [empty] * shards, size), 0

    def _unchanged_samples(self, step: Step, recipe: str) -> pl.DataFrame:
        """Those whose rows are in an earlier table, as `unchanged_samples` returns them."""
        if step.name not in self._unchanged:
            reuse = can_reuse_rows(step.stage) and step.name not in self._again
            self._unchanged[step.name] = (
                unchanged_samples(self._store, step.stage, recipe, self._samples.shards(SHARD))
                if reuse
                else pl.DataFrame()
            )
        return self._unchanged[step.name]

    def _can_begin(self, step: Step) -> bool:
        """Whether workers can make the whole table of a step that needs nothing but the samples."""
        stage = step.stage
        alone = set(step.needs) == {SAMPLES} and not stage.needed_tools
        return (
            alone
            and self._chunks_of_part(stage, {}) > 0
            and self._unchanged_samples(step, step_recipe(stage, {})).is_empty()
        )

    def _sample_parts(self, columns: Sequence[str]) -> Iterator[Tables]:
        for part in self._until_stopped(self._samples.shards(SHARD)):
            yield {SAMPLES: part.select(columns)}

    def _chunks_of_part(
        self, stage: Stage, tools: Mapping[str, Any], samples: int | None = None
    ) -> int:
        """Into how many chunks each part of `samples` (None: all) is cut for workers.

        0 where they do not make the stage.
        """
        parsers = [tool for tool in tools.values() if isinstance(tool, StoppableParser)]
        if not stage.by_row or len(parsers) < len(tools) or not is_importable(stage):
            return 0
        samples = self._samples.count if samples is None else samples
        of = -(-samples // SHARD)
        cut = -(-self._workers.shards // max(of, 1))
        if parsers:
            cut = max(cut, -(-min(samples, SHARD) // _PARSED))
        return cut if self._workers.worth(of * cut) else 0

    def _chain(self, step: Step, tools: Mapping[str, Any]) -> list[Step]:
        """A step, and those whose tables workers make with it, if they make it."""
        if not self._chunks_of_part(step.stage, tools):
            return [step]
        others = self._followers(step)
        self._ahead.expect(others)
        return [step, *others]

    def _parts(
        self,
        chain: Sequence[Step],
        parts: Iterable[Tables],
        tools: Mapping[str, Any],
        *,
        samples: int,
        in_batches: bool = False,
        part_made: Callable[[], None] = lambda: None,
    ) -> Iterator[pl.DataFrame]:
        """The rows that the first step of a chain makes of each part of that many `samples`, in
        order."""
        stage = chain[0].stage
        in_threads = partial(_make_in_threads, stage, parts, tools, part_made=part_made)
        embedded = all(isinstance(tool, _EMBEDDED) for tool in tools.values())
        if not embedded:
            return in_threads(side_by_side=-(-samples // SHARD) if in_batches else _AT_ENDPOINT)
        cut = self._chunks_of_part(stage, tools, samples)
        if cut:
            return self._parts_of_workers(chain, parts, tools, cut=cut)
        if tools and self._workers.worth(1):
            return in_threads(side_by_side=_SIDE_BY_SIDE)
        return (make_table(stage, tables, tools) for tables in parts)

    def _parts_of_workers(
        self,
        chain: Sequence[Step],
        parts: Iterable[Tables],
        parsers: Mapping[str, StoppableParser],
        *,
        cut: int,
    ) -> Generator[pl.DataFrame]:
        """Parts of the first step made by workers, and those of the other steps, to be kept.

        A part that is samples alone is cut into `cut` chunks.
        """
        counts: deque[int] = deque()
        links = [link(step) for step in chain]
        tools = {name: parser.identity for name, parser in parsers.items()}

        def chunks() -> Iterator[tuple[Sequence[Link], Tables, Tables]]:
            for tables in parts:
                pieces = _pieces(tables, cut)
                counts.append(len(pieces))
                for piece in pieces:
                    yield links, piece, tools

        made = self._workers.each(make_chain, chunks(), what=chain[0].stage.use)
        for first in made:
            of_part = [first, *islice(made, counts.popleft() - 1)]
            # A chain that broke in one chunk is shorter.
            for step, *pieces in zip(chain[1:], *(one[1:] for one in of_part), strict=False):
                self._ahead.add(step.name, pl.concat(pieces))
            yield pl.concat(one[0] for one in of_part)

    def _write(
        self, writer: ArtifactWriter, name: str, parts: Iterable[pl.DataFrame], size: int
    ) -> Artifact:
        done = 0
        for group in self._until_stopped(_grouped_parts(parts, size)):
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


def _make_in_threads(
    stage: Stage,
    parts: Iterable[Tables],
    tools: Mapping[str, Any],
    *,
    side_by_side: int,
    part_made: Callable[[], None],
) -> Iterator[pl.DataFrame]:
    """Parts made in threads: else an endpoint, a batch or a cluster waits for part after part."""
    waiting: deque[Future[pl.DataFrame]] = deque()

    def make(number: int, tables: Tables) -> pl.DataFrame:
        PART.set(number)
        try:
            return make_table(stage, tables, tools)
        finally:
            part_made()

    with ThreadPoolExecutor(max(side_by_side, 1), thread_name_prefix="part") as pool:
        try:
            for number, tables in enumerate(parts):
                waiting.append(pool.submit(make, number, tables))
                if len(waiting) == side_by_side:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _pieces(tables: Tables, cut: int) -> list[Tables]:
    """The samples of a part in `cut` chunks, or in more where these would be large."""
    if set(tables) != {SAMPLES}:
        return [tables]
    samples = tables[SAMPLES]
    cut = max(cut, -(-int(samples.estimated_size()) // _CHUNK_BYTES))
    size = max(1, -(-samples.height // cut))
    starts = range(0, max(1, samples.height), size)
    return [{SAMPLES: samples.slice(start, size)} for start in starts]


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
