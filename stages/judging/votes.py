"""One verdict from several independent votes, by absolute majority."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from claimflow.stages.judging.verdicts import Judged, ask_verdicts
from claimflow.stages.rows import Label
from claimflow.stages.tools import LLM, Failure, Form, Pair

_FOR_GOOD: Final = frozenset({"refused", "too_long"})
"""Failures that asking again would meet again: another kind says more of a failed row."""


class Vote(NamedTuple):
    """What one judge said of a pair, or why it said nothing."""

    judge: str
    said: Judged | Failure


class Decided(NamedTuple):
    """The verdict of several votes, or why there is none.

    `agreement` is the share of the given votes that say the same, None without a verdict;
    `ballot` is every vote, as JSON.
    """

    outcome: Judged | Failure
    agreement: float | None
    ballot: str


def ask_ballots(pairs: Sequence[Pair], form: Form, llm: LLM, *, votes: int) -> dict[Pair, Decided]:
    """The verdict of `votes` votes on each distinct pair."""
    rounds = [(voter.judge, ask_verdicts(pairs, form, voter.llm)) for voter in llm.voters(votes)]
    return {pair: decide([Vote(judge, said[pair]) for judge, said in rounds]) for pair in pairs}


def decide(votes: Sequence[Vote]) -> Decided:
    """The verdict that more than half of `votes` give, failed ones counted among them.

    Where none is and every vote was given, it is neutral: a tie supports no claim, and
    contradicts none. Where votes failed that might have decided, there is no verdict.
    Reason, evidence and call are those of the first vote that says the same.
    """
    given = [vote.said for vote in votes if isinstance(vote.said, Judged)]
    failures = [vote.said for vote in votes if isinstance(vote.said, Failure)]
    counts = Counter(said.verdict for said in given)
    ballot = json.dumps([_told(vote) for vote in votes], ensure_ascii=False)
    for label, count in counts.items():
        if 2 * count > len(votes):
            first = next(said for said in given if said.verdict == label)
            return Decided(first, count / len(given), ballot)
    if failures:
        return Decided(_no_majority(failures, counts, len(votes)), None, ballot)
    return Decided(_undecided(given, counts), counts["neutral"] / len(given), ballot)


def _undecided(given: Sequence[Judged], counts: Counter[Label]) -> Judged:
    reason = f"no verdict has more than half of the {len(given)} votes: {_counted(counts)}"
    first = next((said for said in given if said.verdict == "neutral"), given[0])
    return Judged("neutral", reason, None, 0, 0, first.call_id)


def _no_majority(failures: Sequence[Failure], counts: Counter[Label], asked: int) -> Failure:
    worth = (failure for failure in failures if failure.kind not in _FOR_GOOD)
    failure = next(worth, failures[0])
    given = f" ({_counted(counts)})" if counts else ""
    reason = (
        f"{len(failures)} of {asked} votes failed and no verdict has more than half of all"
        f"{given}; {failure.kind}: {failure.message}"
    )
    return failure._replace(message=reason)


def _counted(counts: Counter[Label]) -> str:
    labels: Iterable[Label] = ("entailed", "contradicted", "neutral")
    return ", ".join(f"{counts[label]} {label}" for label in labels if counts[label])


def _told(vote: Vote) -> dict[str, Any]:
    judge, said = vote
    why: dict[str, str | None]
    if isinstance(said, Failure):
        why = {"failure": said.kind, "reason": said.message}
    else:
        why = {"verdict": said.verdict, "reason": said.reason or None}
    return {"judge": judge, **why, "call_id": said.call_id}
