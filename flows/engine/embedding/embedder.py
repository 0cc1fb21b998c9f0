"""The embedding tool: vectors of texts, by an encoder that runs in this process."""

import importlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from claimflow.flows.engine.embedding.encoder_folder import read_folder

if TYPE_CHECKING:
    from claimflow.flows.engine.embedding.encoder import Encoder

MINILM: Final = Path(__file__).parent.parent / "models" / "all-MiniLM-L6-v2"

_CHARACTERS: Final = 1_000_000
"""Texts are embedded in groups of about this many characters, which bounds memory."""


class OnnxEmbedder:
    """Unit vectors of texts, by the encoder in `folder` (see `read_folder`).

    The default is the all-MiniLM-L6-v2 that claimflow carries. `threads` bounds the
    threads of one call; None leaves it to onnxruntime, which takes every core.

    The vector of a text depends on that text alone: a batch holds texts of one length in
    tokens, so nothing is padded. (An encoder whose activations are scaled over a whole
    batch, as plain dynamic 8-bit quantisation does, breaks this; the default does not.)
    A text longer than the window is cut between tokens into pieces that fill it, the last
    one shorter. Its vector is the mean of the unit vectors of its pieces, each weighted by
    its tokens, scaled to length 1 again: time is linear in the length of a text. A blank
    text gets the vector of no words, which is not worth comparing.

    Raises `InputError` when a file of `folder` is missing or cannot be used. The model is
    loaded when first asked. Any thread may call any method; they take turns with the model,
    since one call already uses every core.
    """

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = read_folder(folder or MINILM)
        self._threads = threads
        self._turn = threading.Lock()
        self._loaded: Encoder | None = None

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """What could change a vector; found without loading the model."""
        return self._folder.identity()

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """`text` (String) and `embedding` (Array of Float32): one row per distinct text.

        Embeddings have length 1; rows come in the order in which texts are first seen.
        """
        vectors = self.vectors(texts)
        return self.table(list(vectors), list(vectors.values()))

    def vectors(self, texts: Sequence[str]) -> dict[str, bytes]:
        """The embedding of each distinct text as the bytes of its numbers, in that order."""
        vectors: dict[str, bytes] = {}
        for group in _groups(dict.fromkeys(texts)):
            with self._turn:
                made = self._encoder().vectors(group)
            vectors |= zip(group, (vector.tobytes() for vector in made), strict=True)
        return vectors

    def table(self, texts: Sequence[str], embeddings: Sequence[bytes]) -> pl.DataFrame:
        """The table of `texts` whose embeddings are known, each as the bytes of its numbers."""
        return embedding_table(texts, embeddings, dimension=self._folder.settings.dimension)

    def _encoder(self) -> "Encoder":
        if self._loaded is None:
            encoder = importlib.import_module("claimflow.flows.engine.embedding.encoder")
            self._loaded = encoder.Encoder(self._folder, threads=self._threads)
        return self._loaded


def embedding_table(
    texts: Sequence[str], embeddings: Sequence[bytes], *, dimension: int
) -> pl.DataFrame:
    """`text` (String) and `embedding` (Array of Float32), each of them given as its bytes."""
    vectors = pl.Series("embedding", embeddings, pl.Binary)
    kind = pl.Array(pl.Float32, dimension)
    return pl.DataFrame(
        [
            pl.Series("text", texts, pl.String),
            vectors.bin.reinterpret(dtype=kind, endianness="little"),
        ]
    )


def _groups(texts: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text)
        if characters >= _CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
