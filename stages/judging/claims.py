"""Claims of texts from a language model; a text too long for one reply is split."""

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from pydantic import BaseModel

from claimflow.stages.text.halves import halve
from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.tools import LLM, Failure, Form, Question, Reply

_CUTS: Final = 4
"""How often a text is halved before we give up: into 16 parts."""


class Decomposition(BaseModel):
    """What a language model says of a text: the claims that it makes."""

    claims: list[str]


class Named(NamedTuple):
    """A claim, and the call of the language model that named it."""

    claim: str
    call_id: str


def ask_claims(
    texts: Iterable[str], form: Form, llm: LLM, *, cuts: int = _CUTS
) -> dict[str, list[Named] | Failure]:
    """The claims of each text, once each and in the model's order, or why there are none.

    A reply that was cut off may lack claims nobody knows of, so none of it counts: the
    text is halved between sentences and both parts are asked again. A sentence is cut only
    where it is too long for the model, for half of one claims something else.
    """
    replies = llm.ask([Question(text) for text in dict.fromkeys(texts)], form)
    named = {question.text: _named(reply) for question, reply in replies.items()}
    halves = {
        text: [text[start:end] for start, end in spans]
        for text, reply in named.items()
        if cuts and _can_be_cut(text, reply) and (spans := halve(text, overlap=0))
    }
    if halves:
        parts = [part for pair in halves.values() for part in pair]
        of_parts = ask_claims(parts, form, llm, cuts=cuts - 1)
        for text, pair in halves.items():
            named[text] = _together(of_parts[part] for part in pair)
    return named


def _named(reply: Reply | Failure) -> list[Named] | Failure:
    if isinstance(reply, Failure):
        return reply
    decomposition = cast(Decomposition, reply.answer)
    claims = dict.fromkeys(" ".join(claim.split()) for claim in decomposition.claims)
    return [Named(claim, reply.call_id) for claim in claims if claim]


def _can_be_cut(text: str, reply: list[Named] | Failure) -> bool:
    if not isinstance(reply, Failure):
        return False
    several = len(split_sentences(text)) > 1
    return reply.kind == "too_long" or (reply.kind == "truncated" and several)


def _together(parts: Iterable[list[Named] | Failure]) -> list[Named] | Failure:
    claims: dict[str, Named] = {}
    for part in parts:
        if isinstance(part, Failure):
            return part
        for named in part:
            claims.setdefault(named.claim, named)
    return list(claims.values())
