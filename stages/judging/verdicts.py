"""Verdicts on claims from a language model; a premise too long for the model is split."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator

from claimflow.stages.rows import Label
from claimflow.stages.text.halves import halve
from claimflow.stages.text.locate import find_quote
from claimflow.stages.tools import Failure, Form, Pair, Question, Reply, Respondent

_CUTS: Final = 6
"""How often a premise is halved before we give up: into 64 parts."""

_OVERLAP: Final = 2
"""Sentences on either side of a cut that both parts hold, so that none loses its context."""

_STRENGTH: Final[Mapping[Label, int]] = {"entailed": 2, "contradicted": 1, "neutral": 0}


Words = Annotated[str, BeforeValidator(lambda said: "" if said is None else said)]


class Opinion(BaseModel):
    """What a language model says of a claim: why, by which words of the premise, and what.

    Only the verdict is worth asking again for.
    """

    reason: Words = ""
    evidence: Words = ""
    verdict: Label


class Judged(NamedTuple):
    """A verdict with its reason.

    `evidence` are the words that the model quoted, None where it quoted none, and
    `start:end` their place in the premise, 0:0 where it does not hold them.
    """

    verdict: Label
    reason: str
    evidence: str | None
    start: int
    end: int
    call_id: str


def ask_verdicts(
    pairs: Iterable[Pair], form: Form, llm: Respondent, *, cuts: int = _CUTS
) -> dict[Pair, Judged | Failure]:
    """The verdict on each distinct pair, or why there is none.

    A premise too long for the model is judged in two overlapping parts, those again if
    need be. A claim is entailed when any part entails it, else contradicted when any
    contradicts it; for neutral every part must have been judged.
    """
    asked = {Question(pair.claim, pair.premise): pair for pair in pairs}
    replies = llm.ask(list(asked), form)
    judged = {asked[question]: _judged(question, reply) for question, reply in replies.items()}
    halves = {
        pair: spans
        for pair, verdict in judged.items()
        if cuts and _too_long(verdict) and (spans := halve(pair.premise, overlap=_OVERLAP))
    }
    if halves:
        parts = [
            Pair(pair.premise[start:end], pair.claim)
            for pair, spans in halves.items()
            for start, end in spans
        ]
        of_parts = ask_verdicts(parts, form, llm, cuts=cuts - 1)
        for pair, spans in halves.items():
            judged[pair] = _together(
                _moved(of_parts[Pair(pair.premise[start:end], pair.claim)], start)
                for start, end in spans
            )
    return judged


def _judged(question: Question, reply: Reply | Failure) -> Judged | Failure:
    if isinstance(reply, Failure):
        return reply
    opinion = cast(Opinion, reply.answer)
    place = find_quote(opinion.evidence, question.premise) or (0, 0)
    evidence = opinion.evidence.strip() or None
    return Judged(opinion.verdict, opinion.reason, evidence, *place, reply.call_id)


def _too_long(verdict: Judged | Failure) -> bool:
    return isinstance(verdict, Failure) and verdict.kind == "too_long"


def _moved(verdict: Judged | Failure, by: int) -> Judged | Failure:
    """The verdict on a part as one on the whole, where the part starts `by` characters in."""
    if isinstance(verdict, Failure) or not verdict.end:
        return verdict
    return verdict._replace(start=verdict.start + by, end=verdict.end + by)


def _together(parts: Iterable[Judged | Failure]) -> Judged | Failure:
    """The strongest verdict, of equal ones the first whose evidence was found.

    A part that failed might hold one stronger than contradicted.
    """
    return max(parts, key=_weight)


def _weight(part: Judged | Failure) -> tuple[float, bool]:
    return (1.5, False) if isinstance(part, Failure) else (_STRENGTH[part.verdict], part.end > 0)
