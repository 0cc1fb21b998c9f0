"""The entailment model that claimflow carries: a network and features, weighed together."""

import hashlib
import json
import math
import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import sha256_of
from claimflow.flows.models.entailment.features import FEATURES_VERSION, measure_pairs
from claimflow.flows.models.onnx import equal_length_batches, open_session
from claimflow.stages.tools import Judgement, Pair

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHIPPED: Final = Path(__file__).parent.parent / "weights" / "entailment"

WEIGHTS_FILE: Final = "weights.json"
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"

NO_WORDS: Final = Judgement(0.0, 0.0, 1.0, 0, 0)
"""The judgement where premise or claim has no word."""


def rounded_judgement(entailed: float, contradicted: float, start: int, end: int) -> Judgement:
    """A judgement to three digits: processors differ beyond them, and verdicts must not."""
    entailed, contradicted = round(entailed, 3), round(contradicted, 3)
    neutral = max(0.0, round(1 - entailed - contradicted, 3))
    return Judgement(entailed, contradicted, neutral, start, end)


class EmbeddedEntailment:
    """Natural language inference by a network and by counted features.

    The network reads the claim with the sentences of the premise that cover it; every sentence
    counts in this selection, however long the premise is. Each sentence of the claim is also
    compared with the one to three neighbouring sentences that cover it best: how its words,
    numbers, dates and names, negations and opposites match these gives features. Fitted weights
    make one judgement of both. A judgement depends on its pair alone.

    `folder` holds network and weights. `threads` bounds the threads of a call; None takes every
    core. Any thread may call any method; they take turns with the network, which is loaded when
    it is first needed.
    """

    languages: ClassVar = frozenset({"English"})
    """The languages that it was fitted on."""

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = folder or SHIPPED
        self._threads = threads
        self._weights, self._digest = read_weights(self._folder)
        self._lock = threading.Lock()

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a judgement; known without loading the network."""
        files = {name: sha256_of(self._folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
        return {"weights": self._digest, "features": FEATURES_VERSION, **files}

    def check(self) -> None:
        """Its settings are its own."""

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; its span is the evidence."""
        judged = dict.fromkeys(pairs, NO_WORDS)
        for pair, (features, start, end) in measure_pairs(pairs, self.logits).items():
            entailed, contradicted, _ = self._weights.probabilities(features)
            judged[pair] = rounded_judgement(entailed, contradicted, start, end)
        return judged

    def logits(self, pairs: Sequence[tuple[str, str]]) -> "Logits":
        """The network's logits for each (excerpt of a premise, claim); see `Network.logits`."""
        with self._lock:
            return self._network.logits(pairs)

    @cached_property
    def _network(self) -> "Network":
        return Network(self._folder, threads=self._threads)


CLIP: Final = 4.0
"""Standardised features are clipped to this many standard deviations."""


class Logistic(NamedTuple):
    """A logistic regression on standardised features."""

    intercept: float
    coefficients: Mapping[str, float]


class LabelModels(NamedTuple):
    """Two models: entailed or not; and if not, contradicted or neutral."""

    entailed: Logistic
    contradicted: Logistic


class Weights(NamedTuple):
    """The models for claims that the network has `read`, and for those with `counted` features.

    `centre` and `spread` are the mean and the standard deviation of each feature over the rows
    that the models were fitted on.
    """

    centre: Mapping[str, float]
    spread: Mapping[str, float]
    read: LabelModels
    counted: LabelModels

    def probabilities(self, features: Mapping[str, float]) -> tuple[float, float, float]:
        """Probabilities of entailed, contradicted and neutral; they sum to 1."""
        standard = {
            name: max(-CLIP, min(CLIP, (value - self.centre[name]) / self.spread[name]))
            for name, value in features.items()
        }
        was_read = self.read.entailed.coefficients.keys() <= standard.keys()
        models = self.read if was_read else self.counted
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
        LabelModels(*(Logistic(**content[kind][model]) for model in LabelModels._fields))
        for kind in ("read", "counted")
    )
    weights = Weights(content["centre"], content["spread"], read, counted)
    return weights, hashlib.sha256(written).hexdigest()


Logits = NDArray[np.float32]

WINDOW: Final = 224
"""Tokens of premise and claim together, with [CLS] and two [SEP]."""

_CLAIM_TOKENS: Final = WINDOW // 2
"""Tokens of a claim at most; the rest of it is not read."""

_BATCH_TOKENS: Final = 256
"""Tokens in a batch; so few that the activations of a layer stay in the processor's cache."""

_CLS, _SEP = 101, 102


class EncodedPair(NamedTuple):
    """A pair as token ids; those of the claim begin at index `claim`."""

    ids: tuple[int, ...]
    claim: int


def encode_pairs(tokenizer: "Tokenizer", pairs: Sequence[tuple[str, str]]) -> list[EncodedPair]:
    """Each (excerpt of a premise, claim) as token ids, truncated to the window.

    `tokenizer` must neither pad nor truncate, and must put one token before and one after a text.
    """
    premises = tokenizer.encode_batch([_plain(premise) for premise, _ in pairs])
    claims = tokenizer.encode_batch([_plain(claim) for _, claim in pairs])
    found = []
    for premise, claim in zip(premises, claims, strict=True):
        last = claim.ids[1:-1][:_CLAIM_TOKENS]
        first = premise.ids[1:-1][: WINDOW - 3 - len(last)]
        found.append(EncodedPair((_CLS, *first, _SEP, *last, _SEP), len(first) + 2))
    return found


_SPECIAL: Final = re.compile(r"\[(SEP|CLS|MASK|PAD|UNK)\]")


def _plain(text: str) -> str:
    """A text without the special tokens of the network, and without lone surrogates."""
    return _SPECIAL.sub(r"[ \1]", text.encode("utf-8", "replace").decode("utf-8"))


class Network:
    """The network in `folder`, loaded; `threads` None takes every core."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        self._session = open_session(folder / MODEL_FILE, threads=threads)
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Logits:
        """Logits of entailed, contradicted and neutral for each (excerpt of a premise, claim).

        Shape (pairs, 3). A row depends on its pair alone.
        """
        return self.encoded_logits(encode_pairs(self._tokenizer, pairs))

    def encoded_logits(self, pairs: Sequence[EncodedPair]) -> Logits:
        """The same for pairs as token ids."""
        logits = np.empty((len(pairs), 3), np.float32)
        for rows in equal_length_batches(
            range(len(pairs)), lambda row: len(pairs[row].ids), tokens=_BATCH_TOKENS
        ):
            ids = np.array([pairs[row].ids for row in rows], np.int64)
            places = np.arange(ids.shape[1])
            kinds = np.array([places >= pairs[row].claim for row in rows], np.int64)
            inputs = {"input_ids": ids, "token_type_ids": kinds}
            logits[rows] = self._session.run(None, inputs)[0]
        if not np.isfinite(logits).all():
            what = "the embedded judge gives numbers that are not finite"
            raise InputError([Fault("entailment", what, "install claimflow again")])
        return logits
