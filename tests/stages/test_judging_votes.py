"""One verdict out of several votes: decided from literal votes, and by judges that differ."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final

import polars as pl
import pytest
from pydantic import ValidationError

from claimflow.stages.judging.verdicts import LlmVerdict, Opinion
from claimflow.stages.judging.votes import Vote, majority_verdict
from claimflow.stages.rows import Claim, Label, Sample, Verdict
from claimflow.stages.tables import build, conform
from claimflow.stages.tools import Failure, Form, Question, Reply, Respondent, Result
from claimflow.stages.verify import VerifyClaims

CALLS: Final = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(8)]
WORDS: Final[Mapping[str, Label]] = {"e": "entailed", "c": "contradicted", "n": "neutral"}


def votes(letters: str) -> list[Vote]:
    """A vote for each letter, by judges 1, 2, ...; t is a timeout, r a refusal."""
    return [
        Vote(f"j{number}", vote_result(letter, number)) for number, letter in enumerate(letters, 1)
    ]


def vote_result(letter: str, number: int) -> LlmVerdict | Failure:
    if letter in WORDS:
        return LlmVerdict(WORDS[letter], f"why {number}", f"words {number}", 0, 5, CALLS[number])
    kind = "timeout" if letter == "t" else "refused"
    return Failure(kind, f"broke {number}", CALLS[number])


@pytest.mark.parametrize(
    ("letters", "verdict", "agreement", "support", "call"),
    [
        ("eee", "entailed", 1.0, 1.0, 1),
        ("ece", "entailed", 2 / 3, 2 / 3, 1),
        ("cee", "entailed", 2 / 3, 2 / 3, 2),
        ("ncc", "contradicted", 2 / 3, 0.0, 2),
        ("nne", "neutral", 2 / 3, 1 / 3, 1),
        ("ee", "entailed", 1.0, 1.0, 1),
        ("eet", "entailed", 1.0, 1.0, 1),
        ("tere", "failed", None, None, 1),
        ("teeec", "entailed", 3 / 4, 3 / 4, 2),
        # Ties, and a claim that most do not support.
        ("ec", "neutral", 0.0, 1 / 2, 1),
        ("ecn", "neutral", 1 / 3, 1 / 3, 3),
        ("en", "neutral", 1 / 2, 1 / 2, 2),
        ("eecc", "neutral", 0.0, 1 / 2, 1),
        ("eeeccnn", "neutral", 2 / 7, 3 / 7, 6),
    ],
)
def test_the_verdict_is_that_of_more_than_half_of_those_asked(
    letters: str, verdict: str, agreement: float | None, support: float | None, call: int
) -> None:
    decided = majority_verdict(votes(letters))
    assert (decided.agreement, decided.support) == (agreement, support)
    assert decided.verdict.call_id == CALLS[call]
    if verdict == "failed":
        assert isinstance(decided.verdict, Failure)
    else:
        assert isinstance(decided.verdict, LlmVerdict)
        assert decided.verdict.verdict == verdict


def test_a_claim_without_a_supporting_majority_is_not_supported() -> None:
    for letters in map("".join, product("ecntr", repeat=4)):
        outcome = majority_verdict(votes(letters)).verdict
        if isinstance(outcome, LlmVerdict) and outcome.verdict != "neutral":
            assert 2 * letters.count(outcome.verdict[0]) > len(letters), letters
        if set(letters) <= WORDS.keys():
            assert isinstance(outcome, LlmVerdict), letters


def test_reason_and_evidence_are_those_of_the_first_of_the_majority() -> None:
    assert majority_verdict(votes("nee")).verdict == vote_result("e", 2)
    tied = majority_verdict(votes("eecc")).verdict
    reason = "no verdict has more than half of the 4 votes: 2 entailed, 2 contradicted"
    assert tied == LlmVerdict("neutral", reason, None, 0, 0, CALLS[1])


def test_a_failed_majority_says_how_many_votes_failed() -> None:
    failed = majority_verdict(votes("ert"))
    reason = (
        "2 of 3 votes failed and no verdict has more than half of all (1 entailed); "
        "timeout: broke 3"
    )
    assert failed.verdict == Failure("timeout", reason, CALLS[3])
    alone = majority_verdict(votes("rr")).verdict
    reason = "2 of 2 votes failed and no verdict has more than half of all; refused: broke 1"
    assert alone == Failure("refused", reason, CALLS[1])


def test_the_ballot_contains_every_vote() -> None:
    assert json.loads(majority_verdict(votes("etn")).ballot) == [
        {"judge": "j1", "verdict": "entailed", "reason": "why 1", "call_id": CALLS[1]},
        {"judge": "j2", "failure": "timeout", "reason": "broke 2", "call_id": CALLS[2]},
        {"judge": "j3", "verdict": "neutral", "reason": "why 3", "call_id": CALLS[3]},
    ]


class One:
    """Says one thing of everything."""

    def __init__(self, letter: str, number: int) -> None:
        self.number = number
        self.letter = letter
        self.asked = 0

    def ask(self, questions: Sequence[Question], form: Form) -> dict[Question, Reply | Failure]:
        self.asked += len(questions)
        found = vote_result(self.letter, self.number)
        if isinstance(found, LlmVerdict):
            opinion = Opinion(reason="so", evidence="It", verdict=found.verdict)
            return {question: Reply(opinion, found.call_id) for question in questions}
        return dict.fromkeys(questions, found)


class Several(One):
    """One that has colleagues."""

    def __init__(self, letters: str) -> None:
        super().__init__(letters[0], 1)
        self.all = [self, *(One(letter, n) for n, letter in enumerate(letters[1:], 2))]

    def vote(self, votes: int, ask: Callable[[Respondent], Result]) -> list[tuple[str, Result]]:
        return [(f"j{one.number}", ask(one)) for one in self.all[:votes]]


SAMPLES = build(Sample, [{"sample_id": "s", "reference": "It rains."}])
CLAIM_ID = "10000000-0000-0000-0000-000000000000"
CLAIMS = build(
    Claim, [{"claim_id": CLAIM_ID, "sample_id": "s", "of": "response", "claim": "It is wet."}]
)


def verdict(letters: str, number: int) -> tuple[dict[str, object], Several]:
    stage = VerifyClaims(against="reference", prompt="{{premise}}{{claims}}", votes=number)
    judges = Several(letters)
    table = conform(Verdict, stage.run(SAMPLES, CLAIMS, llm=judges))
    return table.row(0, named=True), judges


def test_a_row_keeps_its_agreement_and_its_ballot() -> None:
    row, judges = verdict("cee", 3)
    kept = ("verdict", "status", "call_id", "evidence", "evidence_start", "reason")
    assert [row[name] for name in kept] == ["entailed", "judged", CALLS[2], "It", 0, "so"]
    assert row["agreement"] == 2 / 3
    assert [vote["judge"] for vote in json.loads(str(row["ballot"]))] == ["j1", "j2", "j3"]
    assert [one.asked for one in judges.all] == [1, 1, 1]


def test_a_row_without_a_majority_because_of_failures_is_failed() -> None:
    row, _ = verdict("etr", 3)
    assert (row["verdict"], row["status"], row["failure"]) == (None, "failed", "timeout")
    assert str(row["reason"]).startswith("2 of 3 votes failed")
    assert row["agreement"] is None
    assert len(json.loads(str(row["ballot"]))) == 3


def test_a_single_vote_has_no_agreement_and_no_ballot() -> None:
    row, judges = verdict("ec", 1)
    assert (row["verdict"], row["agreement"], row["ballot"]) == ("entailed", None, None)
    assert [one.asked for one in judges.all] == [1, 0]


def test_an_empty_premise_asks_no_judge() -> None:
    stage = VerifyClaims(against="reference", prompt="{{premise}}{{claims}}", votes=3)
    judges = Several("eee")
    empty = SAMPLES.with_columns(reference=pl.lit(" "))
    row = stage.run(empty, CLAIMS, llm=judges).row(0, named=True)
    assert (row["verdict"], row["agreement"], judges.asked) == ("neutral", None, 0)


@pytest.mark.parametrize("number", [0, 100])
def test_votes_have_bounds(number: int) -> None:
    with pytest.raises(ValidationError):
        VerifyClaims(against="reference", prompt="x", votes=number)


def test_votes_need_a_language_model() -> None:
    assert VerifyClaims(against="reference", votes=1).votes == 1
    with pytest.raises(ValidationError, match="only a language model votes: write a judge"):
        VerifyClaims(against="reference", votes=2)
