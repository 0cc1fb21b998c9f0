"""The embedded entailment model: a network and features, combined by a logistic model."""

import hashlib
import json
import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.files import sha256_of
from claimflow.flows.models.entailment.features import FEATURES_VERSION, measure_pairs
from claimflow.flows.models.onnx import open_session
from claimflow.stages.tools import Judgement, Pair

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


# The fitted weights: data in a folder, read, checked and applied.


WEIGHTS_FILE: Final = "weights.json"
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"

CLIP: Final = 4.0
"""Standardised features are held within this many standard deviations."""


class Logistic(NamedTuple):
    """A logistic model on standardised features."""

    intercept: float
    coefficients: Mapping[str, float]


class Models(NamedTuple):
    """Is it entailed; and if it is not, is it contradicted."""

    entailed: Logistic
    contradicted: Logistic


class Weights(NamedTuple):
    """The models for what the network has `read`, and for what could only be `counted`.

    `centre` and `spread` are the mean and the standard deviation of each feature over the
    rows that the models were fitted on.
    """

    centre: Mapping[str, float]
    spread: Mapping[str, float]
    read: Models
    counted: Models

    def probabilities(self, features: Mapping[str, float]) -> tuple[float, float, float]:
        """Of entailed, contradicted, neutral; they sum to 1."""
        standard = {
            name: max(-CLIP, min(CLIP, (value - self.centre[name]) / self.spread[name]))
            for name, value in features.items()
        }
        models = (
            self.read if self.read.entailed.coefficients.keys() <= standard.keys() else self.counted
        )
        entailed = _probability(models.entailed, standard)
        contradicted = (1 - entailed) * _probability(models.contradicted, standard)
        return entailed, contradicted, max(0.0, 1 - entailed - contradicted)


def _probability(model: Logistic, standard: Mapping[str, float]) -> float:
    terms = (standard[name] * weight for name, weight in model.coefficients.items())
    return 1 / (1 + math.exp(-math.fsum([model.intercept, *terms])))


def read_weights(folder: Path) -> tuple[Weights, str]:
    """The weights in `folder`, and the SHA-256 of their file."""
    written = (folder / WEIGHTS_FILE).read_bytes()
    content = json.loads(written)
    read, counted = (
        Models(*(Logistic(**content[kind][model]) for model in Models._fields))
        for kind in ("read", "counted")
    )
    weights = Weights(content["centre"], content["spread"], read, counted)
    return weights, hashlib.sha256(written).hexdigest()


# The cross-encoder in ONNX format: how a pair is put to it, and what it says.
#
# Imports the numeric libraries, so whoever may not need it imports it late.


Logits = NDArray[np.float32]

WINDOW: Final = 224
"""Tokens of premise and claim together, [CLS] and twice [SEP] included."""

_CLAIM: Final = WINDOW // 2
"""Tokens of a claim at most: the rest of it is not read."""

_TOKENS: Final = 256
"""Tokens in a batch: what a layer makes of them stays near the processor."""

_CLS, _SEP = 101, 102


class Encoded(NamedTuple):
    """A pair as token ids; from place `claim` on they are the claim's."""

    ids: tuple[int, ...]
    claim: int


def encode(tokenizer: "Tokenizer", pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
    """What is read of each premise, and each claim, as one text that fits the window.

    `tokenizer` pads and cuts nothing, and puts one token before and one after a text.
    """
    premises = tokenizer.encode_batch([premise for premise, _ in pairs])
    claims = tokenizer.encode_batch([claim for _, claim in pairs])
    found = []
    for premise, claim in zip(premises, claims, strict=True):
        last = claim.ids[1:-1][:_CLAIM]
        first = premise.ids[1:-1][: WINDOW - 3 - len(last)]
        found.append(Encoded((_CLS, *first, _SEP, *last, _SEP), len(first) + 2))
    return found


class Network:
    """The cross-encoder in `folder`, loaded; `threads` None takes every core."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        self._session = open_session(folder / MODEL_FILE, threads=threads)
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Logits:
        """Of what is read of a premise and a claim: entailed, contradicted, neutral; a row each.

        A row depends on its pair alone.
        """
        return self.read(encode(self._tokenizer, pairs))

    def read(self, pairs: Sequence[Encoded]) -> Logits:
        """The same of pairs as token ids: a batch holds those of one length, none is padded."""
        by_length = defaultdict(list)
        for row, pair in enumerate(pairs):
            by_length[len(pair.ids)].append(row)
        logits = np.empty((len(pairs), 3), np.float32)
        for length, rows in by_length.items():
            step = max(1, _TOKENS // length)
            for start in range(0, len(rows), step):
                batch = rows[start : start + step]
                logits[batch] = self._run([pairs[row] for row in batch])
        return logits

    def _run(self, batch: Sequence[Encoded]) -> Logits:
        ids = np.array([pair.ids for pair in batch], np.int64)
        places = np.arange(ids.shape[1])
        kinds = np.array([places >= pair.claim for pair in batch], np.int64)
        given = {"input_ids": ids, "token_type_ids": kinds}
        logits: Logits = self._session.run(None, given)[0]
        return logits


# The embedded entailment model: what a network reads and what can be counted, weighed.


SHIPPED: Final = Path(__file__).parent.parent / "weights" / "entailment"

NOTHING: Final = Judgement(0.0, 0.0, 1.0, 0, 0)
"""The judgement where either text has no word: nothing follows, nothing is denied."""


class EmbeddedEntailment:
    """Natural language inference by a network that reads, and by what can be counted.

    The network reads the sentences of the premise that cover the claim; every sentence,
    however long the premise, is weighed for that. Then each sentence of the claim is held
    against the one to three neighbouring sentences that cover it best: how its words,
    numbers, dates and names, negations and opposites stand to these gives features. Fitted
    weights make one judgement of both. It depends on its pair alone. `folder` holds network
    and weights; `threads` bounds the threads of a call, None takes every core. Any thread
    may call any method; they take turns with the network.
    """

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = folder or SHIPPED
        self._threads = threads
        self._weights, self._digest = read_weights(self._folder)
        self._turn = threading.Lock()
        self._loaded: Network | None = None

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """What could change a judgement; found without loading the network."""
        files = {name: sha256_of(self._folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
        return {"weights": self._digest, "features": FEATURES_VERSION, **files}

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; the span is that of the evidence."""
        measured = measure_pairs(pairs, self)
        judged = dict.fromkeys(pairs, NOTHING)
        for pair, (features, start, end) in measured.items():
            judged[pair] = Judgement(*_rounded(self._weights.probabilities(features)), start, end)
        return judged

    def logits(self, pairs: Sequence[tuple[str, str]]) -> "NDArray[float32]":
        """What the network says of each premise, as far as it is read, and claim."""
        with self._turn:
            if self._loaded is None:
                self._loaded = Network(self._folder, threads=self._threads)
            return self._loaded.logits(pairs)


def _rounded(probabilities: tuple[float, float, float]) -> tuple[float, float, float]:
    """Three digits: beyond them processors differ, and a verdict must not depend on one."""
    entailed, contradicted = (round(p, 3) for p in probabilities[:2])
    return entailed, contradicted, max(0.0, round(1 - entailed - contradicted, 3))
