"""Cross-encoders as entailment models; long premises are judged in windows."""

import re
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.models.entailment.model import NO_WORDS, rounded_judgement
from claimflow.flows.models.folders import (
    CrossEncoderFolder,
    declared_languages,
    read_cross_encoder,
)
from claimflow.flows.models.onnx import (
    INPUTS,
    Least,
    Numbers,
    OnnxModel,
    Shape,
    equal_length_batches,
    load_tokenizer,
    one_line,
)
from claimflow.flows.pipeline.verifier_forms import CLAIM, PLAIN, PREMISE, Form
from claimflow.stages.rows import Label
from claimflow.stages.text.sentences import Span, split_sentences
from claimflow.stages.tools import Judgement, Pair

if TYPE_CHECKING:
    from tokenizers import Encoding

WINDOWS_VERSION: Final = 2
"""Raised when `text_windows` starts to cut the same premise differently; part of the identity."""

_BATCH_TOKENS: Final = 4_096
"""Bounds the memory of a batch."""

_LEAST_ROOM: Final = 4
"""Tokens of premise and claim together that a template must leave."""

_PLACES: Final = re.compile(f"({re.escape(PREMISE)}|{re.escape(CLAIM)})")

_DECODER_INPUTS: Final = ("input_ids", "encoder_hidden_states", "encoder_attention_mask")

_ENCODING_FIELDS: Final = ("ids", "attention_mask", "type_ids")
"""The fields of a tokenizer's encoding that hold each of `INPUTS`."""

_RANK: Final[Mapping[Label, int]] = {"entailed": 2, "contradicted": 1, "neutral": 0}


