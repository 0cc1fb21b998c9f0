"""Sentence encoders in ONNX format: texts to unit vectors."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.models.folders import EncoderFolder, declared_languages, read_encoder
from claimflow.flows.models.onnx import (
    INPUTS,
    OnnxModel,
    equal_length_batches,
    load_tokenizer,
)
from claimflow.stages.tools import embedding_table

MINILM_FOLDER: Final = Path(__file__).parent / "weights" / "all-MiniLM-L6-v2"

_GROUP_CHARACTERS: Final = 1_000_000
"""Texts are embedded in groups of about this many characters, which bounds memory."""

_BATCH_TOKENS: Final = 256
"""Tokens in a batch; so few that the activations of a layer stay in the processor's cache."""

Vectors = NDArray[np.float32]
Ids = tuple[int, ...]


class SentenceEncoder:
    """Unit vectors of texts, by the encoder in `folder` (see `read_encoder`).

    The default is the all-MiniLM-L6-v2 that claimflow carries. `threads` bounds the threads of
    one call; None takes every core.

    The vector of a text depends on that text alone: a batch holds texts with the same number of
    tokens, so nothing is padded. (An encoder whose activations are scaled over a whole batch, as
    plain dynamic 8-bit quantisation does, breaks this; the default does not.) A text longer than
    the window is cut between tokens into pieces that fill it, the last one shorter. Its vector is
    the mean of the unit vectors of its pieces, weighted by their tokens, and scaled to length 1:
    time is linear in the length of a text. A blank text has a vector too, that of no words, which
    is not worth comparing.

    Raises `InputError` when a file of `folder` is missing or cannot be used; the model is loaded
    by the first call. Any thread may call any method; calls take turns, since one call already
    uses every core.
    """

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = read_encoder(folder or MINILM_FOLDER)
        self.languages: Final = declared_languages(folder or MINILM_FOLDER)
        self._threads = threads
        self._lock = threading.Lock()

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a vector; known without loading the model."""
        return self._folder.identity()

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """`text` (String) and `embedding` (Array of Float32): one row per distinct text.

        Embeddings have length 1; rows are in the order in which texts first occur.
        """
        vectors = self.vectors(texts)
        return self.table(list(vectors), list(vectors.values()))

    def vectors(self, texts: Sequence[str]) -> dict[str, bytes]:
        """The embedding of each distinct text as little-endian float32 bytes, in that order."""
        vectors: dict[str, bytes] = {}
        for group in _groups(dict.fromkeys(texts)):
            with self._lock:
                found = self._session.vectors(group)
            vectors |= zip(group, (vector.tobytes() for vector in found), strict=True)
        return vectors

    def table(self, texts: Sequence[str], embeddings: Sequence[bytes]) -> pl.DataFrame:
        """The table that `embed` returns, of texts with known embeddings as bytes."""
        return embedding_table(texts, embeddings, dimension=self._folder.settings.dimension)

    @cached_property
    def _session(self) -> "_Session":
        return _Session(self._folder, threads=self._threads)


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text)
        if characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


class _Piece(NamedTuple):
    """The tokens of a part of text number `text` that fills the window, or of its rest."""

    text: int
    ids: Ids


class _Session:
    """The loaded model and tokenizer of a folder; raises `InputError` if they do not fit."""

    def __init__(self, folder: EncoderFolder, *, threads: int | None) -> None:
        self._settings = folder.settings
        self._tokenizer = load_tokenizer(folder.tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._settings.max_length)
        numbers = self._settings.dimension
        hint = f"it must give batch, tokens and {numbers} numbers"
        self._model = OnnxModel(folder.model, [(None, None, numbers)], hint, threads=threads)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of `texts`, one row each; zeros for a text without tokens."""
        pieces = [
            piece for number, text in enumerate(texts) for piece in self._pieces(number, text)
        ]
        of_ids: dict[Ids, Vectors] = {}
        distinct = sorted({piece.ids for piece in pieces})
        for batch in equal_length_batches(distinct, len, tokens=_BATCH_TOKENS):
            of_ids.update(zip(batch, self._run(np.array(batch, np.int64)), strict=True))
        vectors = np.zeros((len(texts), self._settings.dimension), np.float32)
        for piece in pieces:
            vectors[piece.text] += len(piece.ids) * of_ids[piece.ids]
        return _unit(vectors)

    def _pieces(self, number: int, text: str) -> Iterator[_Piece]:
        first = self._tokenizer.encode(text)
        for encoding in [first, *first.overflowing]:
            if encoding.ids:
                yield _Piece(number, tuple(encoding.ids))

    def _run(self, ids: NDArray[np.int64]) -> Vectors:
        """Unit vectors of a batch of token ids, one row each."""
        inputs = dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
        tokens = self._model.run(inputs)
        return _unit(tokens.mean(axis=1) if self._settings.pooling == "mean" else tokens[:, 0])


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit
