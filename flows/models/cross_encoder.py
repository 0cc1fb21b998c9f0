"""Cross-encoders as entailment models; long premises are read in windows."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.models.cross_encoder_folder import CrossEncoderFolder, read_folder
from claimflow.flows.models.onnx import INPUTS, Gives, OnnxModel, load_tokenizer
from claimflow.flows.pipeline.models import HubModel
from claimflow.stages.rows import Label
from claimflow.stages.text.sentences import Span, split_sentences
from claimflow.stages.tools import Judgement, Pair

if TYPE_CHECKING:
    from tokenizers import Encoding

# A premise cut into windows of whole sentences that a model can read at a time.


WINDOWS_VERSION: Final = 1
"""Raised when the same premise comes to be cut in another way."""


class _Piece(NamedTuple):
    """A sentence, or a part of one that is longer than a window, and how many tokens it has."""

    span: Span
    tokens: int


def windows(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> list[Span]:
    """Spans of `premise` that hold at most `room` of its `tokens` each, and all of them together.

    `tokens` are the characters of each token, in order. A window begins with the last sentence
    of the one before, where the next one fits beside it, so that few sentences stand without
    what was said before them. A sentence that is longer than a window is cut into pieces that
    share a quarter of it. None where there is no token.
    """
    pieces = list(_pieces(premise, [token for token in tokens if token[1] > token[0]], room))
    found: list[Span] = []
    first = 0
    while first < len(pieces):
        last, held = first, pieces[first].tokens
        while last + 1 < len(pieces) and held + pieces[last + 1].tokens <= room:
            last += 1
            held += pieces[last].tokens
        found.append(Span(pieces[first].span.start, pieces[last].span.end))
        rest = pieces[last : last + 2]
        shared = last > first and len(rest) == 2 and rest[0].tokens + rest[1].tokens <= room
        first = last if shared else last + 1
    return found


def _pieces(premise: str, tokens: Sequence[tuple[int, int]], room: int) -> Iterator[_Piece]:
    """The sentences that hold a token, those that are too long in overlapping parts."""
    starts = [start for start, _ in tokens]
    for sentence in split_sentences(premise):
        held = tokens[bisect_left(starts, sentence.start) : bisect_left(starts, sentence.end)]
        if len(held) <= room:
            if held:
                yield _Piece(sentence, len(held))
            continue
        step = room - room // 4
        for begin in range(0, len(held) - room // 4, step):
            part = held[begin : begin + room]
            yield _Piece(Span(part[0][0], part[-1][1]), len(part))


# A cross-encoder in ONNX format, loaded: a premise and a claim to a probability for each label.
#
# Imports the numeric libraries, so whoever may not need it imports it late.


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
        hint = f"it must give batch and {labels} numbers, as id2label has it"
        self._model = OnnxModel(folder.model, Gives((None, labels), hint), threads=threads)

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

    def _run(self, batch: "Sequence[Encoding]") -> list[list[float]]:
        logits = np.asarray(self._model.run(_given(batch)), np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: list[list[float]] = (powers / powers.sum(axis=1, keepdims=True)).tolist()
        return shares


def _given(batch: "Sequence[Encoding]") -> Mapping[str, NDArray[np.int64]]:
    """What a cross-encoder may ask for: one pair a row."""
    rows = zip(*((one.ids, one.attention_mask, one.type_ids) for one in batch), strict=True)
    return {name: np.array(of, np.int64) for name, of in zip(INPUTS, rows, strict=True)}


# A cross-encoder as an entailment model: long premises in windows, the best of which counts.


_NOTHING: Final = Judgement(0.0, 0.0, 1.0, 0, 0)
"""The judgement where either text has no token."""

_STRENGTH: Final[Mapping[Label, int]] = {"entailed": 2, "contradicted": 1, "neutral": 0}


class _Window(NamedTuple):
    """A part of a premise, and the pair that the model is asked of it."""

    span: Span
    pair: Pair


class CrossEncoder:
    """Natural language inference by the cross-encoder in `folder` (see `read_folder`).

    `name` is what it is called where that is not the folder's.

    A premise longer than the model's window is cut into windows of whole sentences. A window
    that says the claim is entailed goes before one that says it is contradicted, that before
    neutral ones, and of equal ones the surest counts: its probabilities are the judgement, its
    characters the evidence. Of a claim longer than half the window the beginning is read.
    A model with two outputs tells no contradiction.

    Raises `InputError` when a file of `folder` is missing or cannot be used. The model is
    loaded when first asked. Any thread may call any method; they take turns with the model,
    since one call already uses every core. `threads` bounds these; None takes every core.
    """

    def __init__(
        self, folder: Path, threads: int | None = None, *, name: str | None = None
    ) -> None:
        self._folder = read_folder(folder)
        if name is not None:
            self._folder = self._folder._replace(name=name)
        self._threads = threads
        self._turn = threading.Lock()
        self._loaded: Session | None = None

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """What could change a judgement; found without loading the model."""
        return {**self._folder.identity(), "windows": WINDOWS_VERSION}

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        """One judgement per distinct pair; the span is that of the window."""
        asked = dict.fromkeys(pairs)
        if not asked:
            return {}
        with self._turn:
            session = self._session()
            read = dict(zip(asked, _windows(session, list(asked)), strict=True))
            said = session.probabilities([one.pair for found in read.values() for one in found])
        return {
            pair: self._best([(one.span, said[one.pair]) for one in found])
            for pair, found in read.items()
        }

    def _best(self, said: Sequence[tuple[Span, tuple[float, ...]]]) -> Judgement:
        judged = [self._judgement(*one) for one in said]
        return max(judged, key=_weight, default=_NOTHING)

    def _judgement(self, span: Span, shares: Sequence[float]) -> Judgement:
        by_label = dict(zip(self._folder.labels, shares, strict=True))
        # Three digits: beyond them processors differ, and a verdict must not depend on one.
        entailed = round(by_label["entailed"], 3)
        contradicted = round(by_label.get("contradicted", 0.0), 3)
        neutral = max(0.0, round(1 - entailed - contradicted, 3))
        return Judgement(entailed, contradicted, neutral, *span)

    def _session(self) -> "Session":
        if self._loaded is None:
            self._loaded = Session(self._folder, threads=self._threads)
        return self._loaded


def _weight(judged: Judgement) -> tuple[int, float]:
    """Neutral windows are weighed by how near they come to entailing the claim."""
    shares: dict[Label, float] = {
        "entailed": judged.entailed,
        "contradicted": judged.contradicted,
        "neutral": judged.neutral,
    }
    label = max(shares, key=lambda one: (shares[one], _STRENGTH[one]))
    return _STRENGTH[label], judged.entailed if label == "neutral" else shares[label]


def _windows(session: "Session", pairs: Sequence[Pair]) -> Iterator[list[_Window]]:
    """The windows that each pair is judged by; a premise is read once for all its claims."""
    tokens: dict[str, list[tuple[int, int]]] = {}
    room = session.room()
    for premise, claim in pairs:
        of_claim = session.tokens(claim)[: room // 2]
        if premise not in tokens:
            tokens[premise] = session.tokens(premise)
        cut = claim[: of_claim[-1][1]] if of_claim else ""
        spans = windows(premise, tokens[premise], room - len(of_claim)) if cut.strip() else []
        yield [_Window(span, Pair(premise[span.start : span.end], cut)) for span in spans]


# A model that is not on this machine yet.


class UnfetchedModel:
    """Stands for a model of the Hub in a plan: nobody knows what it will say.

    Its identity is nobody's, so that nothing on file passes for what it said.
    """

    def __init__(self, model: HubModel) -> None:
        self.identity: dict[str, str | int | float] = {"name": str(model), "files": "not fetched"}

    def judge(self, _: Sequence[Pair], /) -> Mapping[Pair, Judgement]:
        """Of no pair a judgement."""
        return {}
