"""Recent embeddings kept in memory, so that steps with texts in common compute them once."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import polars as pl

from flows.engine.embedder import OnnxEmbedder

_KEPT: Final = 20_000
"""Embeddings kept: 30 MB of them, and their texts."""


class RecentEmbedder:
    """An `OnnxEmbedder` that is not asked again for what it was asked lately.

    For the sentences that steps have in common: the texts are kept too, so whole answers of
    any length do not belong here.

    Threads take turns, for steps that run side by side often want the same texts.
    """

    def __init__(self, model: OnnxEmbedder, *, kept: int = _KEPT) -> None:
        self._model = model
        self._kept = kept
        self._turn = threading.Lock()
        self._recent: OrderedDict[str, bytes] = OrderedDict()

    @property
    def identity(self) -> dict[str, str | int | float]:
        """That of the model."""
        return self._model.identity

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `OnnxEmbedder.embed`."""
        distinct = list(dict.fromkeys(texts))
        with self._turn:
            known = {text: self._recent[text] for text in distinct if text in self._recent}
            known |= self._model.vectors([text for text in distinct if text not in known])
            self._keep(known)
        return self._model.table(distinct, [known[text] for text in distinct])

    def _keep(self, known: dict[str, bytes]) -> None:
        self._recent.update(known)
        while len(self._recent) > self._kept:
            self._recent.popitem(last=False)
