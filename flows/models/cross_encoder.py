"""Cross-encoders as entailment models; long premises are judged in windows."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from claimflow.flows.models.entailment.model import NO_WORDS, rounded_judgement
from claimflow.flows.models.folders import (
    CrossEncoderFolder,
    declared_languages,
    read_cross_encoder,
)
from claimflow.flows.models.onnx import (
    INPUTS,
    OnnxModel,
    equal_length_batches,
    load_tokenizer,
)
from claimflow.stages.rows import Label
from claimflow.stages.text.sentences import Span, split_sentences
from claimflow.stages.tools import Judgement, Pair

WINDOWS_VERSION: Final = 2
"""Raised when `text_windows` starts to cut the same premise differently; part of the identity."""

_BATCH_TOKENS: Final = 4_096
"""Bounds the memory of a batch."""

_ENCODING_FIELDS: Final = ("ids", "attention_mask", "type_ids")
"""The fields of a tokenizer's encoding that hold each of `INPUTS`."""

_RANK: Final[Mapping[Label, int]] = {"entailed": 2, "contradicted": 1, "neutral": 0}


class CrossEncoder:
    """Natural language inference by the cross-encoder in `folder` (see `read_cross_encoder`).

    `name` is used in its identity instead of the folder's.

    A premise longer than the model's window is cut into windows of whole sentences. A window
    that entails the claim ranks before one that contradicts it, that before a neutral one, and
    among equals the one with the highest probability: its probabilities are the judgement, its
    characters the evidence. A claim longer than half the window is truncated. A model with two
    outputs never says contradicted.

    Raises `InputError` when a file of `folder` is missing or cannot be used; the model is loaded
    by the first call. Any thread may call any method; calls take turns, since one call already
    uses every core. `threads` bounds the threads of a call; None takes every core.
    """

    def __init__(
        self, folder: Path, threads: int | None = None, *, name: str | None = None
    ) -> None:
        self._folder = read_cross_encoder(folder)
        self.languages: Final = declared_languages(folder)
        if name is not None:
            self._folder = self._folder._replace(name=name)
        self._threads = threads
        self._lock = threading.Lock()

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a judgement; known without loading the model."""
        return {**self._folder.identity(), "windows": WINDOWS_VERSION}

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; its span is the window that decided."""
        distinct = list(dict.fromkeys(pairs))
        if not distinct:
            return {}
        with self._lock:
            windows = dict(zip(distinct, _windows(self._session, distinct), strict=True))
            texts = [window.texts for found in windows.values() for window in found]
            probabilities = self._session.probabilities(texts)
        return {
            pair: max(
                (self._judgement(one.span, probabilities[one.texts]) for one in found),
                key=_rank,
                default=NO_WORDS,
            )
            for pair, found in windows.items()
        }

    @cached_property
    def _session(self) -> "_Session":
        return _Session(self._folder, threads=self._threads)

    def _judgement(self, span: Span, probabilities: Sequence[float]) -> Judgement:
        by_label = dict(zip(self._folder.labels, probabilities, strict=True))
        return rounded_judgement(by_label["entailed"], by_label.get("contradicted", 0.0), *span)


def _rank(judgement: Judgement) -> tuple[int, float]:
    """Rank of the likeliest label, then its probability; of neutral windows that of entailed."""
    probabilities: dict[Label, float] = {
        "entailed": judgement.entailed,
        "contradicted": judgement.contradicted,
        "neutral": judgement.neutral,
    }
    label = max(probabilities, key=lambda one: (probabilities[one], _RANK[one]))
    return _RANK[label], judgement.entailed if label == "neutral" else probabilities[label]


class _Window(NamedTuple):
    """Characters of a premise, and that part of the premise with the claim."""

    span: Span
    texts: Pair


