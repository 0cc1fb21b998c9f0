"""Replies that report absurd numbers of tokens: the answer is kept, the numbers are unknown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.judge import retry
from claimflow.flows.judge.embedding import EndpointEmbedder
from claimflow.flows.judge.provider import Usage
from claimflow.flows.judge.usage import checked_usage, read_reply
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import Judged, session

ABSURD = [
    "1e30",
    "5e19",
    "-5",
    "1.5",
    "NaN",
    "1e999",
    '"7"',
    '"x"',
    "[1]",
    "{}",
    "true",
    "9" * 5000,
]
TOKENS = "prompt_tokens, cached_tokens, completion_tokens, cost"
PRICE = {"input": 2.5, "output": 10}


def address(endpoint: Endpoint, model: str) -> str:
    return endpoint.url if model.startswith(("ollama", "anthropic")) else endpoint.api_base


@pytest.mark.parametrize(
    "model", ["hosted_vllm/fake", "openai/fake", "ollama_chat/fake", "anthropic/fake"]
)
def test_an_answer_with_absurd_numbers_of_tokens_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "quite-secret")
    rules = {f"number {place}": faults.usage(number) for place, number in enumerate(ABSURD)}

    def fault(_number: int, body: Any, _key: str) -> Any:
        text = json.dumps(body)
        return next(rule for name, rule in rules.items() if f"Case {name}." in text)

    with serve(fault=fault) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(rules, model=model, api_base=address(endpoint, model), price=PRICE)
        judged.run()
        assert endpoint.hits == len(ABSURD)
        assert {status for status, _, _ in judged.scores().values()} == {"scored"}
        assert judged.calls(TOKENS) == [(None,) * 4] * len(ABSURD)
        assert set(judged.calls("outcome")) == {("ok",)}
        judged.run()
        assert endpoint.hits == 0


@pytest.mark.parametrize("model", ["hosted_vllm/fake", "openai/fake"])
@pytest.mark.parametrize("number", ABSURD)
def test_embeddings_with_absurd_numbers_of_tokens_are_kept(
    tmp_path: Path, model: str, number: str
) -> None:
    with serve(fault=faults.usage(number)) as endpoint, session(tmp_path / "s.duckdb") as opened:
        settings = EmbeddingEndpoint(
            provider="litellm", model=model, api_base=endpoint.api_base, timeout=10
        )
        assert EndpointEmbedder(settings, opened).embed(["a", "b"], step="s").height == 2
        assert endpoint.hits == 1
        with opened.ledger.store.reading() as connection:
            rows = connection.execute(f"SELECT {TOKENS}, outcome FROM audit.calls").fetchall()
    assert rows == [(None, None, None, None, "ok")]


def test_a_negative_number_of_tokens_lowers_no_budget(tmp_path: Path) -> None:
    with serve(fault=faults.usage("-1000000")) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("abcdefgh", budget_usd=0.02, price=PRICE, max_concurrency=1)
        judged.run()
        assert 0 < endpoint.hits < 8
    asked = {name for name, found in judged.verdicts().items() if "not_asked" not in found}
    assert len(asked) == endpoint.hits


def reported(**usage: Any) -> dict[str, Any]:
    return dict(read_reply(json.dumps({"usage": usage}).encode())["usage"])


def test_a_wrong_number_within_a_group_leaves_the_others_as_they_are() -> None:
    details = {"cached_tokens": 5 * 10**19}
    assert reported(prompt_tokens=9, completion_tokens=2, prompt_tokens_details=details) == {
        "prompt_tokens": 9,
        "completion_tokens": 2,
    }
    details = {"cached_tokens": 4, "audio_tokens": None}
    assert reported(prompt_tokens=9.0, prompt_tokens_details=details) == {
        "prompt_tokens": 9.0,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_what_is_no_number_of_tokens_stays_in_the_report() -> None:
    more = {"cost": 0.0012, "service_tier": "standard", "queue_time": 0.05, "is_byok": False}
    parts = [{"modality": "TEXT", "tokenCount": 3}]
    usage = {"prompt_tokens": 9, "completion_tokens": 0, **more, "parts": parts}
    assert reported(**usage) == usage


@pytest.mark.parametrize("reply", ['{"candidates": []}', '{"usage": 5}', "{}"])
def test_a_reply_without_a_report_is_read(reply: str) -> None:
    read = read_reply(reply.encode())
    assert read.get("usage", read.get("usageMetadata")) == {}


@pytest.mark.parametrize("reply", ["[1]", "7", "1e999", "NaN", "null", '"text"'])
def test_a_reply_that_is_no_object_is_a_failed_row_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.01)
    with serve(fault=Fault("body", body=lambda _: reply.encode())) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a")
        judged.run()
    ((outcome, error),) = judged.calls("outcome, error")
    assert outcome == "server_error"
    assert "not a JSON object" in error


def test_a_number_that_is_not_finite_discards_no_answer(tmp_path: Path) -> None:
    endless = Fault("body", body=lambda body: re.sub(rb'"created": \d+', b'"created": 1e999', body))
    with serve(fault=endless) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a")
        judged.run()
        assert endpoint.hits == 1
    assert judged.calls("outcome") == [("ok",)]


@pytest.mark.parametrize(
    ("usage", "checked"),
    [
        (Usage(10, 11, 2), Usage(10, None, 2)),
        (Usage(10, 10, 2), Usage(10, 10, 2)),
        (Usage(None, 3, 2), Usage(None, None, 2)),
        (Usage(-1, None, 10**9), Usage(None, None, None)),
    ],
)
def test_the_cache_holds_no_more_tokens_than_the_prompt(usage: Usage, checked: Usage) -> None:
    assert checked_usage(usage) == checked


def test_an_embedding_with_truth_values_is_left_out() -> None:
    vectors = [[0.5, True], [0.5, 1]]
    reply = read_reply(json.dumps({"data": [{"embedding": one} for one in vectors]}).encode())
    assert reply["data"] == [{"embedding": None}, {"embedding": [0.5, 1]}]
