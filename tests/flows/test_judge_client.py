"""What is sent to a judge, and which way of asking for JSON it takes."""

import threading
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import JudgeError, StoppedError
from claimflow.stages.tools import Question
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import serve
from tests.flows.judged import (
    DECOMPOSE,
    EMBEDDED,
    FORM,
    LABELS,
    QUESTIONS,
    SCORE,
    VERIFY,
    Judged,
    judge_of,
    label_of,
)

ALONE: dict[str, Any] = {"max_concurrency": 1}


def asked_for(body: dict[str, Any]) -> str:
    if "tools" in body:
        return "tool"
    return str(body.get("response_format", {}).get("type", "text"))


@pytest.mark.parametrize(
    ("refused", "ways"),
    [
        (["json_schema"], ["json_schema", "tool"]),
        (["json_schema", "tools"], ["json_schema", "tool", "json_object"]),
        (["json_schema", "tools", "json_object"], ["json_schema", "tool", "json_object", "text"]),
    ],
)
def test_what_an_endpoint_does_not_take_is_not_asked_of_it_again(
    tmp_path: Path, refused: list[str], ways: list[str]
) -> None:
    store = tmp_path / "s.duckdb"
    with serve(refuses=refused) as endpoint:
        with judge_of(endpoint, store, **ALONE) as judge:
            answers = judge.ask(QUESTIONS, FORM, step="a")
            assert [label_of(answer) for answer in answers.values()] == LABELS
            assert [asked_for(one.body) for one in endpoint.requests] == ways
            judge.ask([Question("Another claim.", "Yes.")], FORM, step="a")
            assert [asked_for(one.body) for one in endpoint.requests[len(ways) :]] == ways[-1:]
        endpoint.clear()
        with judge_of(endpoint, store, **ALONE, temperature=0.5) as judge:
            judge.ask(QUESTIONS, FORM, step="b")
        assert [asked_for(one.body) for one in endpoint.requests] == ways[-1:]
        endpoint.clear()
        with judge_of(endpoint, store, **ALONE, model="hosted_vllm/other") as judge:
            judge.ask(QUESTIONS, FORM, step="b")
        assert [asked_for(one.body) for one in endpoint.requests] == ways


def test_calls_in_flight_step_down_together(tmp_path: Path) -> None:
    questions = [Question("The tower stands.", f"The tower stands {n}.") for n in range(8)]
    with serve(refuses=["json_schema"], latency=0.1) as endpoint:
        with judge_of(endpoint, tmp_path / "s.duckdb") as judge:
            answers = judge.ask(questions, FORM, step="a")
        ways = [asked_for(one.body) for one in endpoint.requests]
    assert {label_of(answer) for answer in answers.values()} == {"entailed"}
    assert set(ways) == {"json_schema", "tool"}
    assert ways.count("tool") == 8


def test_an_endpoint_that_takes_no_way_at_all_cannot_be_used(tmp_path: Path) -> None:
    fault = faults.unsupported_format("text")
    with (
        serve(fault=fault) as endpoint,
        judge_of(endpoint, tmp_path / "s.duckdb", **ALONE) as judge,
    ):
        questions = [Question("Any.", str(number)) for number in range(9)]
        with pytest.raises(JudgeError, match="all failed as bad requests"):
            judge.ask(questions, FORM, step="a")
        assert endpoint.hits == 3 + 5


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, {"temperature": 0}),
        ({"temperature": None}, {}),
        ({"temperature": 0.7}, {"temperature": 0.7}),
        (
            {"seed": 7, "max_tokens": 500, "extra": {"top_p": 0.5, "min_p": 0.1}},
            {"temperature": 0, "seed": 7, "max_tokens": 500, "top_p": 0.5, "min_p": 0.1},
        ),
    ],
)
def test_parameters_are_sent_as_they_are_set(
    tmp_path: Path, settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    with serve() as endpoint:
        with judge_of(endpoint, tmp_path / "s.duckdb", **settings) as judge:
            judge.ask(QUESTIONS, FORM, step="a")
        (one,) = endpoint.requests
    body = dict(one.body)
    assert body.pop("response_format")["json_schema"]["strict"] is True
    assert [message["role"] for message in body.pop("messages")] == ["system", "user"]
    assert body == {"model": "fake", **sent}


def test_judges_of_every_dialect_do_whole_pipelines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with serve() as endpoint, serve() as other:
        judged = Judged(tmp_path, endpoint)
        models = {
            "openai": ("openai/fake", endpoint.api_base),
            "vllm": ("hosted_vllm/fake", other.api_base),
            "ollama": ("ollama_chat/fake", other.url),
            "claude": ("anthropic/claude-sonnet-4-5", other.url),
        }
        judges = {
            name: judged.judge(model=model, api_base=base) for name, (model, base) in models.items()
        }
        steps: dict[str, Any] = {
            "embedded_claims": EMBEDDED,
            "embedded_verdicts": VERIFY | {"claims": "embedded_claims", "judge": "embedded"},
        }
        for name in models:
            steps |= {
                f"{name}_claims": DECOMPOSE | {"judge": name},
                f"{name}_verdicts": VERIFY | {"judge": name, "claims": f"{name}_claims"},
                name: SCORE
                | {
                    "response_claims": f"{name}_claims",
                    "response_in_reference": f"{name}_verdicts",
                },
            }
        judged.write(["a", "b"], steps=steps, more={"judges": judges, "judge": None})
        judged.run()
        # The two responses are one text, the two premises are not.
        assert (endpoint.hits, other.hits) == (3, 9)
        paths = [one.path for one in other.requests]
    assert {path: paths.count(path) for path in paths} == {
        "/v1/chat/completions": 3,
        "/api/chat": 3,
        "/v1/messages": 3,
    }
    scores = judged.ask("SELECT step, status, score FROM latest.scores")
    assert sorted(scores) == sorted((name, "scored", 1 / 3) for name in models for _ in range(2))
    calls = judged.ask(
        "SELECT judge, model, count(*), count(prompt_tokens), min(outcome) FROM audit.calls "
        "GROUP BY ALL ORDER BY judge"
    )
    assert calls == sorted((name, model, 3, 3, "ok") for name, (model, _) in models.items())
    assert judged.ask("SELECT count(*) FROM verdicts WHERE p_entailed IS NOT NULL") == [(6,)]


@pytest.mark.parametrize(
    ("fault", "turns"), [(faults.prose(), 4), (faults.missing(3), 2)], ids=["wrong", "in part"]
)
def test_a_reply_that_an_ended_run_did_not_act_on_is_taken_up(
    tmp_path: Path, fault: Fault, turns: int
) -> None:
    store = tmp_path / "s.duckdb"
    stop = threading.Event()

    def stopping(number: int, body: Any, key: str) -> Fault:
        stop.set()
        return fault

    with serve(fault=stopping) as endpoint:
        with judge_of(endpoint, store, stop) as judge, pytest.raises(StoppedError):
            judge.ask(QUESTIONS, FORM, step="a")
        assert endpoint.hits == 1
        endpoint.behaviour.fault = None
        with judge_of(endpoint, store) as judge:
            answers = judge.ask(QUESTIONS, FORM, step="a")
        assert [label_of(answers[question]) for question in QUESTIONS] == LABELS
        first, second = (one.body["messages"] for one in endpoint.requests)
    # A wrong reply is shown to the model as if nothing had happened; of one in part, the
    # rest is asked for afresh.
    assert len(second) == turns
    if turns == 4:
        assert second[:2] == first
        assert second[2]["content"].startswith("All in all")
