"""What a planned run would ask of endpoints: its steps walked through, with nobody asked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from flows.engine.artifacts import read
from flows.engine.endpoints import EmbeddingEndpoint, Endpoint, Judge
from flows.engine.guessing import ClaimGuess
from flows.engine.ledger import Ledger
from flows.engine.llm.charges import charges_of
from flows.engine.llm.embedding import WHO
from flows.engine.llm.estimate import NOT_ASKED, CountingEmbedder, CountingJudge, Estimate
from flows.engine.llm.habits import recall_habits
from flows.engine.pipeline import Pipeline
from flows.engine.planning import Planned
from flows.engine.prepare import SHARD, Prepared
from flows.engine.reader import SampleSource
from flows.engine.runner import SAMPLES
from flows.engine.store import Store
from flows.engine.wiring import Step
from stages.decompose import DecomposeClaims
from stages.tools import Embedder

_SHARDS: Final = 10
"""Parts of the samples that are looked at; of more, so many, evenly spread."""


def estimate(prepared: Prepared, store: Store, planned: Sequence[Planned]) -> dict[str, Estimate]:
    """What each step that asks an endpoint would ask, by the name of the step.

    Nobody is asked, nothing is written. Claims that a judge has yet to name are guessed.
    """
    asking = dict(_asking(prepared.pipeline))
    endpoints = {name: endpoint for name, (_, endpoint) in asking.items()}
    walk = _Walk(prepared.pipeline, store, planned, endpoints)
    seen = 0
    if walk.tools:
        for part, samples in _parts(prepared.samples):
            walk.through(part, samples)
            seen += samples.height
    scale = prepared.samples.count / seen if seen else 1.0
    estimates = {name: Estimate(who) for name, (who, _) in asking.items()}
    for name, tool in walk.tools.items():
        who, endpoint = asking[name]
        price = charges_of(endpoint) if tool.tally.calls else None
        about = scale > 1 or name in walk.guessed
        estimates[name] = tool.tally.estimate(who, price, scale=scale, about=about)
    return estimates


def _asking(pipeline: Pipeline) -> Iterator[tuple[str, tuple[str, Endpoint]]]:
    """The steps that ask an endpoint, each with the endpoint's name and the endpoint."""
    for step in pipeline.steps:
        if step.judge is not None:
            yield step.name, (step.judge, pipeline.judges[step.judge])
        elif isinstance(pipeline.embedder, Endpoint) and Embedder in step.stage.tools.values():
            yield step.name, (WHO, pipeline.embedder)


def _parts(samples: SampleSource) -> Iterator[tuple[int, pl.DataFrame]]:
    """The parts to look at by number: of many the first, the last, and some between."""
    last = -(-samples.count // SHARD) - 1
    some = {round(i * last / (_SHARDS - 1)) for i in range(_SHARDS)}
    for part, frame in enumerate(samples.shards(SHARD)):
        if last < _SHARDS or part in some:
            yield part, frame


class _Walk:
    """Runs the stages that ask an endpoint, and those whose tables they read.

    `tools` are the ones lent to the former, by step. `guessed` are the steps that read
    claims nobody knows yet.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        planned: Sequence[Planned],
        endpoints: Mapping[str, Endpoint],
    ) -> None:
        self._store = store
        self._found = {one.step: one.artifact for one in planned if one.artifact is not None}
        self._steps: list[Step] = []
        self._read: set[str] = set()
        self._guesses: dict[str, ClaimGuess] = {}
        self.guessed: set[str] = set()
        asked: set[str] = set()
        self.tools = {
            name: _tool(endpoint, store, asked)
            for name, endpoint in endpoints.items()
            if name not in self._found
        }
        for step in reversed(pipeline.steps):
            if step.name in self.tools or step.name in self._read:
                self._steps.insert(0, step)
                self._read.update(() if step.name in self._found else step.needs)

    def through(self, part: int, samples: pl.DataFrame) -> None:
        """Count what the steps would ask for one part of the samples."""
        tables = {SAMPLES: samples}
        for step in self._steps:
            table = self._table(step, part, tables)
            if step.name in self._read:
                tables[step.name] = self._whole(step, table, samples)

    def _table(self, step: Step, part: int, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
        """The table found, or what the stage makes of the tables before it."""
        if step.name in self._found:
            with self._store.reading() as connection:
                return read(connection, step.stage.makes, self._found[step.name], shard=part)
        if not self._guesses.keys().isdisjoint(step.needs):
            self.guessed.add(step.name)
        inputs: dict[str, Any] = {
            name: tables[wire] if isinstance(wire, str) else {one: tables[one] for one in wire}
            for name, wire in step.inputs.items()
        }
        lent = step.stage.tools.keys() - step.stage.ignores()
        return step.stage.run(**inputs, **dict.fromkeys(lent, self.tools.get(step.name)))

    def _whole(self, step: Step, table: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
        """The table with claims guessed where a judge has yet to be asked for them."""
        if not isinstance(step.stage, DecomposeClaims) or step.name not in self.tools:
            return table
        unknown = pl.col("failure").eq_missing(pl.lit(NOT_ASKED.kind))
        texts = samples.join(table.filter(unknown), on="sample_id", how="semi")
        if texts.is_empty():
            return table
        guess = self._guesses.setdefault(step.name, ClaimGuess(step.stage))
        return pl.concat([table.filter(~unknown), guess.claims(texts)])


def _tool(endpoint: Endpoint, store: Store, asked: set[str]) -> CountingJudge | CountingEmbedder:
    """The tool that counts what an endpoint would be asked."""
    ledger = Ledger(store)
    if isinstance(endpoint, Judge):
        return CountingJudge(endpoint, ledger, recall_habits(store, endpoint), asked)
    if isinstance(endpoint, EmbeddingEndpoint):
        return CountingEmbedder(endpoint, ledger, asked)
    raise TypeError(f"nothing counts what a {type(endpoint).__name__} would be asked")
