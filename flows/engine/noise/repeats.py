"""A pipeline's tables made several times over, as though nobody had asked its judges before."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.noise.variance import Source
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.rows import Score

_SAMPLES: Final = "samples"

Lend = Callable[[Step, int], Mapping[str, Any]]
"""The tools of a step at a repeat, by the name of its parameter."""

Complete = Callable[[Step, pl.DataFrame], pl.DataFrame]
"""Adds to a step's table what is not known yet."""


class Design(NamedTuple):
    """How often everything is repeated: decompositions, and verifications of each of them.

    An axis of length 1 is that of steps that no judge makes: they come out the same each time.
    """

    decompositions: int
    verifications: int


class Cell(NamedTuple):
    """One repeat of a table: the number of the decomposition, and of the verification in it."""

    decomposition: int
    verification: int


class Repeats:
    """The tables of a pipeline over some samples, each made once for every repeat of its own.

    A decomposition is asked for under the number of its repeat, a verification under one that
    no other has, so that neither shares an answer. More repeats leave the numbers of the
    others as they are.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        samples: pl.DataFrame,
        repeats: int,
        lend: Lend,
        complete: Complete = lambda _, table: table,
    ) -> None:
        self._steps = {step.name: step for step in pipeline.steps}
        self._samples = samples
        self._lend = lend
        self._complete = complete
        self._made: dict[tuple[str, Cell], pl.DataFrame] = {}
        self.sources = _sources(self._steps)
        self.scores = [step for step in pipeline.steps if step.stage.makes is Score]
        vary = frozenset[Source]().union(*(self.sources[step.name] for step in self.scores))
        of = repeats if "decomposition" in vary else 1
        each = (2 if of > 1 else repeats) if "verification" in vary else 1
        self.design = Design(of, each)

    def needed(self) -> frozenset[str]:
        """The steps that scores are made of, those that make them among them."""
        found: set[str] = set()
        left = [step.name for step in self.scores]
        while left:
            name = left.pop()
            if name in self._steps and name not in found:
                found.add(name)
                left += self._steps[name].needs
        return frozenset(found)

    def cells(self, step: str) -> Iterator[Cell]:
        """The repeats of a step's table that may differ."""
        sources = self.sources[step]
        for decomposition in range(self.design.decompositions if sources else 1):
            for verification in range(
                self.design.verifications if "verification" in sources else 1
            ):
                yield Cell(decomposition, verification)

    def table(self, name: str, cell: Cell) -> pl.DataFrame:
        """The table of a step at a repeat."""
        if name == _SAMPLES:
            return self._samples
        sources = self.sources[name]
        verification = cell.verification if "verification" in sources else 0
        own = Cell(cell.decomposition if sources else 0, verification)
        if (name, own) not in self._made:
            self._made[name, own] = self._make(self._steps[name], own)
        return self._made[name, own]

    def _make(self, step: Step, cell: Cell) -> pl.DataFrame:
        tables: dict[str, Any] = {
            name: self.table(wire, cell)
            if isinstance(wire, str)
            else {one: self.table(one, cell) for one in wire}
            for name, wire in step.inputs.items()
        }
        number = cell.decomposition
        if not isinstance(step.stage, DecomposeClaims):
            number = number * self.design.verifications + cell.verification
        return self._complete(step, step.stage.make(tables, self._lend(step, number)))


def _sources(steps: Mapping[str, Step]) -> dict[str, frozenset[Source]]:
    """What may make the table of each step another one each time; nothing for most."""
    found: dict[str, frozenset[Source]] = {_SAMPLES: frozenset()}
    for name, step in steps.items():
        own: set[Source] = set()
        if step.judges:
            own = {"decomposition" if isinstance(step.stage, DecomposeClaims) else "verification"}
        found[name] = frozenset(own).union(*(found[need] for need in step.needs))
    return found
