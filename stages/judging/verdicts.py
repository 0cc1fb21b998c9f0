"""Verdicts on claims from a language model; a premise too long for the model is split."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator

from claimflow.stages.rows import Label
from claimflow.stages.text.locate import find_quote
from claimflow.stages.text.sentences import halve
from claimflow.stages.tools import Failure, Form, Pair, Question, Reply, Respondent

_CUTS: Final = 6
"""How often a premise is halved before its failure stands: into at most 64 parts."""

_OVERLAP: Final = 2
"""Sentences on either side of a cut that are in both parts, so that they keep their context."""

_STRENGTH: Final[Mapping[Label, int]] = {"entailed": 2, "contradicted": 1, "neutral": 0}


_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class Opinion(BaseModel):
    """What a language model says of a claim: why, by which words of the premise, and what.

    Only the verdict is worth asking again for.
    """

    reason: _Text = ""
    evidence: _Text = ""
    verdict: Label


class LlmVerdict(NamedTuple):
    """A verdict with its reason.

    `evidence` is what the model quoted, None where it quoted nothing, and `start:end` the
    place of the quote in the premise, 0:0 where the premise does not contain it.
    """

    verdict: Label
    reason: str
    evidence: str | None
    start: int
    end: int
    call_id: str


def ask_verdicts(
    pairs: Iterable[Pair], form: Form, llm: Respondent, *, cuts: int = _CUTS
) -> dict[Pair, LlmVerdict | Failure]:
    """The verdict on each distinct pair, or why there is none.

    A premise too long for the model is judged in two overlapping halves, which may be halved
    again. A claim is entailed when any part entails it, else contradicted when any
    contradicts it; for neutral every part must have been judged.
    """
    asked = {Question(pair.claim, pair.premise): pair for pair in pairs}
    replies = llm.ask(list(asked), form)
    verdicts = {asked[question]: _verdict(question, reply) for question, reply in replies.items()}
    halves = {
        pair: spans
        for pair, verdict in verdicts.items()
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
            verdicts[pair] = _strongest(
                _shifted(of_parts[Pair(pair.premise[start:end], pair.claim)], start)
                for start, end in spans
            )
    return verdicts


def _verdict(question: Question, reply: Reply | Failure) -> LlmVerdict | Failure:
    if isinstance(reply, Failure):
        return reply
    opinion = cast(Opinion, reply.answer)
    place = find_quote(opinion.evidence, question.premise) or (0, 0)
    evidence = opinion.evidence.strip() or None
    return LlmVerdict(opinion.verdict, opinion.reason, evidence, *place, reply.call_id)


def _too_long(verdict: LlmVerdict | Failure) -> bool:
    return isinstance(verdict, Failure) and verdict.kind == "too_long"


def _shifted(verdict: LlmVerdict | Failure, by: int) -> LlmVerdict | Failure:
    """The verdict on a part that starts `by` characters into the premise, as one on the whole."""
    if isinstance(verdict, Failure) or not verdict.end:
        return verdict
    return verdict._replace(start=verdict.start + by, end=verdict.end + by)


def _strongest(parts: Iterable[LlmVerdict | Failure]) -> LlmVerdict | Failure:
    """The strongest verdict on any part, of equal ones the first whose evidence was found.

    A failure ranks above contradicted, because that part might entail the claim.
    """
    return max(parts, key=_rank)


def _rank(part: LlmVerdict | Failure) -> tuple[float, bool]:
    return (1.5, False) if isinstance(part, Failure) else (_STRENGTH[part.verdict], part.end > 0)
