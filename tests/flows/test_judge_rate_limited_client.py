"""Endpoints that cannot be used stop the run; budgets are never overdrawn."""

from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import InputError, JudgeError
from claimflow.flows.runner.prepare import prepare
from claimflow.stages.tools import Question
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import serve
from tests.flows.judged import FORM, LABELS, QUESTIONS, Judged, about, judge_of, label_of

KEYS = ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "ANTHROPIC_API_KEY")
MANY = [Question("The tower stands.", f"The tower stands {number}.") for number in range(12)]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("model", ["openai/fake", "hosted_vllm/fake"])
@pytest.mark.parametrize(
    ("fault", "printed"),
    [
        (faults.wrong_key(), r"401: Incorrect API key provided: \*\*\*"),
        (faults.status(403), "403: You have no access to this model"),
        (faults.out_of_quota(), "429: You exceeded your current quota"),
        (faults.no_such_model(), "404: The model `fake` does not exist"),
        (faults.unsupported_parameter("temperature"), "400: Unsupported parameter: 'temperature'"),
    ],
    ids=["401", "403", "quota", "404", "parameter"],
)
def test_what_no_call_can_overcome_is_asked_once(
    tmp_path: Path, model: str, fault: Fault, printed: str
) -> None:
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", model=model, max_concurrency=1) as judge,
    ):
        with pytest.raises(JudgeError, match=printed) as raised:
            judge.ask(MANY, FORM, step="a")
        assert endpoint.hits == 1
    assert str(raised.value).startswith(f"judge ({model}): ")
    assert "\n" not in str(raised.value)


def test_the_run_stops_with_one_line_and_the_next_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(fault=faults.where(about("c"), faults.out_of_quota())) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abcde", max_concurrency=1)
        assert judged.command() == 6
        assert endpoint.hits == 3
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(
            "claimflow: judge (hosted_vllm/fake): 429: You exceeded your current quota"
        )
        (status, reason) = judged.ask("SELECT status, reason FROM audit.runs")[0]
        assert status == "failed"
        assert "You exceeded your current quota" in reason
        endpoint.behaviour.fault = None
        assert judged.command() == 0
        assert endpoint.hits == 3
    assert judged.verdicts() == dict.fromkeys("abcde", LABELS)


def test_a_missing_key_is_reported_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a", model="openai/gpt-4o-mini", api_base=...)
        assert judged.command() == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "claimflow: p.yaml:5 judge: openai/gpt-4o-mini cannot be asked; "
        "set OPENAI_API_KEY in the environment"
    )
    assert not judged.store.path.exists()


def test_requests_that_are_all_turned_down_stop_the_run(tmp_path: Path) -> None:
    with (
        serve(fault=faults.status(422)) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", max_concurrency=1) as judge,
    ):
        with pytest.raises(JudgeError) as raised:
            judge.ask(MANY, FORM, step="a")
        assert endpoint.hits == 5
    assert str(raised.value) == (
        "judge (hosted_vllm/fake): the first 5 requests all failed as bad requests: "
        "422: The request cannot be processed."
    )


def test_one_answer_shows_that_the_others_are_at_fault(tmp_path: Path) -> None:
    fault = faults.where(lambda body: "Case fine" not in str(body), faults.status(422))
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", max_concurrency=1) as judge,
    ):
        answers = judge.ask([Question("Any.", "Case fine."), *MANY], FORM, step="a")
        assert [label_of(answer) for answer in answers.values()][1:] == ["bad_request"] * len(MANY)


def test_what_hangs_once_is_overcome(tmp_path: Path) -> None:
    with serve(fault=faults.first(1, faults.hang())) as endpoint:
        with judge_of(endpoint, tmp_path / "s.duckdb", timeout=2) as judge:
            answers = judge.ask(QUESTIONS, FORM, step="a")
        assert [label_of(answers[question]) for question in QUESTIONS] == LABELS
        assert [one.gone for one in endpoint.requests] == [True, False]


@pytest.mark.parametrize("base", ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"])
def test_who_cannot_be_reached_gives_rows(tmp_path: Path, base: str) -> None:
    with serve() as endpoint:
        store = tmp_path / "s.duckdb"
        with judge_of(endpoint, store, api_base=base, timeout=0.4) as judge:
            answers = judge.ask(QUESTIONS, FORM, step="a")
    assert {label_of(answer) for answer in answers.values()} <= {
        "server_error",
        "timeout",
    }


def test_the_budget_of_calls_holds_and_the_next_run_asks_the_rest(tmp_path: Path) -> None:
    with serve(fault=faults.where(about("b"), faults.first(1, faults.status(500)))) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abcdefgh", budget_calls=5)
        assert judged.command() == 1
        assert endpoint.hits == 5
        verdicts, scores = judged.verdicts(), judged.scores()
        unasked = [name for name, labels in verdicts.items() if labels == ["not_asked"] * 3]
        assert 3 <= len(unasked) <= 4
        assert judged.ask("SELECT count(*) FROM audit.calls WHERE attempts = 0") == [(0,)]
        reasons = judged.ask("SELECT DISTINCT reason FROM verdicts WHERE failure = 'not_asked'")
        assert [
            text.startswith("judge: the budget of 5 calls is spent") for (text,) in reasons
        ] == [True]
        assert {scores[name][2] for name in unasked} == {
            "3 of 3 claims of the response have no verdict (not_asked)"
        }
        judged.write("abcdefgh", budget_calls=50)
        assert judged.command() == 0
        assert endpoint.hits == len([labels for labels in verdicts.values() if labels != LABELS])
    assert judged.verdicts() == dict.fromkeys("abcdefgh", LABELS)


def test_the_budget_of_dollars_holds(tmp_path: Path) -> None:
    # A call costs some 700 tokens of a prompt and 100 of a reply: 0.0009 USD.
    price = {"input": 1, "output": 2}
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abcdefgh", budget_usd=0.003, price=price)
        judged.run()
        assert 1 <= endpoint.hits <= 3
        (spent,) = judged.ask("SELECT sum(cost) FROM audit.calls")[0]
        assert 0.0005 < spent <= 0.003
        (call,) = judged.calls("cost, prompt_tokens, completion_tokens")[:1]
        assert float(call[0]) == pytest.approx((call[1] + 2 * call[2]) / 1_000_000)
        printed = judged.ask("SELECT DISTINCT reason FROM verdicts WHERE failure = 'not_asked'")
        assert printed[0][0].startswith("judge: the budget of 0.003 USD is spent (")


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        (
            {"budget_usd": 1.0},
            "p.yaml:5 judge: the price of hosted_vllm/fake is unknown, so budget_usd cannot be "
            "kept; write price: {input: ..., output: ...} in US dollars per million tokens",
        ),
        (
            {"model": "nobody/fake"},
            "p.yaml:5 judge: nobody/fake cannot be asked; 'nobody/fake' names no provider that "
            "litellm knows: write openai/MODEL, for example",
        ),
        (
            {"api_base": ...},
            "p.yaml:5 judge: hosted_vllm/fake cannot be asked; hosted_vllm needs an api_base, "
            "such as http://127.0.0.1:8000/v1",
        ),
    ],
)
def test_what_cannot_be_asked_is_reported_before_anything_runs(
    tmp_path: Path, settings: dict[str, Any], printed: str
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a", **settings)
        prepare(judged.path)
        with pytest.raises(InputError) as raised:
            judged.run()
        assert endpoint.hits == 0
    assert str(raised.value).replace(f"{tmp_path}/", "") == printed
    assert not judged.store.path.exists()
