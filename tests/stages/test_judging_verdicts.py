"""Verdicts on claims, by a model that answers from a table and notes what it is asked."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.judging.verdicts import LlmVerdict, Opinion, ask_verdicts
from claimflow.stages.rows import FailureKind, Label
from claimflow.stages.tools import Failure, Form, Pair, Question, Reply

FORM = Form("{{premise}}\n{{claims}}", "claims", Opinion, 8, keep_part=True)
TOO_LONG = Failure("too_long", "does not fit", "call")
PREMISE = "Ann left. Bob ran. Cy sat. Di sang. Ed slept. Flo fell. Gus won. Hal lost."


def opinion(verdict: Label, evidence: str = "", reason: str = "so") -> Opinion:
    return Opinion(reason=reason, evidence=evidence, verdict=verdict)


class Judge:
    """Has an opinion on a premise; finds those over `longest` characters too long."""

    def __init__(self, say: Callable[[str], Opinion | Failure], longest: int = 1_000_000) -> None:
        self.say = say
        self.longest = longest
        self.asked: list[list[Question]] = []

    def ask(self, questions: Sequence[Question], form: Form) -> dict[Question, Reply | Failure]:
        assert form is FORM
        self.asked.append(list(questions))
        return {question: self.reply(question.premise) for question in questions}

    def reply(self, premise: str) -> Reply | Failure:
        answer = TOO_LONG if len(premise) > self.longest else self.say(premise)
        return answer if isinstance(answer, Failure) else Reply(answer, f"call on {premise}")


def judge_one(premise: str, judge: Judge) -> LlmVerdict | Failure:
    pair = Pair(premise, "c")
    return ask_verdicts([pair], FORM, judge)[pair]


def place(evidence: str, premise: str = PREMISE) -> tuple[str | None, int, int]:
    judged = judge_one(premise, Judge(lambda _: opinion("neutral", evidence)))
    assert isinstance(judged, LlmVerdict)
    return judged.evidence, judged.start, judged.end


def finds(**words: Label | Failure) -> Callable[[str], Opinion | Failure]:
    """The opinion of the first of `words` that a premise holds, neutral without any."""

    def say(premise: str) -> Opinion | Failure:
        for word, answer in words.items():
            if word in premise:
                return answer if isinstance(answer, Failure) else opinion(answer, word)
        return opinion("neutral")

    return say


def test_an_opinion_with_its_evidence_in_its_place() -> None:
    judge = Judge(lambda _: opinion("entailed", " Bob ran.\n", "It is said."))
    expected = LlmVerdict("entailed", "It is said.", "Bob ran.", 10, 18, f"call on {PREMISE}")
    assert judge_one(PREMISE, judge) == expected
    assert judge.asked == [[Question("c", PREMISE)]]


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ("bob RAN", ("bob RAN", 10, 17)),
        ("“Bob ran.\nCy – sat”", ("“Bob ran.\nCy – sat”", 10, 25)),
        ("Bob walked.", ("Bob walked.", 0, 0)),
        ("...", ("...", 0, 0)),
        (" \n", (None, 0, 0)),
        ("", (None, 0, 0)),
    ],
)
def test_evidence_is_located_by_its_words_and_kept_without_a_place(
    evidence: str, expected: tuple[str | None, int, int]
) -> None:
    assert place(evidence) == expected


def test_distinct_pairs_are_asked_in_one_request() -> None:
    judge = Judge(finds(p="entailed"))
    pairs = [Pair("p", "c"), Pair("p", "d"), Pair("q", "c")]
    judged = ask_verdicts(iter([*pairs, pairs[0]]), FORM, judge)
    assert list(judged) == pairs
    assert judge.asked == [[Question("c", "p"), Question("d", "p"), Question("c", "q")]]
    assert judged[pairs[2]] == LlmVerdict("neutral", "so", None, 0, 0, "call on q")


@pytest.mark.parametrize("kind", ["refused", "timeout", "truncated", "missing", "not_asked"])
def test_a_failure_is_passed_on_and_not_asked_again(kind: FailureKind) -> None:
    failure = Failure(kind, "why", "call")
    judge = Judge(lambda _: failure)
    assert judge_one(PREMISE, judge) is failure
    assert len(judge.asked) == 1


def test_a_premise_that_is_too_long_is_judged_in_parts_that_overlap() -> None:
    judge = Judge(finds(Gus="entailed"), longest=len(PREMISE) - 1)
    judged = judge_one(PREMISE, judge)
    parts = [PREMISE[: PREMISE.index(" Gus")], PREMISE[PREMISE.index("Cy") :]]
    assert judge.asked[1:] == [[Question("c", part) for part in parts]]
    start = PREMISE.index("Gus")
    assert judged == LlmVerdict("entailed", "so", "Gus", start, start + 3, f"call on {parts[1]}")


def test_evidence_of_a_nested_part_has_its_place_in_the_premise() -> None:
    judge = Judge(finds(Hal="contradicted"), longest=25)
    judged = judge_one(PREMISE, judge)
    assert isinstance(judged, LlmVerdict)
    assert len(judge.asked) > 2
    assert PREMISE[judged.start : judged.end] == judged.evidence == "Hal"


def test_a_verdict_without_evidence_has_no_place() -> None:
    judged = judge_one(PREMISE, Judge(lambda _: opinion("neutral", "no such words"), longest=60))
    assert isinstance(judged, LlmVerdict)
    assert (judged.evidence, judged.start, judged.end) == ("no such words", 0, 0)


REFUSAL = Failure("refused", "no", "call")


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("entailed", "contradicted", "entailed"),
        ("contradicted", "entailed", "entailed"),
        ("neutral", "entailed", "entailed"),
        ("neutral", "contradicted", "contradicted"),
        ("contradicted", "neutral", "contradicted"),
        ("neutral", "neutral", "neutral"),
        (REFUSAL, "entailed", "entailed"),
        ("entailed", REFUSAL, "entailed"),
        (REFUSAL, "contradicted", REFUSAL),
        ("contradicted", REFUSAL, REFUSAL),
        ("neutral", REFUSAL, REFUSAL),
        (REFUSAL, REFUSAL, REFUSAL),
    ],
)
def test_the_strongest_verdict_of_the_parts_counts(
    first: Label | Failure, second: Label | Failure, whole: Label | Failure
) -> None:
    judged = judge_one(PREMISE, Judge(finds(Ann=first, Hal=second), longest=len(PREMISE) - 1))
    assert (judged.verdict if isinstance(judged, LlmVerdict) else judged) == whole


def _always(answer: Opinion, premise: str) -> Opinion:
    return answer


def test_of_equal_verdicts_the_one_whose_evidence_was_found_counts() -> None:
    for evidence in ("Ann", "Hal"):
        answer = opinion("entailed", evidence)
        judged = judge_one(PREMISE, Judge(partial(_always, answer), len(PREMISE) - 1))
        assert isinstance(judged, LlmVerdict)
        assert judged.start == PREMISE.index(evidence)
        assert judged.end == judged.start + 3


def test_a_premise_is_cut_six_times_at_most() -> None:
    premise = " ".join(f"Part {number}." for number in range(500))
    judge = Judge(finds(), longest=0)
    assert judge_one(premise, judge) is TOO_LONG
    assert [len(asked) for asked in judge.asked] == [1, 2, 4, 8, 16, 32, 64]


def test_a_single_word_is_not_cut() -> None:
    judge = Judge(finds(), longest=0)
    assert judge_one("word", judge) is TOO_LONG
    assert len(judge.asked) == 1


@given(
    st.lists(st.sampled_from(["No.", "Yes sir.", "Not so fast.", "Maybe, but."]), max_size=30),
    st.integers(20, 60),
)
def test_a_long_premise_gives_the_verdict_of_a_short_one(
    sentences: list[str], longest: int
) -> None:
    premise = " ".join(["Well.", *sentences])
    say = finds(Yes="entailed", fast="contradicted")
    whole, in_parts = (judge_one(premise, Judge(say, longest=n)) for n in (10_000, longest))
    assert isinstance(whole, LlmVerdict)
    assert isinstance(in_parts, LlmVerdict)
    assert in_parts.verdict == whole.verdict
    if in_parts.evidence:
        assert premise[in_parts.start : in_parts.end] == in_parts.evidence


@pytest.mark.parametrize("other", [{}, {"reason": None, "evidence": None}])
def test_only_the_verdict_is_needed(other: Mapping[str, Any]) -> None:
    assert Opinion.model_validate({**other, "verdict": "neutral"}) == opinion("neutral", reason="")
    for without in ({}, {"verdict": None}, {"verdict": "true"}):
        with pytest.raises(ValidationError, match="verdict"):
            Opinion.model_validate({**other, **without})
