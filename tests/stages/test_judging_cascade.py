"""Who judges a pair in a cascade, with models that answer from a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.stages.judging.cascade import Cascade, ask_cascade
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.rows import Claim, Sample, content_key
from claimflow.stages.tables import build
from claimflow.stages.tools import (
    Failure,
    Form,
    Judgement,
    Pair,
    Question,
    Reply,
    Respondent,
    Result,
)
from claimflow.stages.verify import VerifyClaims

PROMPT = "Does it follow?\n{{premise}}\n{{claims}}"
CALL = content_key("call", "c")
OPEN = Judgement(0.5, 0.3, 0.2, 0, 5)
YES = Judgement(0.95, 0.02, 0.03, 0, 5)
NO = Judgement(0.04, 0.9, 0.06, 0, 5)


class Model:
    """An entailment model that is unsure of what it does not know."""

    def __init__(self, **known: Judgement) -> None:
        self.known = known

    def judge(self, pairs: Sequence[Pair]) -> Mapping[Pair, Judgement]:
        return {pair: self.known.get(pair.claim, OPEN) for pair in pairs}


class Judge:
    """A language model that says neutral, or fails; it notes which claims it is asked."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.asked: list[list[str]] = []

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Reply | Failure]:
        self.asked.append([question.text for question in questions])
        answer = Opinion(reason="so", evidence="text", verdict="neutral")
        return {question: self.failure or Reply(answer, CALL) for question in questions}

    def vote(self, votes: int, ask: Callable[[Respondent], Result]) -> list[tuple[str, Result]]:
        return [("judge", ask(self)) for _ in range(votes)]


def verify(model: Model, judge: Judge, *claims: str, **settings: Any) -> list[dict[str, Any]]:
    rows = [
        {"claim_id": content_key("c", claim), "sample_id": "s", "of": "response", "claim": claim}
        for claim in claims
    ]
    tables = {
        "samples": build(Sample, [{"sample_id": "s", "reference": "first text"}]),
        "claims": build(Claim, rows),
    }
    stage = VerifyClaims(against="reference", prompt=PROMPT, **settings)
    return stage.make(tables, {"model": model, "llm": judge}).rows(named=True)


COLUMNS = ("verdict", "model_verdict", "judged_by", "p_entailed", "support", "reason", "evidence")


def rows_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in rows]


def test_the_model_decides_what_it_is_sure_of_and_the_judge_the_rest() -> None:
    judge = Judge()
    rows = verify(
        Model(yes=YES, no=NO), judge, "yes", "open", "no", cascade=Cascade(audit=0), threshold=0.5
    )
    assert judge.asked == [["open"]]
    assert rows_of(rows) == [
        ("entailed", "entailed", "embedded", 0.95, 0.95, None, "first"),
        ("neutral", "entailed", "judge", 0.5, None, "so", "text"),
        ("contradicted", "contradicted", "embedded", 0.04, 0.04, None, "first"),
    ]
    assert [row["call_id"] for row in rows] == [None, CALL, None]


def test_an_audited_verdict_is_that_of_the_judge() -> None:
    judge = Judge()
    rows = verify(Model(yes=YES), judge, "yes", cascade=Cascade(audit=1))
    assert judge.asked == [["yes"]]
    assert rows_of(rows) == [("neutral", "entailed", "audit", 0.95, None, "so", "text")]


def test_a_failed_judge_gives_a_failed_row_with_the_verdict_of_the_model() -> None:
    judge = Judge(Failure("refused", "no", CALL))
    rows = verify(Model(yes=YES, no=NO), judge, "yes", "open", cascade=Cascade(audit=1))
    columns = (
        "verdict",
        "status",
        "failure",
        "model_verdict",
        "judged_by",
        "p_entailed",
        "support",
    )
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (None, "failed", "refused", "entailed", "audit", 0.95, None),
        (None, "failed", "refused", "entailed", "judge", 0.5, None),
    ]


def test_pairs_that_go_to_the_judge_may_be_voted_on() -> None:
    judge = Judge()
    (yes, doubt) = verify(Model(yes=YES), judge, "yes", "open", votes=3, cascade=Cascade(audit=0))
    assert judge.asked == [["open"]] * 3
    assert (doubt["agreement"], doubt["judged_by"], doubt["p_entailed"]) == (1.0, "judge", 0.5)
    assert (yes["agreement"], yes["ballot"]) == (None, None)
    # The share of votes for entailed where the judge decided, not the model's probability.
    assert (yes["support"], doubt["support"]) == (0.95, 0.0)


def test_an_empty_premise_asks_no_model() -> None:
    judge = Judge()
    stage = VerifyClaims(against="reference", prompt=PROMPT, cascade=Cascade())
    row = {"claim_id": content_key("c"), "sample_id": "s", "of": "response", "claim": "c"}
    samples = build(Sample, [{"sample_id": "s", "reference": " "}])
    tables = {"samples": samples, "claims": build(Claim, [row])}
    (found,) = stage.make(tables, {"model": Model(), "llm": judge}).rows(named=True)
    assert judge.asked == []
    assert (found["verdict"], found["judged_by"], found["model_verdict"]) == ("neutral", None, None)
    assert found["support"] == 0.0


@pytest.mark.parametrize(
    ("entailed", "judged_by"),
    [(0.099, "embedded"), (0.1, "judge"), (0.9, "judge"), (0.901, "embedded")],
)
def test_the_ends_of_the_range_go_to_the_judge(entailed: float, judged_by: str) -> None:
    judgement = Judgement(entailed, 0, 1 - entailed, 0, 0)
    assert Cascade(audit=0).judged_by(Pair("p", "c"), judgement) == judged_by


def test_the_audit_is_a_share_and_always_the_same_pairs() -> None:
    pairs = [Pair("a premise", f"claim {number}") for number in range(2_000)]

    def audited(share: float) -> set[Pair]:
        cascade = Cascade(audit=share)
        return {pair for pair in pairs if cascade.judged_by(pair, YES) == "audit"}

    assert len(audited(0)) == 0
    assert len(audited(0.05)) == 90
    # More of them later: those that were audited before are among them.
    assert audited(0.05) < audited(0.1)
    assert audited(1) == set(pairs)
    assert Cascade(audit=1).judged_by(pairs[0], OPEN) == "judge"


def test_the_judge_is_not_called_without_pairs() -> None:
    pair = Pair("p", "yes")
    found = ask_cascade([pair], Cascade(audit=0), Model(yes=YES), lambda _: pytest.fail("asked"))
    assert found[pair].answer is None


def test_both_models_are_needed() -> None:
    assert VerifyClaims(against="reference", prompt=PROMPT, cascade=Cascade()).ignores() == {
        "citations"
    }


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"prompt": None}, "it ends with a language model: write a judge in it"),
        ({"cascade": {"between": [0.8, 0.2]}}, r"write the smaller one first: \[0.2, 0.8\]"),
        ({"cascade": {"between": [0.1, 0.4]}}, "between must hold threshold, which is 0.5"),
        ({"cascade": {"audit": 1.5}}, "less than or equal to 1"),
        ({"cascade": {"model": "large"}}, "Input should be 'embedded'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], wrong: str) -> None:
    usual: dict[str, Any] = {"against": "reference", "prompt": PROMPT, "cascade": {}}
    with pytest.raises(ValidationError, match=wrong):
        VerifyClaims.model_validate(usual | settings)
