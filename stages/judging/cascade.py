"""Cascade: the entailment model decides what it is sure of, a language model the rest."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator

from claimflow.stages.judging.verdicts import LlmVerdict
from claimflow.stages.judging.votes import VotedVerdict
from claimflow.stages.rows import JudgedBy, content_key
from claimflow.stages.tools import EntailmentModel, Failure, Judgement, Pair

_KEYS: Final = 2**128
"""The number of content keys, which are 128-bit hashes."""

_Probability = Annotated[float, Field(ge=0, le=1)]

LlmAnswer = LlmVerdict | Failure | VotedVerdict


class Cascade(BaseModel):
    """Which model judges a pair.

    The entailment model judges every pair, and its judgement stands where its probability of
    entailed lies outside `between`. A language model judges the pairs within, and a share
    `audit` of the others as a check, always the same ones: by a hash of premise and claim.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Literal["embedded"] = "embedded"
    """The entailment model that judges first: the embedded one, or that of `entailment`."""
    between: tuple[_Probability, _Probability] = (0.1, 0.9)
    """The probabilities of entailed, ends included, with which a pair goes to the judge."""
    audit: _Probability = 0.05
    """The share of the other pairs that goes to the judge as well."""

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


class CascadeVerdict(NamedTuple):
    """The entailment model's judgement of a pair, whose verdict counts, and the judge's answer.

    `answer` is None where the judge was not asked.
    """

    judgement: Judgement
    judged_by: JudgedBy
    answer: LlmAnswer | None


def ask_cascade(
    pairs: Sequence[Pair],
    cascade: Cascade,
    model: EntailmentModel,
    ask_llm: Callable[[Sequence[Pair]], Mapping[Pair, LlmAnswer]],
) -> dict[Pair, CascadeVerdict]:
    """The verdict on each pair; `ask_llm` is called once with all pairs that go to the judge."""
    judgements = model.judge(pairs)
    judged_by = {pair: cascade.judged_by(pair, found) for pair, found in judgements.items()}
    referred = [pair for pair, who in judged_by.items() if who != "embedded"]
    answers = ask_llm(referred) if referred else {}
    return {
        pair: CascadeVerdict(judgements[pair], who, answers.get(pair))
        for pair, who in judged_by.items()
    }