class CrossEncoder:
    """Natural language inference by the cross-encoder in `folder` (see `read_cross_encoder`).

    `form` is what it reads and how it answers. `name` is used in its identity instead of the
    folder's.

    A premise longer than the model's window is cut into windows of whole sentences. A window
    that entails the claim ranks before one that contradicts it, that before a neutral one, and
    among equals the one with the highest probability: its probabilities are the judgement, its
    characters the evidence. A claim longer than half the window is truncated. A model with two
    answers never says contradicted.

    Raises `InputError` when a file of `folder` is missing or cannot be used; the model is loaded
    by the first call. Any thread may call any method; calls take turns, since one call already
    uses every core. `threads` bounds the threads of a call; None takes every core.
    """

    def __init__(
        self,
        folder: Path,
        threads: int | None = None,
        *,
        form: Form = PLAIN,
        name: str | None = None,
    ) -> None:
        self._folder = read_cross_encoder(folder, form)
        self.languages: Final = declared_languages(folder)
        if name is not None:
            self._folder = self._folder._replace(name=name)
        self._threads = threads
        self._lock = threading.Lock()

    @cached_property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a judgement; known without loading the model."""
        return {**self._folder.identity(), "windows": WINDOWS_VERSION}

    def check(self) -> None:
        """Raise `InputError` where template, words and window do not suit the tokenizer.

        The model itself is not loaded.
        """
        self._session.room()

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
        if len(self._folder.labels) == 1:
            return rounded_judgement(probabilities[0], 0.0, *span)
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
    for premise, whole_claim in pairs:
        claim = session.plain(whole_claim)
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
        self._folder = folder
        self._tokenizer = load_tokenizer(folder.tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        added = self._tokenizer.get_added_tokens_decoder().values()
        special = sorted((one.content for one in added if one.special), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        self._words = list(self._first_tokens()) if folder.form.read == "words" else []
        self._threads = threads

    @cached_property
    def _models(self) -> list[OnnxModel]:
        return list(_load(self._folder, self._words, self._threads))

    def tokens(self, text: str) -> list[Span]:
        """The characters of each token of a text, in order."""
        offsets = self._encode(text, add_special_tokens=False).offsets
        return [Span(*offset) for offset in offsets]

    def plain(self, text: str) -> str:
        """`text` without special tokens, also such as its tokenizer makes of full-width letters."""
        if not self._special.search(text):
            folded = unicodedata.normalize("NFKC", text)
            if folded == text or not self._special.search(folded):
                return text
            text = folded
        return self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def room(self) -> int:
        """Tokens of premise and claim together that fit into the model's window.

        Raises `InputError` where the template leaves no room.
        """
        window, template = self._folder.max_length, len(self._read(Pair("", "")).encoding.ids)
        if window - template < _LEAST_ROOM:
            what = f"the template alone has {template} tokens of a window of {window}"
            self._refuse(what, "write a larger `window` in the section entailment")
        return window - template

    def probabilities(self, pairs: Sequence[Pair]) -> dict[Pair, tuple[float, ...]]:
        """The probability of each answer for each distinct pair, in the order of the answers.

        Raises `InputError` where the model fails or its output is not finite.
        """
        inputs = {pair: self._read_fitting(pair) for pair in dict.fromkeys(pairs)}
        found: dict[Pair, tuple[float, ...]] = {}
        # A language model gives a number for every word of its vocabulary, at every token.
        tokens = 1 if self._words and len(self._models) == 1 else _BATCH_TOKENS
        for batch in equal_length_batches(
            inputs, lambda pair: len(inputs[pair].encoding.ids), tokens=tokens
        ):
            encodings = [inputs[pair].encoding for pair in batch]
            arrays = {
                name: np.array([getattr(one, field) for one in encodings], np.int64)
                for name, field in zip(INPUTS, _ENCODING_FIELDS, strict=True)
            }
            logits = self._logits(arrays)
            for pair, row in zip(batch, logits, strict=True):
                found[pair] = tuple(self._answer(row, inputs[pair].claim).tolist())
        return found

    def _logits(self, inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Of each row the numbers of each answer: of the text, or of every token."""
        encoder, *decoders = self._models
        logits = encoder.run(inputs)
        tokens = inputs["input_ids"].shape[1]
        if self._folder.form.read == "tokens" and logits.shape[1] != tokens:
            what = f"gives {logits.shape[1]} answers for {tokens} tokens"
            self._refuse(what, "the output must have an answer for each token")
        for decoder in decoders:
            rows = len(logits)
            start = np.full((rows, 1), self._folder.start, np.int64)
            mask = inputs["attention_mask"]
            logits = decoder.run(dict(zip(_DECODER_INPUTS, (start, logits, mask), strict=True)))
        if self._folder.form.read == "words":
            logits = logits[:, -1].take(self._words, axis=1)
        elif self._folder.form.read == "outputs" and logits.ndim == 3:
            logits = logits[:, 0]
        exact: NDArray[np.float64] = logits.astype(np.float64)
        return exact

    def _answer(self, logits: Numbers, claim: Sequence[int]) -> Numbers:
        """The probability of each answer; of several tokens, those of the least entailed."""
        if logits.shape[-1] == 1:
            # As log odds against an output that is zero.
            logits = np.stack([logits[..., 0], np.zeros_like(logits[..., 0])], -1)
            return _softmax(logits)[:1]
        shares = _softmax(logits)
        if self._folder.form.read != "tokens":
            return shares
        of_claim = shares[list(claim)] if claim else shares
        least = int(np.argmin(of_claim[:, self._folder.labels.index("entailed")]))
        judged: Numbers = of_claim[least]
        return judged

    def _read_fitting(self, pair: Pair) -> "_Input":
        """`pair` as the model reads it; the end of the premise is cut off if need be.

        Windows are cut by the tokens of the premise by itself, which may be some fewer.
        """
        premise = pair.premise
        while True:
            found = self._read(Pair(premise, pair.claim))
            excess = len(found.encoding.ids) - self._folder.max_length
            tokens = self.tokens(premise) if excess > 0 else []
            if not tokens:
                return found
            premise = premise[: tokens[-excess].start if excess < len(tokens) else 0]

    def _read(self, pair: Pair) -> "_Input":
        """`pair` in the texts of the template; no part of it becomes a special token."""
        values = {PREMISE: self.plain(pair.premise), CLAIM: self.plain(pair.claim)}
        texts: list[str] = []
        sequence, claim = 0, Span(0, 0)
        for number, template in enumerate(self._folder.form.texts):
            text = ""
            for part in _PLACES.split(template):
                if part == CLAIM:
                    sequence, claim = number, Span(len(text), len(text) + len(values[CLAIM]))
                text += values.get(part, part)
            texts.append(text)
        encoding = self._encode(*texts)
        if self._folder.form.read != "tokens":
            return _Input(encoding, [])
        places = zip(encoding.sequence_ids, encoding.offsets, strict=True)
        tokens = [
            place
            for place, (number, (start, end)) in enumerate(places)
            if number == sequence and max(start, claim.start) < min(end, claim.end)
        ]
        return _Input(encoding, tokens)

    def _encode(
        self, text: str, second: str | None = None, *, add_special_tokens: bool = True
    ) -> "Encoding":
        """One or two texts as tokens. Raises `InputError` where the tokenizer fails."""
        try:
            return self._tokenizer.encode(text, second, add_special_tokens=add_special_tokens)
        except Exception as error:
            what = f"cannot read a text ({one_line(error)})"
            raise InputError(
                [Fault(str(self._folder.tokenizer), what, "use another export of the model")]
            ) from error

    def _first_tokens(self) -> Iterator[int]:
        """The first token of each word. Raises `InputError` where a word has none of its own."""
        found: dict[int, str] = {}
        for word, _ in self._folder.form.answers:
            ids = self._encode(word, add_special_tokens=False).ids
            token = self._tokenizer.id_to_token(ids[0]) if ids else None
            if token is None or self._special.fullmatch(token) or ids[0] in found:
                like = f", as {found[ids[0]]!r} has" if ids and ids[0] in found else ""
                what = f"its tokenizer has no token for the answer {word!r} alone{like}"
                self._refuse(what, "name words in `answer` that begin with tokens of their own")
            found[ids[0]] = word
            yield ids[0]

    def _refuse(self, what: str, hint: str) -> NoReturn:
        raise InputError([Fault(str(self._folder.tokenizer.parent), what, hint)])


