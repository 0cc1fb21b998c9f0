"""A cross-encoder as an entailment model: long premises in windows, the best of which counts."""

import importlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from claimflow.flows.engine.cross_encoder.folder import read_folder
from claimflow.flows.engine.cross_encoder.windows import WINDOWS_VERSION, windows
from claimflow.stages.text.sentences import Span
from claimflow.stages.tools import Judgement, Pair
from claimflow.stages.words import Label

if TYPE_CHECKING:
    from claimflow.flows.engine.cross_encoder.session import Session

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
            session = importlib.import_module("claimflow.flows.engine.cross_encoder.session")
            self._loaded = session.Session(self._folder, threads=self._threads)
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
