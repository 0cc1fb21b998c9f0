"""The cross-encoder in ONNX format: how a pair is put to it, and what it says.

Imports the numeric libraries, so whoever may not need it imports it late.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from claimflow.flows.engine.entailment.weights import MODEL_FILE, TOKENIZER_FILE
from claimflow.flows.engine.onnx_session import open_session

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


def encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Encoded]:
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
