"""Claims of texts from a language model; a text too long for one reply is split."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

from pydantic import BaseModel, field_validator

from claimflow.stages.text.sentences import halve, split_sentences
from claimflow.stages.tools import LLM, Failure, Form, Question, Reply

_LONGEST_REMARK: Final = 200
"""Characters of what a language model calls unclear that are kept."""

_CUTS: Final = 4
"""How often a text is halved before its failure stands: into at most 16 parts."""


class Unclear(BaseModel):
    """A claim with words that a reader cannot resolve, and those words."""

    claim: str
    what: str


class Decomposition(BaseModel):
    """What a language model says of a text: the claims that it makes."""

    claims: list[str]


class ContextDecomposition(Decomposition):
    """What a language model says of a text whose context it knows: also what is unclear.

    `unclear` says of a claim what neither text nor context resolves.
    """

    unclear: list[Unclear] = []

    @field_validator("unclear", mode="before")
    @classmethod
    def _well_formed_only(cls, entries: Any) -> list[Any]:
        """The entries of the right shape: a malformed remark must not lose the claims."""
        found = entries if isinstance(entries, list) else []
        return [
            one
            for one in found
            if isinstance(one, dict)
            and all(isinstance(one.get(name), str) for name in Unclear.model_fields)
        ]


class LlmClaim(NamedTuple):
    """A claim, the call of the language model that gave it, and what it leaves open."""

    claim: str
    call_id: str
    ambiguous: str | None = None


def ask_claims(
    questions: Iterable[Question], form: Form, llm: LLM, *, cuts: int = _CUTS
) -> dict[Question, list[LlmClaim] | Failure]:
    """The claims of each text, without repeats in the model's order, or why there are none.

    The premise of a question is the context of its text. A reply that was cut off may lack any
    number of claims, so none of it counts: the text is halved between sentences and both parts
    are asked. A single sentence is cut only where it is too long for the model, because half a
    sentence claims something else.
    """
    replies = llm.ask(list(dict.fromkeys(questions)), form)
    claims = {question: _claims_in(reply) for question, reply in replies.items()}
    halves = {
        question: [question._replace(text=question.text[start:end]) for start, end in spans]
        for question, found in claims.items()
        if cuts
        and _can_be_halved(question.text, found)
        and (spans := halve(question.text, overlap=0))
    }
    if halves:
        parts = [part for pair in halves.values() for part in pair]
        of_parts = ask_claims(parts, form, llm, cuts=cuts - 1)
        for question, pair in halves.items():
            claims[question] = _merged(of_parts[part] for part in pair)
    return claims


def _claims_in(reply: Reply | Failure) -> list[LlmClaim] | Failure:
    if isinstance(reply, Failure):
        return reply
    decomposition = cast(Decomposition, reply.answer)
    unclear = {}
    if isinstance(decomposition, ContextDecomposition):
        unclear = {
            _on_one_line(one.claim): _on_one_line(one.what)[:_LONGEST_REMARK] or None
            for one in decomposition.unclear
        }
    claims = dict.fromkeys(map(_on_one_line, decomposition.claims))
    return [
        LlmClaim(claim, reply.call_id, unclear.get(claim))
        for claim in claims
        if any(map(str.isalnum, claim))
    ]


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


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
