"""Sentence encoders in ONNX format: texts to unit vectors."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import sha256_of
from claimflow.flows.models.onnx import INPUTS, Gives, OnnxModel, load_tokenizer
from claimflow.stages.tools import embedding_table

# A folder that holds a sentence encoder: which files, and how its vectors are made.


_OWN: Final = "encoder.json"
_PUBLISHED: Final = ("1_Pooling/config.json", "sentence_bert_config.json")
_SETTINGS: Final = "give pooling (mean or cls), max_length (tokens) and dimension (numbers)"

_Whole = Annotated[int, Field(strict=True, gt=2)]


class EncoderSettings(BaseModel):
    """How a vector is made.

    `pooling` says how the vectors of the tokens become one: their mean, or the vector of
    the first. `max_length` is the window in tokens, `dimension` the length of a vector.
    """

    model_config = ConfigDict(frozen=True)

    pooling: Literal["mean", "cls"]
    max_length: _Whole
    dimension: _Whole


class EncoderFolder(NamedTuple):
    """The parts of a sentence encoder."""

    name: str
    model: Path
    tokenizer: Path
    settings: EncoderSettings

    def identity(self) -> dict[str, str | int | float]:
        """What could change a vector: the files by content, the pooling, the window."""
        return {
            "name": self.name,
            "model_sha256": sha256_of(self.model),
            "tokenizer_sha256": sha256_of(self.tokenizer),
            **self.settings.model_dump(),
        }


def read_folder(folder: Path) -> EncoderFolder:
    """The encoder in `folder`: `model.onnx`, `tokenizer.json` and `encoder.json`.

    `encoder.json` holds the fields of `EncoderSettings`. A folder as sentence-transformers
    publishes it will do too: the model in `onnx/`, the pooling in `1_Pooling/config.json`,
    the window in `sentence_bert_config.json`. Weights that a model keeps in files beside
    it are loaded, but do not count in its identity.

    Raises `InputError` naming every file that is missing or cannot be used.
    """
    faults: list[Fault] = []
    models = [
        path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.is_file()
    ]
    tokenizer = folder / "tokenizer.json"
    if not models:
        faults.append(_missing(folder / "model.onnx", "put the encoder there in ONNX format"))
    if not tokenizer.is_file():
        faults.append(_missing(tokenizer, "put the encoder's tokenizer there"))
    settings = _settings(folder, faults)
    if faults or settings is None:
        raise InputError(faults)
    return EncoderFolder(folder.name, models[0], tokenizer, settings)


def _settings(folder: Path, faults: list[Fault]) -> EncoderSettings | None:
    own, published = folder / _OWN, [folder / name for name in _PUBLISHED]
    try:
        if own.is_file():
            return EncoderSettings.model_validate_json(own.read_bytes())
        if all(path.is_file() for path in published):
            own = published[0]
            return _published(*(json.loads(path.read_bytes()) for path in published))
        faults.append(_missing(own, _SETTINGS))
    except ValidationError as error:
        for wrong in error.errors():
            field = ".".join(str(part) for part in wrong["loc"])
            faults.append(Fault(str(own), f"{field}: {wrong['msg']}".lstrip(": "), _SETTINGS))
    except ValueError as error:
        faults.append(Fault(str(own), f"not JSON ({error})", _SETTINGS))
    return None


def _published(pooling: dict[str, Any], window: dict[str, Any]) -> EncoderSettings:
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    chosen = [mode for mode, switch in modes.items() if pooling.get(switch)]
    return EncoderSettings.model_validate(
        {
            "pooling": chosen[0] if chosen else None,
            "max_length": window.get("max_seq_length"),
            "dimension": pooling.get("word_embedding_dimension"),
        }
    )


def _missing(path: Path, hint: str) -> Fault:
    return Fault(str(path), "no such file", hint)


# A sentence encoder in ONNX format, loaded: texts to unit vectors.
#
# Imports the numeric libraries, so whoever may not need it imports it late.


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


# The embedding tool: vectors of texts, by an encoder that runs in this process.


MINILM: Final = Path(__file__).parent / "weights" / "all-MiniLM-L6-v2"

_CHARACTERS: Final = 1_000_000
"""Texts are embedded in groups of about this many characters, which bounds memory."""


class SentenceEncoder:
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
            self._loaded = Encoder(self._folder, threads=self._threads)
        return self._loaded


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
