"""One verdict from several independent votes, by absolute majority."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, get_args

from claimflow.stages.judging.verdicts import LlmVerdict, ask_verdicts
from claimflow.stages.rows import Label
from claimflow.stages.tools import LLM, Failure, Form, Pair

_LASTING: Final = frozenset({"refused", "too_long"})
"""Failures that come again when the question is asked again. A failed row reports another kind
where there is one, so that asking again is worth it."""


class _Given(Protocol):
    """A verdict of any kind."""

    @property
    def verdict(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def call_id(self) -> str: ...


class Vote(NamedTuple):
    """The verdict of one judge on a pair, or why it gave none."""

    judge: str
    verdict: LlmVerdict | Failure


class VotedVerdict(NamedTuple):
    """The verdict of several votes, or why there is none.

    `agreement` is the share of the votes without failure that give this verdict, and `support` the
    share of them that say entailed, both None without a verdict; `ballot` is every vote, as JSON.
    """

    verdict: LlmVerdict | Failure
    agreement: float | None
    support: float | None
    ballot: str


def ask_votes(
    pairs: Sequence[Pair], form: Form, llm: LLM, *, votes: int
) -> dict[Pair, VotedVerdict]:
    """The verdict of `votes` votes on each distinct pair."""
    rounds = llm.vote(votes, partial(ask_verdicts, pairs, form))
    return {
        pair: majority_verdict([Vote(judge, verdicts[pair]) for judge, verdicts in rounds])
        for pair in pairs
    }


def majority_verdict(votes: Sequence[Vote]) -> VotedVerdict:
    """The verdict that more than half of `votes` give, failed votes counted among all.

    Without such a majority it is neutral when no vote failed: a tie supports no claim and
    contradicts none. When votes failed that could have decided, there is no verdict.
    Reason, evidence and call are those of the first vote with the same verdict.
    """
    given = [vote.verdict for vote in votes if isinstance(vote.verdict, LlmVerdict)]
    failures = [vote.verdict for vote in votes if isinstance(vote.verdict, Failure)]
    counts = Counter(verdict.verdict for verdict in given)
    ballot = ballot_json(votes)
    for label, count in counts.items():
        if 2 * count > len(votes):
            first = next(verdict for verdict in given if verdict.verdict == label)
            return VotedVerdict(first, count / len(given), counts["entailed"] / len(given), ballot)
    if failures:
        return VotedVerdict(_no_majority(failures, counts, len(votes)), None, None, ballot)
    tie, neutral, entailed = _tie(given, counts), counts["neutral"], counts["entailed"]
    return VotedVerdict(tie, neutral / len(given), entailed / len(given), ballot)


def _tie(given: Sequence[LlmVerdict], counts: Counter[Label]) -> LlmVerdict:
    reason = f"no verdict has more than half of the {len(given)} votes: {_format_counts(counts)}"
    first = next((verdict for verdict in given if verdict.verdict == "neutral"), given[0])
    return LlmVerdict("neutral", reason, None, 0, 0, first.call_id)


def _no_majority(failures: Sequence[Failure], counts: Counter[Label], asked: int) -> Failure:
    failure = passing_failure(failures)
    given = f" ({_format_counts(counts)})" if counts else ""
    reason = (
        f"{len(failures)} of {asked} votes failed and no verdict has more than half of all"
        f"{given}; {failure.kind}: {failure.message}"
    )
    return failure._replace(message=reason)


def _format_counts(counts: Counter[Label]) -> str:
    labels: tuple[Label, ...] = get_args(Label)
    return ", ".join(f"{counts[label]} {label}" for label in labels if counts[label])


def passing_failure(failures: Sequence[Failure]) -> Failure:
    """The failure to report of several: one that may not come again, where there is one."""
    return next((one for one in failures if one.kind not in _LASTING), failures[0])


def ballot_json(votes: Sequence[tuple[str, _Given | Failure]]) -> str:
    """Every vote, given with the name of its judge, as JSON."""
    return json.dumps([_ballot_entry(*vote) for vote in votes], ensure_ascii=False)


def _ballot_entry(judge: str, verdict: _Given | Failure) -> dict[str, str | None]:
    answer: dict[str, str | None]
    if isinstance(verdict, Failure):
        answer = {"failure": verdict.kind, "reason": verdict.message}
    else:
        answer = {"verdict": verdict.verdict, "reason": verdict.reason or None}
    return {"judge": judge, **answer, "call_id": verdict.call_id}
