"""A sentence encoder in ONNX format, loaded: texts to unit vectors.

Imports the numeric libraries, so whoever may not need it imports it late.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.engine.embedding.encoder_folder import EncoderFolder
from claimflow.flows.engine.onnx_model import INPUTS, Gives, OnnxModel, load_tokenizer

Vectors = NDArray[np.float32]
Ids = tuple[int, ...]

_TOKENS: Final = 256
"""Tokens in a batch: what a layer makes of them stays near the processor."""


class _Piece(NamedTuple):
    """A part of text number `text` that fills the window, or what is left of it."""

    text: int
    ids: Ids


class Encoder:
    """The encoder in a folder, loaded; `threads` None takes every core.

    Raises `InputError` when the files cannot be used.
    """

    def __init__(self, folder: EncoderFolder, *, threads: int | None = None) -> None:
        self._settings = folder.settings
        self._tokenizer = load_tokenizer(folder.tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._settings.max_length)
        numbers = self._settings.dimension
        gives = Gives((None, None, numbers), f"it must give batch, tokens and {numbers} numbers")
        self._model = OnnxModel(folder.model, gives, threads=threads)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of `texts`, one row each; zeros for a text without a single token."""
        pieces = [
            piece for number, text in enumerate(texts) for piece in self._pieces(number, text)
        ]
        of_ids = self._encode({piece.ids for piece in pieces})
        vectors = np.zeros((len(texts), self._settings.dimension), np.float32)
        for piece in pieces:
            vectors[piece.text] += len(piece.ids) * of_ids[piece.ids]
        return _unit(vectors)

    def _pieces(self, number: int, text: str) -> Iterator[_Piece]:
        first = self._tokenizer.encode(text)
        for encoding in [first, *first.overflowing]:
            if encoding.ids:
                yield _Piece(number, tuple(encoding.ids))

    def _encode(self, distinct: set[Ids]) -> Mapping[Ids, Vectors]:
        by_length = defaultdict(list)
        for ids in sorted(distinct):
            by_length[len(ids)].append(ids)
        found: dict[Ids, Vectors] = {}
        for length, alike in by_length.items():
            step = max(1, _TOKENS // length)
            for start in range(0, len(alike), step):
                batch = alike[start : start + step]
                found.update(zip(batch, self._run(np.array(batch, np.int64)), strict=True))
        return found

    def _run(self, ids: NDArray[np.int64]) -> Vectors:
        tokens = self._model.run(_given(ids))
        return _unit(tokens.mean(axis=1) if self._settings.pooling == "mean" else tokens[:, 0])


def _given(ids: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """What an encoder may ask for: one text per row, nothing padded, one kind of text."""
    return dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit
