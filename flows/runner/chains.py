"""Steps that are made together, before their inputs are stored.

In a chain, workers make a step and the steps that need nothing but its rows and the samples. Where
a language model is asked, a step sends its rows, slice by slice, to the steps that need them.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import polars as pl

from claimflow.flows.errors import StoppedError
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.incremental import SAMPLES, parses_at_most
from claimflow.flows.runner.make import Link, is_importable
from claimflow.flows.samples.buffer import TableQueue
from claimflow.flows.store.artifacts import Artifact
from claimflow.stages.base import Stage


def link(step: Step) -> Link:
    """A step whose inputs are single tables, as a worker gets it."""
    source = step.stage.source and step.stage.source.digest
    inputs = {name: wire for name, wire in step.inputs.items() if isinstance(wire, str)}
    return Link(step.name, step.stage, inputs, source)


def followers(first: Step, steps: Iterable[Step], edited: Callable[[Step], bool]) -> list[Step]:
    """The steps that need nothing but the samples and the rows of `first`, or of other followers.

    `steps` come in an order that their inputs allow. Rows that people corrected are not known to
    workers, so no step follows an `edited` one.
    """
    made = set() if edited(first) else {first.name}
    found = []
    for step in steps:
        needs = {need for need in step.needs if need != SAMPLES}
        if needs and needs <= made and _can_follow(step):
            found.append(step)
            if not edited(step):
                made.add(step.name)
    return found


def _can_follow(step: Step) -> bool:
    stage = step.stage
    alone = all(isinstance(wire, str) for wire in step.inputs.values())
    return alone and stage.per_sample and not stage.needed_tools and is_importable(stage)


def receivers(first: Step, steps: Iterable[Step], edited: Callable[[Step], bool]) -> list[Step]:
    """The steps that can be made of the samples and the rows of `first`, as these are made.

    Only where a language model is asked, before or after: elsewhere nothing waits for an endpoint.
    A step that needs two others waits for the tables of both.
    """
    if edited(first) or not first.stage.per_sample:
        return []
    return [
        step
        for step in steps
        if set(step.needs) == {SAMPLES, first.name}
        and all(isinstance(wire, str) for wire in step.inputs.values())
        and step.stage.per_sample
        and not parses_at_most(step.stage)
        and (first.judges or step.judges)
    ]


def can_be_cut(stage: Stage) -> bool:
    """Whether every row that a stage reads names its sample."""
    return all(
        "sample_id" in (stage.columns_of(name) or one.row.model_fields)
        for name, one in stage.inputs.items()
        if name not in stage.ignores()
    )


def sample_columns(steps: Iterable[Step]) -> tuple[str, ...]:
    """The columns of the samples that the steps read; empty for all of them."""
    of_each = [step.stage.columns_of(SAMPLES) for step in steps]
    return tuple(dict.fromkeys(chain.from_iterable(of_each))) if all(of_each) else ()


class MadeAhead:
    """Tables that are made before their own step asks for them.

    A chain of the samples begins while these are still being stored, and a step that gets its rows
    from another one while that is being made. The other steps of a chain are made with its first
    one: `followers` has them by its name.
    """

    def __init__(self) -> None:
        self.followers: dict[str, list[Step]] = {}
        self._parts: dict[str, TableQueue] = {}
        self._made: dict[str, str] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._closed = threading.Event()

    def expect(self, first: Step, steps: Sequence[Step]) -> None:
        """Make room for the tables of `steps`, which are made with `first`."""
        self.followers[first.name] = list(steps)
        for step in steps:
            self._parts[step.name] = TableQueue()

    def add(self, name: str, part: pl.DataFrame) -> None:
        """Keep the next part of the table of a step that is expected, unless it was forgotten."""
        if name in self._parts:
            self._parts[name].add(part)

    def next_parts(self, step: Step, count: int) -> Iterator[pl.DataFrame] | None:
        """The next `count` parts of a step of a chain, so many as of its first step were read.

        None where there are fewer, since the chain broke.
        """
        parts = self._parts[step.name]
        return islice(parts, count) if len(parts) >= count else None

    def forget(self, step: Step) -> None:
        """Drop the parts of a step of a chain, which is made by itself then."""
        self._parts.pop(step.name, None)

    def start(self, first: Step, parts: Generator[pl.DataFrame]) -> None:
        """Begin to make the table of a step in a thread of its own.

        That of the first step of a chain, or of one that gets its rows from another.
        """
        queue = self._parts[first.name] = TableQueue()

        def read() -> None:
            error = None
            try:
                for part in parts:
                    queue.add(part)
                    if self._closed.is_set():
                        raise StoppedError
            except BaseException as raised:
                error = raised
            parts.close()
            queue.close(error)

        self._threads[first.name] = thread = threading.Thread(target=read, name="chain")
        thread.start()

    def made(self, name: str, artifact: Artifact) -> None:
        """Note that the samples, or the table of a step of a chain, are stored."""
        self._made[name] = artifact.artifact_id

    def take(self, step: Step, inputs: Mapping[str, Artifact]) -> TableQueue | None:
        """The parts of a step that was started, if they are made of `inputs`; given once."""
        parts = self._parts.pop(step.name, None)
        of_inputs = all(self._made.get(need) == inputs[need].artifact_id for need in step.needs)
        return parts if step.name in self._threads and of_inputs else None

    def close(self) -> None:
        """End what is still being made; waits for it."""
        self._closed.set()
        # One that is still being made may begin another.
        while self._threads:
            _, thread = self._threads.popitem()
            thread.join()
