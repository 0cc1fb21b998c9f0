"""A cross-encoder in ONNX format, loaded: a premise and a claim to a probability for each label.

Imports the numeric libraries, so whoever may not need it imports it late.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from flows.engine.cross_encoder.folder import CrossEncoderFolder
from flows.engine.errors import Fault, InputError
from flows.engine.onnx_session import open_session
from stages.tools import Pair

_TOKENS: Final = 4_096
"""Tokens in a batch, which bounds memory."""

_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")


class Session:
    """The cross-encoder in a folder, loaded; `threads` None takes every core.

    Raises `InputError` when the files cannot be loaded, or do not fit each other.
    """

    def __init__(self, folder: CrossEncoderFolder, *, threads: int | None = None) -> None:
        self._folder = folder
        try:
            self._whole = Tokenizer.from_file(str(folder.tokenizer))
            self._pairs = Tokenizer.from_file(str(folder.tokenizer))
        except Exception as error:
            raise _unusable(folder.tokenizer, error, "a tokenizers file") from error
        try:
            self._session = open_session(folder.model, threads=threads)
        except Exception as error:
            raise _unusable(folder.model, error, "an ONNX model") from error
        for tokenizer in (self._whole, self._pairs):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        # A window and its text alone may differ by a token at its ends.
        self._pairs.enable_truncation(folder.max_length, strategy="only_first")
        self._takes = [given.name for given in self._session.get_inputs()]
        self._check()

    def _check(self) -> None:
        strange = sorted(set(self._takes) - set(_INPUTS))
        shape, labels = self._session.get_outputs()[0].shape, len(self._folder.labels)
        if strange:
            what, right = f"takes {', '.join(strange)}", "it must take token ids alone"
        elif len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != labels):
            what = f"first gives {shape}"
            right = f"it must give batch and {labels} numbers, as id2label has it"
        else:
            return
        raise InputError([Fault(str(self._folder.model), what, right)])

    def tokens(self, text: str) -> list[tuple[int, int]]:
        """The characters of each token of a text, in order."""
        return list(self._whole.encode(text, add_special_tokens=False).offsets)

    def room(self) -> int:
        """Tokens of a premise and a claim that go into the window together."""
        return self._folder.max_length - int(self._pairs.num_special_tokens_to_add(is_pair=True))

    def probabilities(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[float, ...]]:
        """For each distinct pair the probability of each label, in the folder's order.

        Raises `InputError` where the model gives no numbers.
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
        given = _given(batch)
        fed = {name: given[name] for name in self._takes}
        logits = np.asarray(self._session.run(None, fed)[0], np.float64)
        if not np.isfinite(logits).all():
            what, right = "gives numbers that are none", "use another export of the model"
            raise InputError([Fault(str(self._folder.model), what, right)])
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: list[list[float]] = (powers / powers.sum(axis=1, keepdims=True)).tolist()
        return shares


def _given(batch: Sequence[Encoding]) -> Mapping[str, NDArray[np.int64]]:
    """What a cross-encoder may ask for: one pair a row."""
    parts = {
        "input_ids": [encoding.ids for encoding in batch],
        "attention_mask": [encoding.attention_mask for encoding in batch],
        "token_type_ids": [encoding.type_ids for encoding in batch],
    }
    return {name: np.array(rows, np.int64) for name, rows in parts.items()}


def _unusable(path: Path, error: Exception, kind: str) -> InputError:
    return InputError([Fault(str(path), f"cannot be loaded ({error})", f"it must be {kind}")])