def _windows(session: "_Session", pairs: Sequence[Pair]) -> Iterator[list[_Window]]:
    """The windows of each pair; a premise is tokenised once for all its claims."""
    premise_tokens: dict[str, list[Span]] = {}
    room = session.room()
    for premise, claim in pairs:
        claim_tokens = session.tokens(claim)[: room // 2]
        if premise not in premise_tokens:
            premise_tokens[premise] = session.tokens(premise)
        cut = claim[: claim_tokens[-1].end] if claim_tokens else ""
        spans = (
            text_windows(premise, premise_tokens[premise], room - len(claim_tokens))
            if cut.strip()
            else []
        )
        yield [_Window(span, Pair(premise[span.start : span.end], cut)) for span in spans]


class _Piece(NamedTuple):
    """A sentence, or a part of one that is longer than a window, and its number of tokens."""

    span: Span
    tokens: int


def text_windows(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> list[Span]:
    """Spans of `premise` that hold at most `room` of its `tokens` each, and all of them together.

    `tokens` are the (start, end) characters of each token, in order. Where two sentences fit, a
    window begins with the last sentence of the window before, so that few sentences lack the
    context before them. A sentence longer than a window is cut into pieces, of which neighbours
    share a quarter of a window. Empty where there is no token.
    """
    pieces = list(_pieces(premise, [token for token in tokens if token[1] > token[0]], room))
    found: list[Span] = []
    first = 0
    while first < len(pieces):
        last, size = first, pieces[first].tokens
        while last + 1 < len(pieces) and size + pieces[last + 1].tokens <= room:
            last += 1
            size += pieces[last].tokens
        found.append(Span(pieces[first].span.start, pieces[last].span.end))
        rest = pieces[last : last + 2]
        shared = last > first and len(rest) == 2 and rest[0].tokens + rest[1].tokens <= room
        first = last if shared else last + 1
    return found


def _pieces(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> Iterator[_Piece]:
    """The sentences that have a token; those longer than `room` in overlapping pieces."""
    starts = [start for start, _ in tokens]
    for sentence in split_sentences(premise):
        inside = tokens[bisect_left(starts, sentence.start) : bisect_left(starts, sentence.end)]
        if len(inside) <= room:
            if inside:
                yield _Piece(sentence, len(inside))
            continue
        step = room - room // 4
        for begin in range(0, len(inside) - room // 4, step):
            part = inside[begin : begin + room]
            yield _Piece(Span(part[0][0], part[-1][1]), len(part))


class _Session:
    """The loaded model and tokenizer of a folder; raises `InputError` if they do not fit."""

    def __init__(self, folder: CrossEncoderFolder, *, threads: int | None) -> None:
        self._max_length = folder.max_length
        self._text_tokenizer = load_tokenizer(folder.tokenizer)
        self._pair_tokenizer = load_tokenizer(folder.tokenizer)
        for tokenizer in (self._text_tokenizer, self._pair_tokenizer):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        # A window by itself and within its text may differ by a token at its ends.
        self._pair_tokenizer.enable_truncation(folder.max_length, strategy="only_first")
        labels = len(folder.labels)
        hint = f"it must give batch and {labels} numbers, as id2label has it"
        self._model = OnnxModel(folder.model, (None, labels), hint, threads=threads)

    def tokens(self, text: str) -> list[Span]:
        """The characters of each token of a text, in order."""
        offsets = self._text_tokenizer.encode(text, add_special_tokens=False).offsets
        return [Span(*offset) for offset in offsets]

    def room(self) -> int:
        """Tokens of premise and claim together that fit into the model's window."""
        return self._max_length - int(self._pair_tokenizer.num_special_tokens_to_add(is_pair=True))

    def probabilities(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[float, ...]]:
        """The probability of each label for each distinct pair, in the order of the labels.

        Raises `InputError` where the model fails or its output is not finite.
        """
        encodings = {
            pair: self._pair_tokenizer.encode(pair.premise, pair.claim)
            for pair in dict.fromkeys(pairs)
        }
        found: dict[Pair, tuple[float, ...]] = {}
        for batch in equal_length_batches(
            encodings, lambda pair: len(encodings[pair].ids), tokens=_BATCH_TOKENS
        ):
            inputs = {
                name: np.array([getattr(encodings[pair], field) for pair in batch], np.int64)
                for name, field in zip(INPUTS, _ENCODING_FIELDS, strict=True)
            }
            logits = np.asarray(self._model.run(inputs), np.float64)
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            shares = powers / powers.sum(axis=1, keepdims=True)
            found |= {pair: tuple(row) for pair, row in zip(batch, shares.tolist(), strict=True)}
        return found
