"""What a planned run would ask of endpoints: its steps walked through, with nobody asked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.llm.estimate import Estimate, together
from claimflow.flows.engine.planning.guessing import ClaimGuesses
from claimflow.flows.engine.planning.plan import Planned
from claimflow.flows.engine.prepare import SHARD, Prepared
from claimflow.flows.engine.reader import SampleSource
from claimflow.flows.engine.steps.overlay import edited
from claimflow.flows.engine.steps.unchanged import SAMPLES
from claimflow.flows.engine.storage.artifacts import read
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.tools.counting import (
    CountedCascade,
    Counter,
    Endpoints,
    asking,
    cascading,
    foresee,
)
from claimflow.flows.engine.tools.foreseeing import ForeseenEntailment

_SHARDS: Final = 10
"""Parts of the samples that are looked at; of more, so many, evenly spread."""


def estimate(prepared: Prepared, store: Store, planned: Sequence[Planned]) -> dict[str, Estimate]:
    """What each step that asks an endpoint would ask, by the name of the step.

    Nobody is asked, nothing is written. Claims that a judge has yet to name are guessed.
    """
    steps = {one.step for one in planned}
    endpoints = {name: of for name, of in asking(prepared.pipeline).items() if name in steps}
    foreseen = foresee(prepared.pipeline, store)
    walk = _Walk(prepared.pipeline, store, planned, endpoints, foreseen)
    seen = 0
    if walk.counters:
        for part, samples in _parts(prepared.samples):
            walk.through(part, samples)
            seen += samples.height
    scale = prepared.samples.count / seen if seen else 1.0
    estimates = {name: together([Estimate(who) for who in of]) for name, of in endpoints.items()}
    for name, counter in walk.counters.items():
        cascade = walk.cascades.get(name)
        about = scale > 1 or name in walk.guessed or bool(cascade and foreseen.guessed)
        one = counter.estimate(scale=scale, about=about)
        whose = cascade.foreseen(one.calls, scale=scale) if cascade else None
        estimates[name] = one._replace(cascade=whose)
    return estimates


def _parts(samples: SampleSource) -> Iterator[tuple[int, pl.DataFrame]]:
    """The parts to look at by number: of many the first, the last, and some between."""
    last = -(-samples.count // SHARD) - 1
    some = {round(i * last / (_SHARDS - 1)) for i in range(_SHARDS)}
    for part, frame in enumerate(samples.shards(SHARD)):
        if last < _SHARDS or part in some:
            yield part, frame


class _Walk:
    """Runs the stages that ask an endpoint, and those whose tables they read.

    `counters` lend tools to the former, by step; `cascades` count what those steps would ask
    that have one. `guessed` are the steps that read claims nobody knows yet.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        planned: Sequence[Planned],
        endpoints: Mapping[str, Endpoints],
        foreseen: ForeseenEntailment,
    ) -> None:
        self._store = store
        self._found = {
            one.step: found for one in planned if (found := one.artifact or one.below) is not None
        }
        self._edits = {one.step: one.edits for one in planned if one.edits}
        self._steps: list[Step] = []
        self._read: set[str] = set()
        self._guesses = ClaimGuesses()
        self.guessed: set[str] = set()
        asked: set[str] = set()
        unaided: set[str] = set()
        fresh = {one.step for one in planned if one.fresh}

        def counter(name: str, known: set[str]) -> Counter:
            return Counter(endpoints[name], store, known, foreseen, fresh=name in fresh)

        self.counters = {
            name: counter(name, asked) for name in endpoints if name not in self._found
        }
        self.cascades = {
            name: CountedCascade(stage, counter(name, unaided))
            for name, stage in cascading(pipeline)
            if name in self.counters
        }
        for step in reversed(pipeline.steps):
            if step.name in self.counters or step.name in self._read:
                self._steps.insert(0, step)
                self._read.update(() if step.name in self._found else step.needs)

    def through(self, part: int, samples: pl.DataFrame) -> None:
        """Count what the steps would ask for one part of the samples."""
        tables = {SAMPLES: samples}
        for step in self._steps:
            table = self._table(step, part, tables)
            if step.name in self._read:
                whole = self._whole(step, table, samples)
                edits = self._edits.get(step.name, ())
                row = step.stage.makes
                tables[step.name] = edited(row, whole, samples, edits) if edits else whole

    def _table(self, step: Step, part: int, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
        """The table found, or what the stage makes of the tables before it."""
        if step.name in self._found:
            with self._store.reading() as connection:
                row = step.stage.makes
                # Edits are laid over whole rows.
                columns = tuple(row.model_fields) if step.name in self._edits else ()
                return read(connection, row, self._found[step.name], shard=part, columns=columns)
        if not self._guesses.steps.isdisjoint(step.needs):
            self.guessed.add(step.name)
        inputs: dict[str, Any] = {
            name: tables[wire] if isinstance(wire, str) else {one: tables[one] for one in wire}
            for name, wire in step.inputs.items()
        }
        if step.name not in self.counters:
            lent = step.stage.tools.keys() - step.stage.ignores()
            return step.stage.run(**inputs, **dict.fromkeys(lent))
        table = step.stage.run(**inputs, **self.counters[step.name].lend(step.stage))
        if step.name in self.cascades:
            self.cascades[step.name].add(inputs, table)
        return table

    def _whole(self, step: Step, table: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
        """The table with claims guessed where a judge has yet to be asked for them."""
        if step.name not in self.counters:
            return table
        return self._guesses.complete(step.name, step.stage, table, samples)
