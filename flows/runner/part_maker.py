"""Makes the rows of a step part by part: in this process, in threads, or by workers.

Where a language model is asked, each part goes at once to the steps that need its rows, slice by
slice.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.judge import PART
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.chains import (
    MadeAhead,
    can_be_cut,
    followers,
    link,
    receivers,
    sample_columns,
)
from claimflow.flows.runner.incremental import SAMPLES
from claimflow.flows.runner.make import (
    Link,
    given_columns,
    is_importable,
    make_chain,
    make_table,
)
from claimflow.flows.runner.slices import slice_size, slices
from claimflow.flows.runner.tools import CachedEmbedder, CachedEntailment, StoppableParser
from claimflow.flows.runner.workers import Workers
from claimflow.flows.runner.workers.sub_folder import Rows
from claimflow.flows.samples.buffer import TableQueue
from claimflow.flows.samples.reader import SampleSource
from claimflow.stages.base import Stage
from claimflow.stages.rows import Sample

_PARSED: Final = 100
"""Samples that a worker parses at once, in a few seconds."""

_AT_ENDPOINT: Final = 2
"""Parts whose questions an endpoint answers at the same time: it need not wait while the rows of a
part are made, nor for the slowest of its answers."""

_EMBEDDED: Final = CachedEmbedder, CachedEntailment, StoppableParser
"""The tools whose models can run on workers."""

_CHUNK_BYTES: Final = 8 << 20
"""Bytes of samples that a worker gets at once; Dask warns of 10 MB."""

_SIDE_BY_SIDE: Final = 4
"""Parts whose questions a cluster answers at the same time: 160 batches of texts."""

_SLICES_AT_ENDPOINT: Final = 4
"""As `_AT_ENDPOINT`, of slices: fewer than there are, so that the first ones are finished before
the last ones begin."""

Tables = Mapping[str, Any]
Slice = tuple[Tables, bool]
"""The inputs of a step for a slice of a part, and whether it is the last one."""

Item = TypeVar("Item")


class StepTools(NamedTuple):
    """The tools of a step; with `in_batches` its parts are made at the same time, to wait together.

    `part_made` is called in the thread of a part when it is made beside others.
    """

    tools: Mapping[str, Any]
    in_batches: bool = False
    part_made: Callable[[], None] = lambda: None


def until_stopped(items: Iterable[Item], stop: threading.Event) -> Iterator[Item]:
    """The items; raises `StoppedError` once `stop` is set."""
    for item in items:
        if stop.is_set():
            raise StoppedError
        yield item


class PartMaker:
    """Makes the parts of the tables of one run, of `shard` samples each.

    `selection` has the steps of the run, `lend` gives the tools of each, and `edited` says whether
    people corrected its rows. `ahead` gets what is made before its own step asks for it. Raises
    `StoppedError` when the run was stopped.
    """

    def __init__(
        self,
        samples: SampleSource,
        workers: Workers,
        stop: threading.Event,
        selection: StepSelection,
        *,
        shard: int,
        lend: Callable[[Step], StepTools],
        edited: Callable[[Step], bool],
    ) -> None:
        self.ahead = MadeAhead()
        self._samples = samples
        self._workers = workers
        self._stop = stop
        self._shard = shard
        self._slice = slice_size(samples.count, shard)
        self._steps = selection.steps
        self._found = selection.found
        self._lend = lend
        self._edited = edited
        self._shared = workers.shared(samples.shards(shard))

    def can_begin(self, step: Step) -> bool:
        """Whether workers can make the whole table of a step that needs nothing but the samples."""
        alone = set(step.needs) == {SAMPLES} and not step.stage.needed_tools
        return alone and self._chunks_of_part(step.stage, {}) > 0

    def begin(self, step: Step) -> None:
        """Let workers begin with a step that `can_begin`, and with those that they make with it."""
        chain = self.chain(step, {})
        cut = self._chunks_of_part(step.stage, {})
        parts = self._sample_parts(_columns(chain), self._shared)
        self.ahead.start(step, self._parts_of_workers(chain, parts, {}, cut=cut))

    def chain(self, step: Step, tools: Mapping[str, Any]) -> list[Step]:
        """A step, and those whose tables workers make with it, if they make it."""
        if not self._chunks_of_part(step.stage, tools):
            return [step]
        others = followers(step, self._steps, self._edited)
        self.ahead.expect(step, others)
        return [step, *others]

    def all_parts(
        self, chain: Sequence[Step], lent: StepTools, read: Iterable[Tables]
    ) -> Generator[pl.DataFrame]:
        """The parts of the first step of a chain, made of its inputs in `read`, and `sent`."""
        first = chain[0]
        if self._makes_slices(first, lent):
            whole = self._samples.shards(self._shard)
            cut = (
                one
                for tables, samples in zip(read, whole, strict=True)
                for one in _cut(tables, slices(samples, self._slice))
            )
            return self._of_slices(first, lent, cut, send=True)
        if self._chunks_of_part(first.stage, lent.tools):
            read = self._with_shared(chain, read)
        made = self.parts(chain, lent, read, samples=self._samples.count)
        return self.sent(first, lent, made)

    def _with_shared(self, chain: Sequence[Step], read: Iterable[Tables]) -> Iterable[Tables]:
        """The inputs of a chain, with the samples that workers share, where they share them."""
        first = chain[0]
        if self._shared is None or SAMPLES not in first.inputs:
            return read
        shared = self._sample_parts(_columns(chain), self._shared)
        if set(first.inputs) == {SAMPLES}:
            return shared
        return ({**tables, **samples} for tables, samples in zip(read, shared, strict=True))

    def parts(
        self, chain: Sequence[Step], lent: StepTools, parts: Iterable[Tables], *, samples: int
    ) -> Generator[pl.DataFrame]:
        """The rows that the first step of a chain makes of its inputs in each of `parts`.

        All of them have so many `samples`.
        """
        stage, tools = chain[0].stage, lent.tools
        in_threads = partial(_make_in_threads, stage, parts, lent)
        if not _is_embedded(lent):
            at_once = -(-samples // self._shard) if lent.in_batches else _AT_ENDPOINT
            return in_threads(side_by_side=at_once)
        cut = self._chunks_of_part(stage, tools, samples)
        if cut:
            return self._parts_of_workers(chain, parts, tools, cut=cut)
        if tools and self._workers.worth(1):
            return in_threads(side_by_side=_SIDE_BY_SIDE)
        return (make_table(stage, tables, tools) for tables in parts)

    def _sample_parts(
        self, columns: Sequence[str], shared: Iterable[Rows] | None = None
    ) -> Iterator[Tables]:
        """The samples by part, as tables or as those that workers share."""
        parts: Iterable[Any] = shared or self._samples.shards(self._shard)
        for part in until_stopped(parts, self._stop):
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
        of = -(-samples // self._shard)
        cut = -(-self._workers.shards // max(of, 1))
        if parsers:
            cut = max(cut, -(-min(samples, self._shard) // _PARSED))
        return cut if self._workers.worth(of * cut) else 0

    def _makes_slices(self, step: Step, lent: StepTools) -> bool:
        """Whether a step is made slice by slice: one that asks an endpoint about many samples.

        Not in batches, which wait together, and none of another package, which could give rows of
        two slices the same key.
        """
        stage = step.stage
        return (
            self._slice < min(self._samples.count, self._shard)
            and stage.per_sample
            and stage.source is None
            and can_be_cut(stage)
            and not lent.in_batches
            and not _is_embedded(lent)
        )

    def sent(
        self,
        step: Step,
        lent: StepTools,
        tables: Iterable[pl.DataFrame],
        *,
        sliced: bool = False,
    ) -> Generator[pl.DataFrame]:
        """The parts that a step makes, or its slices, each sent to the steps that can begin."""
        queues: list[TableQueue] = []
        ended: Exception | None = StoppedError()
        try:
            for receiver in receivers(step, self._steps, self._edited):
                theirs = self._lend(receiver)
                if receiver.name not in self._found and not (lent.in_batches or theirs.in_batches):
                    queues.append(TableQueue())
                    made = self._made_of(receiver, theirs, queues[-1], sliced=sliced)
                    self.ahead.start(receiver, made)
            for table in until_stopped(tables, self._stop):
                for queue in queues:
                    queue.add(table)
                yield table
            ended = None
        finally:
            for queue in queues:
                queue.close(ended)

    def _made_of(
        self, step: Step, lent: StepTools, rows: TableQueue, *, sliced: bool
    ) -> Generator[pl.DataFrame]:
        """The parts of a step whose only input beside the samples comes in `rows`."""
        by_slice = self._makes_slices(step, lent)
        read = self._received(step, rows, sliced=sliced, by_slice=by_slice)
        if by_slice:
            return self._of_slices(step, lent, read, send=False)
        parts = (tables for tables, _ in read)
        return self.parts([step], lent, parts, samples=self._samples.count)

    def _received(
        self, step: Step, rows: TableQueue, *, sliced: bool, by_slice: bool
    ) -> Iterator[Slice]:
        """The inputs of a step by part, or `by_slice`; `sliced` says whether `rows` come so."""
        names = [name for name, wire in step.inputs.items() if wire != SAMPLES]
        tables = iter(rows)

        def given(samples: pl.DataFrame, table: pl.DataFrame) -> Tables:
            return given_columns(step.stage, {SAMPLES: samples, **dict.fromkeys(names, table)})

        for part in self._sample_parts(tuple(Sample.model_fields)):
            samples = part[SAMPLES]
            cut = slices(samples, self._slice) if sliced or by_slice else [samples]
            if sliced and by_slice:
                for some in cut:
                    yield given(some, next(tables)), some is cut[-1]
                continue
            table = pl.concat([next(tables) for _ in cut]) if sliced else next(tables)
            yield from _cut(given(samples, table), cut if by_slice else [samples])

    def _of_slices(
        self, step: Step, lent: StepTools, read: Iterable[Slice], *, send: bool
    ) -> Generator[pl.DataFrame]:
        """The parts of a step, made of its inputs slice by slice; with `send` slices are sent."""
        ends: deque[bool] = deque()

        def inputs() -> Iterator[Tables]:
            for tables, ends_part in read:
                ends.append(ends_part)
                yield tables

        made = _make_in_threads(step.stage, inputs(), lent, side_by_side=_SLICES_AT_ENDPOINT)
        of_part = []
        for table in self.sent(step, lent, made, sliced=True) if send else made:
            of_part.append(table)
            if ends.popleft():
                yield pl.concat(of_part)
                of_part = []

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
                self.ahead.add(step.name, pl.concat(pieces))
            yield pl.concat(one[0] for one in of_part)


def _make_in_threads(
    stage: Stage, parts: Iterable[Tables], lent: StepTools, *, side_by_side: int
) -> Generator[pl.DataFrame]:
    """Parts made in threads: else an endpoint, a batch or a cluster waits for part after part."""
    waiting: deque[Future[pl.DataFrame]] = deque()

    def make(number: int, tables: Tables) -> pl.DataFrame:
        PART.set(number)
        try:
            return make_table(stage, tables, lent.tools)
        finally:
            lent.part_made()

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


def _columns(chain: Sequence[Step]) -> tuple[str, ...]:
    """The columns of the samples that the steps of a chain read."""
    return sample_columns(chain) or tuple(Sample.model_fields)


def _cut(tables: Tables, of_samples: Sequence[pl.DataFrame]) -> Iterator[Slice]:
    """The tables of a part, cut into slices of these samples."""
    if len(of_samples) == 1:
        yield tables, True
        return
    for samples in of_samples:
        ids = samples.select("sample_id")
        yield (
            {
                name: table.join(ids, on="sample_id", how="semi", maintain_order="left")
                for name, table in tables.items()
            },
            samples is of_samples[-1],
        )


def _is_embedded(lent: StepTools) -> bool:
    """Whether the models of all tools run here or on workers."""
    return all(isinstance(tool, _EMBEDDED) for tool in lent.tools.values())