class _Input(NamedTuple):
    """A pair as token ids, and which of them are the claim's where that matters."""

    encoding: "Encoding"
    claim: Sequence[int]


def _softmax(logits: Numbers) -> Numbers:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Numbers = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _load(
    folder: CrossEncoderFolder, words: Sequence[int], threads: int | None
) -> Iterator[OnnxModel]:
    """The model of a folder, or its encoder and its decoder; `words` are tokens that it says."""
    labels, read, answers = len(folder.labels), folder.form.read, folder.form.answers
    encoder, *decoders = folder.models
    named = "the template or `answer`" if answers else "id2label"
    hint = f"it must give a text {labels} numbers, as {named} has it"
    of_text: Shape = (None, labels)
    of_tokens: Shape = (None, None, labels)
    shapes: list[Shape] = [of_text]
    if read == "words":
        shapes, hint = [(None, None, Least(max(words) + 1))], "it must give a number for each word"
    elif read == "tokens" or folder.form.each_token:
        shapes, hint = [of_tokens], f"it must give {labels} numbers for each token"
    elif answers and folder.form.each_token is None:
        shapes.append(of_tokens)
    if decoders:
        vectors = "it must give batch, tokens and numbers"
        yield OnnxModel(encoder, [(None, None, None)], vectors, threads=threads)
    for path in decoders or [encoder]:
        inputs = _DECODER_INPUTS if decoders else INPUTS
        yield OnnxModel(path, shapes, hint, inputs=inputs, threads=threads)
