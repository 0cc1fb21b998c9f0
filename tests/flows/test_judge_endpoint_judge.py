"""The judge as a tool: asks for what nobody asked yet, once, for all steps."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.errors import JudgeError, StoppedError
from claimflow.flows.judge.conversation import batch_questions
from claimflow.stages.tools import Failure, Question, Reply
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import (
    EMBEDDED,
    FORM,
    LABELS,
    QUESTIONS,
    SCORE,
    VERIFY,
    Judged,
    judge_of,
    label_of,
    sample,
)

Answers = Mapping[Question, Reply | Failure]


def test_every_question_is_answered_and_none_asked_twice(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    with serve() as endpoint:
        with judge_of(endpoint, store) as judge:
            answers = judge.ask([*QUESTIONS, *QUESTIONS], FORM, step="a")
            assert [label_of(answers[question]) for question in QUESTIONS] == LABELS
            assert judge.ask(QUESTIONS[1:], FORM, step="b") == {
                question: answers[question] for question in QUESTIONS[1:]
            }
        with judge_of(endpoint, store) as judge:
            assert judge.ask(QUESTIONS, FORM, step="a") == answers
            more = Question("The tower is high.", QUESTIONS[0].premise)
            assert label_of(judge.ask([*QUESTIONS, more], FORM, step="a")[more]) == "neutral"
        assert endpoint.hits == 2
        (last,) = (message["content"] for message in endpoint.requests[1].body["messages"][1:])
    assert last.count("</claim-") == 1


def test_nothing_to_ask_sends_no_call(tmp_path: Path) -> None:
    with serve() as endpoint:
        with judge_of(endpoint, tmp_path / "s.duckdb") as judge:
            assert judge.ask([], FORM, step="a") == {}
        assert endpoint.hits == 0


def test_steps_that_ask_the_same_at_once_share_a_call(tmp_path: Path) -> None:
    with serve(latency=0.4) as endpoint:
        with judge_of(endpoint, tmp_path / "s.duckdb") as judge:
            judge.ask([Question("First, everything is loaded.", "Yes.")], FORM, step="a")
            endpoint.clear()
            found: list[Answers] = []
            asked = [QUESTIONS, QUESTIONS[:2], [*QUESTIONS[1:], Question("More.", "Other.")]]
            threads = [
                threading.Thread(target=lambda q=one: found.append(judge.ask(q, FORM, step="b")))
                for one in asked
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        texts = [one.body["messages"][-1]["content"] for one in endpoint.requests]
    assert sorted(map(len, found)) == [2, 3, 3]
    for question in QUESTIONS:
        assert sum(f">\n{question.text}\n<" in text for text in texts) == 1
    labels = {q: label_of(answer) for answers in found for q, answer in answers.items()}
    assert [labels[question] for question in QUESTIONS] == LABELS


def test_two_steps_of_a_pipeline_and_two_samples_share_a_call(tmp_path: Path) -> None:
    steps = {
        "response_claims": EMBEDDED,
        "one": VERIFY,
        "two": VERIFY | {"premises": "each"},
        "precision": SCORE | {"response_in_reference": "one"},
    }
    twin = sample("a", sample_id="twin")
    with serve(latency=0.2) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["a", twin], steps=steps)
        judged.run()
        assert endpoint.hits == 1
    assert judged.scores() == dict.fromkeys(["a", "twin"], ("scored", 1 / 3, None))
    rows = judged.ask("SELECT count(*), count(DISTINCT call_id) FROM verdicts")
    assert rows == [(12, 1)]


def test_what_one_step_finds_fatal_ends_the_other(tmp_path: Path) -> None:
    bad = faults.where(lambda body: "Cheese" in str(body["messages"]), faults.wrong_key())
    with (
        serve(fault=bad, latency=0.3) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", max_concurrency=8) as judge,
    ):
        judge.ask([Question("First, everything is loaded.", "Yes.")], FORM, step="a")
        raised: list[Exception] = []

        def ask(premise: str) -> None:
            questions = [Question("Cheese is old.", f"{premise} {n}") for n in range(20)]
            try:
                judge.ask(questions, FORM, step="b")
            except JudgeError as error:
                raised.append(error)

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(raised) == 2
        assert endpoint.hits < 20
        with pytest.raises(JudgeError):
            judge.ask(QUESTIONS, FORM, step="c")


def test_a_stopped_run_keeps_what_comes_back(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    questions = [Question("The tower stands.", f"The tower stands {n}.") for n in range(30)]
    with serve(latency=0.5) as endpoint:
        stop = threading.Event()

        def stop_when_asked() -> None:
            while endpoint.hits < 8:
                time.sleep(0.01)
            stop.set()

        threading.Thread(target=stop_when_asked).start()
        with judge_of(endpoint, store, stop) as judge, pytest.raises(StoppedError):
            judge.ask(questions, FORM, step="a")
        assert 8 <= endpoint.hits < 30
        with judge_of(endpoint, store) as judge:
            answers = judge.ask(questions, FORM, step="a")
        assert endpoint.hits == 30
    assert {label_of(answer) for answer in answers.values()} == {"entailed"}


LENGTHS = st.sampled_from([1, 2, 3, 2_500, 4_000, 7_000])
LONG = st.builds(lambda letter, length: letter * length, st.sampled_from("ab"), LENGTHS)


@given(st.lists(st.builds(Question, LONG, LONG), unique=True), st.integers(1, 5), st.integers(1, 4))
def test_calls_hold_every_question_once_within_their_limits(
    questions: list[Question], per_call: int, premises: int
) -> None:
    form = FORM._replace(prompt="{{premises}}", per_call=per_call, premises=premises)
    calls = list(batch_questions(questions, form))
    assert sorted(question for call in calls for question in call) == sorted(questions)
    order = list(dict.fromkeys(question.premise for question in questions))
    assert [question for call in calls for question in call] == sorted(
        questions, key=lambda question: order.index(question.premise)
    )
    for call in calls:
        held = {question.premise for question in call}
        texts = sum(len(question.text) for question in call)
        assert 1 <= len(call) <= per_call
        assert len(held) <= premises
        assert len(call) == 1 or texts <= 6_000
        assert len(held) == 1 or texts + sum(map(len, held)) <= 6_000
    one = list(batch_questions(questions, form._replace(prompt="{{premise}}{{claims}}")))
    assert all(len({question.premise for question in call}) == 1 for call in one)


def test_short_premises_share_a_call_and_long_ones_do_not() -> None:
    form = FORM._replace(prompt="{{premises}}", per_call=4, premises=2)
    short = [Question(claim, premise) for premise in "abc" for claim in ("1", "2")]
    assert [len(call) for call in batch_questions(short, form)] == [4, 2]
    long = [question._replace(premise=question.premise * 5_000) for question in short]
    assert [len(call) for call in batch_questions(long, form)] == [2, 2, 2]
