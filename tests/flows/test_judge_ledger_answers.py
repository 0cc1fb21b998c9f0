"""What makes two questions the same, and which answers are worth keeping."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from claimflow.flows.judge.judge import LedgerAnswers
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.judging.verdicts import Opinion
from claimflow.stages.rows import FailureKind
from claimflow.stages.tools import Failure, Form, Question, Reply
from tests.flows.judged import FORM, QUESTIONS

JUDGE = Judge(model="hosted_vllm/m", api_base="http://127.0.0.1:1/v1")
CALL = "00000000-0000-0000-0000-000000000001"


class Other(BaseModel):
    verdict: str


def remembered(judge: Judge, store: Path | None = None) -> LedgerAnswers:
    return LedgerAnswers(Ledger(Store(store or Path("none.duckdb"))), judge.identity())


def keys(judge: Judge = JUDGE, form: Form = FORM) -> list[str]:
    return list(remembered(judge).keys(QUESTIONS, form).values())


@pytest.mark.parametrize(
    "judge",
    [
        JUDGE.model_copy(update=update)
        for update in (
            {"model": "hosted_vllm/n"},
            {"api_base": "http://127.0.0.1:2/v1"},
            {"api_base": None},
            {"temperature": None},
            {"temperature": 0.5},
            {"seed": 1},
            {"max_tokens": 100},
            {"extra": {"top_k": 1}},
        )
    ],
    ids=lambda judge: ",".join(sorted(judge.model_fields_set)),
)
def test_what_could_change_a_reply_makes_another_question(judge: Judge) -> None:
    assert not set(keys(judge)) & set(keys())


@pytest.mark.parametrize(
    "form",
    [
        FORM._replace(prompt=FORM.prompt + " "),
        FORM._replace(blank="texts"),
        FORM._replace(answer=Other),
        FORM._replace(per_call=1),
    ],
    ids=["prompt", "blank", "answer", "per_call"],
)
def test_another_form_makes_another_question(form: Form) -> None:
    assert not set(keys(form=form)) & set(keys())


def test_the_usual_draw_is_found_under_the_key_that_it_always_had() -> None:
    assert keys()[0] == "55d990f1-b039-8cf0-2746-19aa3731dc7d"


def test_every_draw_is_another_question() -> None:
    drawn = [keys(form=FORM._replace(draw=draw)) for draw in range(4)]
    assert len({key for of_draw in drawn for key in of_draw}) == 4 * len(QUESTIONS)


def test_how_fast_and_how_dear_makes_no_difference() -> None:
    update = {
        "timeout": 1.0,
        "max_concurrency": 1,
        "rpm": 5,
        "tpm": 5,
        "budget_calls": 3,
        "budget_usd": 1.0,
    }
    assert keys(JUDGE.model_copy(update=update)) == keys()


def test_the_words_on_an_answer_are_no_part_of_the_question() -> None:
    class Reworded(Opinion):
        """Other words on the same fields."""

    assert keys(form=FORM._replace(answer=Reworded)) == keys()


def test_premise_and_text_are_not_run_together() -> None:
    two = [Question("bc", "a"), Question("c", "ab"), Question("", "abc"), Question("abc", "")]
    assert len(set(remembered(JUDGE).keys(two, FORM).values())) == 4


def test_answers_come_back_as_they_were(tmp_path: Path) -> None:
    known = remembered(JUDGE, tmp_path / "s.duckdb")
    by_question = known.keys(QUESTIONS, FORM)
    first, second, third = by_question.values()
    opinion = Opinion(reason='"\u2028\x00 é 😀', evidence="", verdict="neutral")
    answers: dict[str, Reply | Failure] = {
        first: Reply(opinion, CALL),
        second: Failure("refused", "no \x00 é", CALL),
        third: Failure("timeout", "no whole reply", CALL),
    }
    Ledger(Store(tmp_path / "s.duckdb")).remember("judge", known.replies(answers))
    assert known.recall(by_question, FORM) == {
        QUESTIONS[0]: answers[first],
        QUESTIONS[1]: answers[second],
    }


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"answer": {"reason": "", "evidence": "", "verdict": "neutral"}}',
        b'{"answer": {"reason": "", "evidence": "", "verdict": "neutral"}, "call": "c"}',
        b'{"answer": {"verdict": "perhaps"}, "call": "%b"}' % CALL.encode(),
        b'{"failure": "server_error", "message": "", "call": "%b"}' % CALL.encode(),
        b'{"failure": ["refused"], "message": "", "call": "%b"}' % CALL.encode(),
        b'{"failure": "refused", "message": 1, "call": "%b"}' % CALL.encode(),
    ],
)
def test_a_reply_that_is_no_answer_is_none(tmp_path: Path, reply: bytes) -> None:
    known = remembered(JUDGE, tmp_path / "s.duckdb")
    by_question = known.keys(QUESTIONS, FORM)
    Ledger(Store(tmp_path / "s.duckdb")).remember(
        "judge", {next(iter(by_question.values())): reply}
    )
    assert known.recall(by_question, FORM) == {}


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("refused", True),
        ("too_long", True),
        *(
            (kind, False)
            for kind in (
                "rate_limited",
                "server_error",
                "timeout",
                "bad_request",
                "truncated",
                "empty",
                "unparseable",
                "invalid",
                "missing",
                "conflict",
                "not_asked",
            )
        ),
    ],
)
def test_only_what_would_happen_again_is_kept_of_failures(kind: FailureKind, kept: bool) -> None:
    assert bool(remembered(JUDGE).replies({"key": Failure(kind, "why")})) == kept
