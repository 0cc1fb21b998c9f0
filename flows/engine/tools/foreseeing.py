"""What an entailment model will say of pairs, found out for a plan: nothing is written."""

import json
from collections.abc import Sequence
from itertools import cycle
from typing import Final

from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.tools.model_work import ModelWork
from claimflow.flows.engine.tools.toolbox import entailment_keys
from claimflow.stages.tools import Judgement, Pair

_MOST: Final = 500
"""Pairs that are judged for one plan, some seconds of CPU."""

_UNSURE: Final = Judgement(0.5, 0.25, 0.25, 0, 0)


class ForeseenEntailment:
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
