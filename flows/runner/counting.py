"""Tools for plans: they count the calls that steps would make, without making any."""

import json
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import cycle
from typing import Any, Final

import polars as pl

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.call_statistics import recall_call_statistics
from claimflow.flows.judge.estimate import (
    CascadeEstimate,
    CountingEmbedder,
    CountingJudge,
    Estimate,
    combine,
)
from claimflow.flows.judge.judge import JudgePanel
from claimflow.flows.models.loading import LocalEntailmentModel, load_entailment_model
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Endpoint, Judge
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.runner.tools import entailment_keys
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.tools import EntailmentModel, Judgement, Pair

_MOST: Final = 500
"""Pairs that are judged for one plan; takes a few seconds of CPU."""

_UNSURE: Final = Judgement(0.5, 0.25, 0.25, 0, 0)


class EntailmentEstimate:
    """An `EntailmentModel` for plans, which estimates judgements where computing them is slow.

    Judgements in the ledger are returned as they are. Of the other pairs `most` are judged;
    those beyond get the known judgements in turn, which sets `guessed`. A model that is not
    downloaded yet is taken to be unsure of every pair. Nothing is written.
    """

    def __init__(self, model: LocalEntailmentModel, ledger: Ledger, *, most: int = _MOST) -> None:
        self.guessed = False
        self._model = model
        self._ledger = ledger
        self._left = most
        self._judged: dict[Pair, Judgement] = {}
        self._alike: list[Judgement] = []

    def judge(self, pairs: Sequence[Pair]) -> dict[Pair, Judgement]:
        """As `EntailmentModel.judge`."""
        keys = entailment_keys(self._model.identity, pairs)
        on_file = self._ledger.recall(list(keys.values()))
        found = {
            pair: Judgement(*json.loads(on_file[key]))
            for pair, key in keys.items()
            if key in on_file
        }
        new = [pair for pair in keys if pair not in found and pair not in self._judged]
        judged = self._model.judge(new[: self._left])
        self._left -= len(judged)
        self._judged |= judged
        found |= {pair: self._judged[pair] for pair in keys if pair in self._judged}
        self._alike = list(found.values()) or self._alike or [_UNSURE]
        self.guessed |= len(found) < len(keys)
        likely = cycle(self._alike)
        return {pair: found[pair] if pair in found else next(likely) for pair in keys}


def cascade_steps(pipeline: Pipeline) -> Iterator[tuple[str, Stage]]:
    """The steps that have a cascade, by name, each with its stage without the cascade."""
    for step in pipeline.steps:
        alone = step.stage.without_cascade()
        if alone is not None:
            yield step.name, alone


def estimate_entailment(pipeline: Pipeline, store: Store) -> EntailmentEstimate:
    """The entailment model of a pipeline, for plans."""
    return EntailmentEstimate(load_entailment_model(pipeline.entailment), Ledger(store))


class StepCounter:
    """Counts the calls that one step would make to its `endpoints`, given by name.

    `asked` holds the keys of questions that earlier steps ask already; it is shared by all steps.
    `entailment` decides for a cascade which questions reach its judge. With `fresh` replies in
    the ledger do not count, with `since` replies from before that time do not.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        store: Store,
        asked: set[str],
        entailment: EntailmentEstimate,
        *,
        fresh: bool = False,
        since: datetime | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._entailment = entailment
        self._judges = {
            name: CountingJudge(
                judge,
                Ledger(store),
                recall_call_statistics(store, judge),
                asked,
                fresh=fresh,
                since=since,
            )
            for name, judge in endpoints.items()
            if isinstance(judge, Judge)
        }
        self._embedders = {
            name: CountingEmbedder(embedder, Ledger(store), asked, fresh=fresh)
            for name, embedder in endpoints.items()
            if isinstance(embedder, EmbeddingEndpoint)
        }

    def lend(self, stage: Stage, *, repeat: int = 0) -> dict[str, Any]:
        """The tools of the step's stage, as `Toolbox.lend` gives them."""
        needed = sorted(stage.needed_tools.items())
        return {name: self._tool(tool, repeat) for name, tool in needed}

    def _tool(self, protocol: type, repeat: int) -> Any:
        if protocol is EntailmentModel:
            return self._entailment
        if self._judges:
            return JudgePanel(self._judges, repeat=repeat)
        return next(iter(self._embedders.values()))

    def estimate(self, *, scale: float = 1.0, about: bool = False) -> Estimate:
        """The counts multiplied by `scale`; `about` marks the result as approximate."""
        parts = []
        for who, tool in (self._judges | self._embedders).items():
            price = price_of(self._endpoints[who]) if tool.tally.calls else None
            parts.append(tool.tally.estimate(who, price, scale=scale, about=about))
        return combine(parts)


class CascadeCounter:
    """Counts by whom the pairs of a step with a cascade would be judged.

    `alone` is its stage without the cascade; `alone_counter` counts what that would ask.
    """

    def __init__(self, alone: Stage, alone_counter: StepCounter) -> None:
        self._alone = alone
        self._alone_counter = alone_counter
        self._judged_by: Counts[str] = Counts()

    def add(self, inputs: Mapping[str, Any], verdicts: pl.DataFrame) -> None:
        """Count the verdicts that the step would make of `inputs`."""
        self._judged_by.update(verdicts["judged_by"].drop_nulls())
        self._alone.run(**inputs, **self._alone_counter.lend(self._alone))

    def estimate(self, calls: int, *, scale: float) -> CascadeEstimate:
        """The counts multiplied by `scale`, and what is saved beside the `calls` to be made."""
        settled, referred, audited = (
            round(self._judged_by[who] * scale) for who in ("embedded", "judge", "audit")
        )
        saved = self._alone_counter.estimate(scale=scale).calls - calls
        return CascadeEstimate(settled, referred, audited, max(saved, 0))
