"""Verdicts on the checks of a rubric from a language model, by one vote or several."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, create_model

from claimflow.stages.judging.votes import ballot_json, passing_failure
from claimflow.stages.tools import LLM, Failure, Form, Question, Reply, Respondent

PASS_OR_FAIL: Final = ("fail", "pass")
"""The verdicts without a scale, the lowest first."""


class CheckVerdict(NamedTuple):
    """A verdict, one of the labels of the rubric, with its reason and its call."""

    verdict: str
    reason: str
    call_id: str


class VotedCheck(NamedTuple):
    """The verdict on a check, or why there is none.

    Of several votes `agreement` is the share of those without failure that give this verdict, None
    without a verdict, and `ballot` is every vote, as JSON. Both are None where one reply decides.
    """

    verdict: CheckVerdict | Failure
    agreement: float | None = None
    ballot: str | None = None


def _plain(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def _grade(value: Any) -> Any:
    """A grade that was written as text or with a point, as a whole number; else as it is."""
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return "true or false" if isinstance(value, bool) else value


_Reason = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


@cache
def answer_to_check(labels: tuple[str, ...]) -> type[BaseModel]:
    """The answer to one check: why, then the verdict, one of `labels`.

    Grades are numbers in the reply. Only the verdict is worth asking again for.
    """
    if labels == PASS_OR_FAIL:
        verdict: Any = Annotated[Literal["pass", "fail"], BeforeValidator(_plain)]
    else:
        verdict = Annotated[Literal[tuple(map(int, labels))], BeforeValidator(_grade)]
    fields: Any = {"reason": (_Reason, ""), "verdict": (verdict, ...)}
    return create_model("CheckAnswer", **fields)


def ask_checks(
    questions: Sequence[Question], form: Form, llm: LLM, *, labels: Sequence[str], votes: int
) -> dict[Question, VotedCheck]:
    """The verdict on each question, by `votes` votes; `labels` are its verdicts, lowest first."""
    if votes == 1:
        return {one: VotedCheck(found) for one, found in _ask(questions, form, llm).items()}
    rounds = llm.vote(votes, partial(_ask, questions, form))
    return {
        one: median_verdict([(judge, found[one]) for judge, found in rounds], labels)
        for one in questions
    }


def _ask(
    questions: Sequence[Question], form: Form, llm: Respondent
) -> dict[Question, CheckVerdict | Failure]:
    return {one: _verdict(reply) for one, reply in llm.ask(questions, form).items()}


def _verdict(reply: Reply | Failure) -> CheckVerdict | Failure:
    if isinstance(reply, Failure):
        return reply
    answer: Any = reply.answer
    return CheckVerdict(str(answer.verdict), answer.reason, reply.call_id)


def median_verdict(
    votes: Sequence[tuple[str, CheckVerdict | Failure]], labels: Sequence[str]
) -> VotedCheck:
    """The lower median of `votes`, which are given with their judge, unless a failure matters.

    Of pass and fail it is pass if more than half of the votes are. A vote that failed may have
    been any verdict: where that could change the median there is none. Reason and call are those
    of the first vote with the same verdict.
    """
    given = [vote for _, vote in votes if isinstance(vote, CheckVerdict)]
    failures = [vote for _, vote in votes if isinstance(vote, Failure)]
    ranks = [labels.index(vote.verdict) for vote in given]
    middle, ballot = (len(votes) - 1) // 2, ballot_json(votes)
    lowest, highest = (
        sorted([*ranks, *[rank] * len(failures)])[middle] for rank in (0, len(labels) - 1)
    )
    if lowest != highest:
        failure = passing_failure(failures)
        reason = (
            f"{len(failures)} of {len(votes)} votes failed and could change the verdict of the "
            f"others ({', '.join(labels[rank] for rank in sorted(ranks)) or 'none'}); "
            f"{failure.kind}: {failure.message}"
        )
        return VotedCheck(failure._replace(message=reason), None, ballot)
    same = [vote for vote in given if vote.verdict == labels[lowest]]
    return VotedCheck(same[0], len(same) / len(given), ballot)
