"""A cross-encoder in ONNX format, loaded: a premise and a claim to a probability for each label.

Imports the numeric libraries, so whoever may not need it imports it late.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from claimflow.flows.engine.cross_encoder.folder import CrossEncoderFolder
from claimflow.flows.engine.onnx_model import INPUTS, Gives, OnnxModel, load_tokenizer
from claimflow.stages.tools import Pair

_TOKENS: Final = 4_096
"""Tokens in a batch, which bounds memory."""


class Session:
    """The cross-encoder in a folder, loaded; `threads` None takes every core.

    Raises `InputError` when the files cannot be loaded, or do not fit each other.
    """

    def __init__(self, folder: CrossEncoderFolder, *, threads: int | None = None) -> None:
        self._folder = folder
        self._whole = load_tokenizer(folder.tokenizer)
        self._pairs = load_tokenizer(folder.tokenizer)
        for tokenizer in (self._whole, self._pairs):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        # A window and its text alone may differ by a token at its ends.
        self._pairs.enable_truncation(folder.max_length, strategy="only_first")
        labels = len(folder.labels)
        right = f"it must give batch and {labels} numbers, as id2label has it"
        self._model = OnnxModel(folder.model, Gives((None, labels), right), threads=threads)

    def tokens(self, text: str) -> list[tuple[int, int]]:
        """The characters of each token of a text, in order."""
        return list(self._whole.encode(text, add_special_tokens=False).offsets)

    def room(self) -> int:
        """Tokens of a premise and a claim that go into the window together."""
        return self._folder.max_length - int(self._pairs.num_special_tokens_to_add(is_pair=True))

    def probabilities(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[float, ...]]:
        """For each distinct pair the probability of each label, in the folder's order.

        Raises `InputError` where the model fails, or gives no numbers.
        """
        by_length: dict[int, list[tuple[Pair, Encoding]]] = defaultdict(list)
        for pair in dict.fromkeys(pairs):
            encoding = self._pairs.encode(pair.premise, pair.claim)
            by_length[len(encoding.ids)].append((pair, encoding))
        found: dict[Pair, tuple[float, ...]] = {}
        # Of one length each, so that nothing is padded and no pair depends on its neighbours.
        for length, alike in by_length.items():
            step = max(1, _TOKENS // max(length, 1))
            for start in range(0, len(alike), step):
                batch = alike[start : start + step]
                rows = self._run([encoding for _, encoding in batch])
                found |= {pair: tuple(row) for (pair, _), row in zip(batch, rows, strict=True)}
        return found

    def _run(self, batch: Sequence[Encoding]) -> list[list[float]]:
        logits = np.asarray(self._model.run(_given(batch)), np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: list[list[float]] = (powers / powers.sum(axis=1, keepdims=True)).tolist()
        return shares


def _given(batch: Sequence[Encoding]) -> Mapping[str, NDArray[np.int64]]:
    """What a cross-encoder may ask for: one pair a row."""
    rows = zip(*((one.ids, one.attention_mask, one.type_ids) for one in batch), strict=True)
    return {name: np.array(of, np.int64) for name, of in zip(INPUTS, rows, strict=True)}
