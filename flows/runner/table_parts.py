"""The parts of a table: inputs read and rows made a few parts at a time."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final, TypeVar

import polars as pl

from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.tools import RememberingEmbedder, RememberingEntailment
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.flows.store.artifacts import Artifact, by_shard, read_artifact, read_shards
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage

GROUP: Final = 5
"""Parts read or written in one window of the store, since opening and closing it costs CPU."""

AT_ONCE: Final = 10
"""Parts that are made at once: their rows fill row groups of the store, which DuckDB then writes
to the file and not first to its log."""

_SIDE_BY_SIDE: Final = 4
"""Parts whose questions are with a cluster at the same time: 160 batches of texts."""

Tables = Mapping[str, Any]
Thing = TypeVar("Thing")


def grouped(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    """`things` in lists of `size`, the last one maybe shorter."""
    rest = iter(things)
    while group := list(islice(rest, size)):
        yield group


def whole_inputs(store: Store, step: Step, inputs: Mapping[str, Artifact]) -> Tables:
    """The inputs of a step, read in one window."""
    with store.reading() as connection:

        def table(name: str, wire: str) -> pl.DataFrame:
            row, columns = step.stage.inputs[name].row, step.stage.columns.get(name, ())
            return read_artifact(connection, row, inputs[wire], columns=columns)

        return {
            name: table(name, wire)
            if isinstance(wire, str)
            else {one: table(name, one) for one in wire}
            for name, wire in step.inputs.items()
        }


def input_parts(
    store: Store, step: Step, inputs: Mapping[str, Artifact], *, of: int, size: int
) -> Iterator[Tables]:
    """The inputs of a step part by part, `size` of the `of` parts read in one window."""
    for shards in grouped(range(of), size):
        tables = _read(store, step, inputs, shards)
        parts = {name: by_shard(table, shards) for name, table in tables.items()}
        for number in range(len(shards)):
            yield {name: tables[number] for name, tables in parts.items()}


def make_parts(
    stage: Stage, parts: Iterable[Tables], tools: Mapping[str, Any], workers: Workers, *, of: int
) -> Iterator[pl.DataFrame]:
    """What a stage makes of each of the `of` parts, in their order."""
    cut = -(-workers.shards // max(of, 1))
    if stage.by_row and not tools and workers.worth(of * cut):
        return _made_apart(stage, parts, workers, cut=cut)
    if _asked_apart(tools) and workers.worth(1):
        return _made_side_by_side(stage, parts, tools)
    return (stage.make(tables, tools) for tables in parts)


def _made_apart(
    stage: Stage, parts: Iterable[Tables], workers: Workers, *, cut: int
) -> Iterator[pl.DataFrame]:
    """The parts as workers make them, each cut into so many chunks where it is samples alone."""
    counts: deque[int] = deque()

    def chunks() -> Iterator[tuple[Stage, Tables]]:
        for tables in parts:
            pieces = _pieces(tables, cut)
            counts.append(len(pieces))
            for piece in pieces:
                yield stage, piece

    made = workers.each(make_table, chunks(), what=stage.use)
    for first in made:
        yield pl.concat([first, *islice(made, counts.popleft() - 1)])


def _asked_apart(tools: Mapping[str, Any]) -> bool:
    """Whether all that a stage asks can be asked of workers."""
    embedded = RememberingEmbedder, RememberingEntailment
    return bool(tools) and all(isinstance(tool, embedded) for tool in tools.values())


def _made_side_by_side(
    stage: Stage, parts: Iterable[Tables], tools: Mapping[str, Any]
) -> Iterator[pl.DataFrame]:
    """The parts as threads make them: a cluster would wait while one is looked up and written."""
    waiting: deque[Future[pl.DataFrame]] = deque()
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="part") as pool:
        try:
            for tables in parts:
                waiting.append(pool.submit(stage.make, tables, tools))
                if len(waiting) == _SIDE_BY_SIDE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _pieces(tables: Tables, cut: int) -> list[Tables]:
    if cut == 1 or set(tables) != {"samples"}:
        return [tables]
    samples = tables["samples"]
    size = max(1, -(-samples.height // cut))
    starts = range(0, max(1, samples.height), size)
    return [{"samples": samples.slice(start, size)} for start in starts]


def make_table(stage: Stage, tables: Tables) -> pl.DataFrame:
    """What a stage that needs no tools makes of a chunk: the work of a worker."""
    return stage.make(tables, {})


def made_at_once(stage: Stage, tools: Mapping[str, Any]) -> bool:
    """Whether a stage can make several parts at once, for its rows name their sample.

    Polars takes a millisecond for each expression that it sets out on, however few the rows;
    a stage that goes through its rows in Python gains nothing.
    """
    return not tools and not stage.by_row and "sample_id" in stage.makes.model_fields


def make_at_once(
    store: Store, step: Step, inputs: Mapping[str, Artifact], *, of: int
) -> Iterator[pl.DataFrame]:
    """What such a stage makes of each of the `of` parts: the same rows in the same order."""
    for shards in grouped(range(of), AT_ONCE):
        tables = _read(store, step, inputs, shards)
        shard_of = tables["samples"].select("sample_id", "shard")
        made = step.stage.make({name: t.drop("shard") for name, t in tables.items()}, {})
        placed = made.join(shard_of, on="sample_id", how="left", maintain_order="left")
        yield from by_shard(placed, shards)


def _read(
    store: Store, step: Step, inputs: Mapping[str, Artifact], shards: Sequence[int]
) -> dict[str, pl.DataFrame]:
    wires = {name: wire for name, wire in step.inputs.items() if isinstance(wire, str)}
    rows, columns = step.stage.inputs, step.stage.columns
    with store.reading() as connection:
        return {
            name: read_shards(
                connection, rows[name].row, inputs[wire], shards, columns=columns.get(name, ())
            )
            for name, wire in wires.items()
        }
