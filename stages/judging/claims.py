"""Claims of texts from a language model; a text too long for one reply is split."""

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from pydantic import BaseModel

from claimflow.stages.text.sentences import halve, split_sentences
from claimflow.stages.tools import LLM, Failure, Form, Question, Reply

_CUTS: Final = 4
"""How often a text is halved before its failure stands: into at most 16 parts."""


class Decomposition(BaseModel):
    """What a language model says of a text: the claims that it makes."""

    claims: list[str]


class LlmClaim(NamedTuple):
    """A claim, and the call of the language model that gave it."""

    claim: str
    call_id: str


def ask_claims(
    texts: Iterable[str], form: Form, llm: LLM, *, cuts: int = _CUTS
) -> dict[str, list[LlmClaim] | Failure]:
    """The claims of each text, without repeats in the model's order, or why there are none.

    A reply that was cut off may lack any number of claims, so none of it counts: the
    text is halved between sentences and both parts are asked. A single sentence is cut only
    where it is too long for the model, because half a sentence claims something else.
    """
    replies = llm.ask([Question(text) for text in dict.fromkeys(texts)], form)
    claims = {question.text: _claims_in(reply) for question, reply in replies.items()}
    halves = {
        text: [text[start:end] for start, end in spans]
        for text, found in claims.items()
        if cuts and _can_be_halved(text, found) and (spans := halve(text, overlap=0))
    }
    if halves:
        parts = [part for pair in halves.values() for part in pair]
        of_parts = ask_claims(parts, form, llm, cuts=cuts - 1)
        for text, pair in halves.items():
            claims[text] = _merged(of_parts[part] for part in pair)
    return claims


def _claims_in(reply: Reply | Failure) -> list[LlmClaim] | Failure:
    if isinstance(reply, Failure):
        return reply
    decomposition = cast(Decomposition, reply.answer)
    claims = dict.fromkeys(" ".join(claim.split()) for claim in decomposition.claims)
    return [LlmClaim(claim, reply.call_id) for claim in claims if claim]


def _can_be_halved(text: str, found: list[LlmClaim] | Failure) -> bool:
    if not isinstance(found, Failure):
        return False
    several = len(split_sentences(text)) > 1
    return found.kind == "too_long" or (found.kind == "truncated" and several)


def _merged(parts: Iterable[list[LlmClaim] | Failure]) -> list[LlmClaim] | Failure:
    claims: dict[str, LlmClaim] = {}
    for part in parts:
        if isinstance(part, Failure):
            return part
        for claim in part:
            claims.setdefault(claim.claim, claim)
    return list(claims.values())
