"""Cascade: the entailment model decides what it is sure of, a language model the rest."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator

from claimflow.stages.judging.verdicts import Judged
from claimflow.stages.judging.votes import Decided
from claimflow.stages.rows import JudgedBy, content_key
from claimflow.stages.tools import EntailmentModel, Failure, Judgement, Pair

_KEYS: Final = 2**128
"""How many content keys there are."""

_Probability = Annotated[float, Field(ge=0, le=1)]

Answer = Judged | Failure | Decided
Ask = Callable[[Sequence[Pair]], Mapping[Pair, Answer]]


class Cascade(BaseModel):
    """Who judges a pair.

    The entailment model judges every pair, and its judgement stands where its probability of
    entailed lies outside `between`. A language model judges the other pairs, and `audit`, a
    share of those that are settled: always the same ones, by a hash of premise and claim.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Literal["embedded"] = "embedded"
    """The one that needs no language model: what claimflow carries, or `entailment`."""
    between: tuple[_Probability, _Probability] = (0.1, 0.9)
    """The probabilities of entailed, ends included, with which a pair goes to the judge."""
    audit: _Probability = 0.05
    """The share of the others that goes to the judge as well."""

    @field_validator("between")
    @classmethod
    def _in_order(cls, between: tuple[float, float]) -> tuple[float, float]:
        if between[0] > between[1]:
            raise ValueError(f"write the smaller one first: [{between[1]}, {between[0]}]")
        return between

    def judged_by(self, pair: Pair, judgement: Judgement) -> JudgedBy:
        """Whose verdict on `pair` counts, where the entailment model gave `judgement`."""
        low, high = self.between
        if low <= judgement.entailed <= high:
            return "judge"
        drawn = UUID(content_key("audit", pair.premise, pair.claim)).int
        return "audit" if drawn < self.audit * _KEYS else "embedded"


class Cascaded(NamedTuple):
    """What the entailment model says of a pair, whose verdict counts, and what the judge said.

    `answer` is None where no judge was asked.
    """

    judgement: Judgement
    judged_by: JudgedBy
    answer: Answer | None


def ask_cascade(
    pairs: Sequence[Pair], cascade: Cascade, model: EntailmentModel, ask: Ask
) -> dict[Pair, Cascaded]:
    """What becomes of each pair; those that are not settled go to `ask` all at once."""
    judgements = model.judge(pairs)
    whose = {pair: cascade.judged_by(pair, judged) for pair, judged in judgements.items()}
    left = [pair for pair, who in whose.items() if who != "embedded"]
    answers = ask(left) if left else {}
    return {pair: Cascaded(judgements[pair], who, answers.get(pair)) for pair, who in whose.items()}
