"""Tools that count what steps would ask of endpoints."""

import json
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import polars as pl

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.call_statistics import recall_call_statistics
from claimflow.flows.judge.embedding import EMBEDDER
from claimflow.flows.judge.estimate import (
    CascadeEstimate,
    CountingEmbedder,
    CountingJudge,
    Estimate,
    combine,
)
from claimflow.flows.judge.judge import JudgePanel
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Endpoint, Judge
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.runner.embedded_models import ModelWork
from claimflow.flows.runner.tools import entailment_keys
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.base import Stage
from claimflow.stages.tools import Embedder, EntailmentModel, Judgement, Pair

# What an entailment model will say of pairs, found out for a plan: nothing is written.


_MOST: Final = 500
"""Pairs that are judged for one plan, some seconds of CPU."""

_UNSURE: Final = Judgement(0.5, 0.25, 0.25, 0, 0)


class EntailmentEstimate:
    """An `EntailmentModel` for the plans of a pipeline.

    Of a pair that is on file it says what is remembered. So many others are judged; those
    beyond are taken to be like the ones that are known, in turn. `guessed` says whether there
    were such. A model that is yet to be fetched knows none, and is taken to be unsure.
    """

    def __init__(self, models: ModelWork, ledger: Ledger, *, most: int = _MOST) -> None:
        self.guessed = False
        self._models = models
        self._ledger = ledger
        self._left = most
        self._judged: dict[Pair, Judgement] = {}
        self._alike: list[Judgement] = []

    def judge(self, pairs: Sequence[Pair]) -> dict[Pair, Judgement]:
        """As `EntailmentModel.judge`."""
        keys = entailment_keys(self._models.entailment.identity, pairs)
        on_file = self._ledger.recall(list(keys.values()))
        found = {
            pair: Judgement(*json.loads(on_file[key]))
            for pair, key in keys.items()
            if key in on_file
        }
        new = [pair for pair in keys if pair not in found and pair not in self._judged]
        judged = self._models.entailment.judge(new[: self._left])
        self._left -= len(judged)
        self._judged |= judged
        found |= {pair: self._judged[pair] for pair in keys if pair in self._judged}
        self._alike = list(found.values()) or self._alike or [_UNSURE]
        self.guessed |= len(found) < len(keys)
        likely = cycle(self._alike)
        return {pair: found[pair] if pair in found else next(likely) for pair in keys}


# Tools that count what the steps of a pipeline would ask of endpoints, and ask nobody.


Endpoints = Mapping[str, Endpoint]
"""The endpoints that a step asks, by name."""


def endpoints_by_step(pipeline: Pipeline) -> dict[str, Endpoints]:
    """The steps that ask an endpoint, each with those that it asks."""
    found: dict[str, Endpoints] = {}
    for step in pipeline.steps:
        if step.judges:
            found[step.name] = {name: pipeline.judges[name] for name in step.judges}
        elif isinstance(pipeline.embedder, Endpoint) and Embedder in step.stage.tools.values():
            found[step.name] = {EMBEDDER: pipeline.embedder}
    return found


def cascade_steps(pipeline: Pipeline) -> Iterator[tuple[str, Stage]]:
    """The steps that have a cascade, by name, each with its stage without the cascade."""
    for step in pipeline.steps:
        alone = step.stage.without_cascade()
        if alone is not None:
            yield step.name, alone


def estimate_entailment(pipeline: Pipeline, store: Store) -> EntailmentEstimate:
    """What the entailment model of a pipeline will say; nothing is written."""
    folder = pipeline.embedder if isinstance(pipeline.embedder, Path) else None
    models = ModelWork(folder, None, entailment=pipeline.entailment)
    return EntailmentEstimate(models, Ledger(store))


class StepCounter:
    """Counts what one step would ask. What is in `asked` need not be, which all steps share.

    `foreseen` judges for a cascade, whose judge is asked what that leaves open. With `fresh`
    what is on file is asked anew, with `since` what judges replied before that moment.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        store: Store,
        asked: set[str],
        foreseen: EntailmentEstimate,
        *,
        fresh: bool = False,
        since: datetime | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._foreseen = foreseen
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
        """The tools of the step's stage, as a toolbox lends them, at this `repeat`."""
        needed = sorted(stage.needed_tools.items())
        return {name: self._tool(tool, repeat) for name, tool in needed}

    def _tool(self, protocol: type, repeat: int) -> Any:
        if protocol is EntailmentModel:
            return self._foreseen
        if self._judges:
            return JudgePanel(self._judges, repeat=repeat)
        return next(iter(self._embedders.values()))

    def estimate(self, *, scale: float = 1.0, about: bool = False) -> Estimate:
        """What was counted, `scale` times over; a guess where `about` says so."""
        parts = []
        for who, tool in (self._judges | self._embedders).items():
            price = price_of(self._endpoints[who]) if tool.tally.calls else None
            parts.append(tool.tally.estimate(who, price, scale=scale, about=about))
        return combine(parts)


class CascadeCounter:
    """Counts who would judge the pairs of one step that has a cascade.

    `alone` is the stage without the cascade, `unaided` counts what its judge would be asked.
    """

    def __init__(self, alone: Stage, unaided: StepCounter) -> None:
        self._alone = alone
        self._unaided = unaided
        self._whose: Counts[str] = Counts()

    def add(self, inputs: Mapping[str, Any], verdicts: pl.DataFrame) -> None:
        """Count the verdicts that the step would make of `inputs`."""
        self._whose.update(verdicts["judged_by"].drop_nulls())
        self._alone.run(**inputs, **self._unaided.lend(self._alone))

    def foreseen(self, calls: int, *, scale: float) -> CascadeEstimate:
        """What was counted, `scale` times over, beside the `calls` that would be made."""
        settled, referred, audited = (
            round(self._whose[who] * scale) for who in ("embedded", "judge", "audit")
        )
        saved = self._unaided.estimate(scale=scale).calls - calls
        return CascadeEstimate(settled, referred, audited, max(saved, 0))
