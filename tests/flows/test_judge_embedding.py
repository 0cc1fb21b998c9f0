"""Embeddings behind an endpoint: in batches, remembered, and bad ones are rows."""

import threading
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claimflow.flows.errors import JudgeError
from claimflow.flows.judge.embedding import EndpointEmbedder, unit_vectors
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint
from claimflow.stages.rows import content_key
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.endpoint.vectors import texts_of
from tests.flows.judged import EMBEDDED, SCORE, VERIFY, Judged, session

STEPS = {
    "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
    "semantic_similarity": {"use": "semantic_similarity"},
}
SAMPLES = [
    {"sample_id": name, "response": f"{name} is old.", "reference": f"{name} is very old."}
    for name in ("Paris", "Rome", "Oslo")
]


def embedder(endpoint: Endpoint, **settings: Any) -> dict[str, Any]:
    usual = {"provider": "litellm", "model": "hosted_vllm/fake", "api_base": endpoint.api_base}
    return usual | {"timeout": 5, "texts_per_call": 2} | settings


def write(judged: Judged, settings: dict[str, Any]) -> None:
    judged.write(SAMPLES, steps=STEPS, more={"judge": None, "embedder": settings})


@pytest.mark.parametrize("model", ["hosted_vllm/fake", "openai/fake"])
def test_texts_go_in_batches_once_and_vectors_have_length_one(tmp_path: Path, model: str) -> None:
    longer = faults.vectors(lambda made: [3 * each for each in made])
    with serve(fault=longer, dimension=32) as endpoint:
        settings = EmbeddingEndpoint(**embedder(endpoint, model=model))
        texts = [f"Text {number}." for number in range(5)]
        for _ in range(2):
            with session(tmp_path / "s.duckdb") as opened:
                tool = EndpointEmbedder(settings, opened)
                table = tool.embed([*texts, texts[0]], step="a")
            assert sorted(len(texts_of(one.body)) for one in endpoint.requests) == [1, 2, 2]
        assert {text for one in endpoint.requests for text in texts_of(one.body)} == set(texts)
    assert table["text"].to_list() == texts
    lengths = np.linalg.norm(table["embedding"].to_numpy(), axis=1)
    assert lengths == pytest.approx(np.ones(5), abs=1e-6)


def test_steps_that_embed_the_same_at_once_ask_once(tmp_path: Path) -> None:
    with serve(latency=0.1, dimension=8) as endpoint:
        settings = EmbeddingEndpoint(**embedder(endpoint))
        with session(tmp_path / "s.duckdb") as opened:
            tool = EndpointEmbedder(settings, opened)
            threads = [
                threading.Thread(target=tool.embed, args=(["a", "b"],), kwargs={"step": step})
                for step in ("one", "two")
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert endpoint.hits == 1


def test_what_fails_is_a_row_and_the_next_run_asks_for_it(tmp_path: Path) -> None:
    broken = faults.where(lambda body: "Rome is old." in body["input"], faults.status(400))
    with serve(fault=broken, dimension=16) as endpoint:
        judged = Judged(tmp_path, endpoint)
        write(judged, embedder(endpoint, dimensions=24))
        judged.run()
        assert {one.body.get("dimensions") for one in endpoint.requests} == {24}
        assert endpoint.hits == 3
        with_rome = next(
            texts_of(one.body) for one in endpoint.requests if one.fault == "status 400"
        )
        lost = {text.split()[0] for text in with_rome}
        status = {name: status for name, (status, _, _) in judged.scores().items()}
        assert status == {
            name: "failed" if name in lost else "scored" for name in ("Paris", "Rome", "Oslo")
        }
        assert judged.ask("SELECT count(*) FROM latest.similarities WHERE cosine > 0.5") == [
            (3 - len(lost),)
        ]
        failed = judged.calls("outcome, prompt_tokens, judge", "outcome != 'ok'")
        assert failed == [("bad_request", None, "embedder")]
        endpoint.behaviour.fault = None
        judged.run()
        assert [sorted(texts_of(one.body)) for one in endpoint.requests] == [sorted(with_rome)]
    assert {status for status, _, _ in judged.scores().values()} == {"scored"}
    assert judged.holds_nan() == []


@pytest.mark.parametrize(
    "fault",
    [
        faults.vectors(lambda made: [each * np.nan for each in made], "nan"),
        faults.vectors(lambda made: made[1:], "fewer"),
        faults.vectors(lambda made: [made[0][1:], *made[1:]], "mixed lengths"),
        faults.vectors(lambda made: [each[:0] for each in made], "empty"),
    ],
    ids=["nan", "fewer", "mixed lengths", "empty"],
)
def test_vectors_that_are_none_are_never_used(tmp_path: Path, fault: Any) -> None:
    with serve(fault=fault, dimension=8) as endpoint:
        settings = EmbeddingEndpoint(**embedder(endpoint, timeout=0.4))
        with session(tmp_path / "s.duckdb") as opened:
            table = EndpointEmbedder(settings, opened).embed(["a", "b"], step="s")
    assert table.height == 0


@pytest.mark.parametrize("reply", [b"", b"12345", array("f", [0.6, np.nan]).tobytes()])
def test_a_stored_reply_that_is_no_vector_is_asked_again(tmp_path: Path, reply: bytes) -> None:
    with serve(dimension=2) as endpoint, session(tmp_path / "s.duckdb") as opened:
        tool = EndpointEmbedder(EmbeddingEndpoint(**embedder(endpoint)), opened)
        opened.ledger.remember("judge", {content_key("embedding", tool.identity, "a"): reply})
        assert tool.embed(["a"], step="s").height == 1
        assert endpoint.hits == 1


def test_a_run_without_any_vector_has_failed_rows(tmp_path: Path) -> None:
    with serve(fault=faults.status(400), dimension=8) as endpoint:
        judged = Judged(tmp_path, endpoint)
        write(judged, embedder(endpoint))
        judged.run()
    assert {status for status, _, _ in judged.scores().values()} == {"failed"}


def test_another_dimension_behind_the_same_address_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with serve(dimension=8) as endpoint, session(tmp_path / "s.duckdb") as opened:
        tool = EndpointEmbedder(EmbeddingEndpoint(**embedder(endpoint)), opened)
        tool.embed(["a"], step="s")
        endpoint.behaviour.dimension = 4
        with pytest.raises(JudgeError, match="vectors of 4 and 8 numbers"):
            tool.embed(["a", "b"], step="s")


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_vectors_of_extreme_numbers_have_length_one(scale: float) -> None:
    (packed,) = unit_vectors([[scale, -scale, 0.0]], 1)
    assert np.frombuffer(packed, "<f4") == pytest.approx([0.5**0.5, -(0.5**0.5), 0])


OTHERS = {
    "response_claims": EMBEDDED,
    "response_in_reference": VERIFY | {"judge": "embedded"},
    "precision": SCORE,
}


def test_an_endpoint_that_goes_down_leaves_the_other_scores(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second request, with both texts on Rome, finds it down; the run is not stopped."""
    down = faults.where(lambda body: "Rome is old." in body["input"], faults.refuse())
    same = [{"sample_id": text, "response": text, "reference": text} for text in ("One.", "Two.")]
    with serve(fault=down, dimension=16) as endpoint:
        judged = Judged(tmp_path, endpoint)
        settings = embedder(endpoint, max_concurrency=1, timeout=1)
        more = {"judge": None, "embedder": settings, "fail_when": "never"}
        judged.write([*same, SAMPLES[1]], steps=STEPS | OTHERS, more=more)
        assert judged.command() == 1
    assert judged.ask("SELECT metric, status, count(*) FROM scores GROUP BY ALL ORDER BY ALL") == [
        ("factual_correctness", "scored", 3),
        ("semantic_similarity", "failed", 1),
        ("semantic_similarity", "scored", 2),
    ]
    assert judged.ask("SELECT DISTINCT cosine, reason FROM latest.similarities ORDER BY ALL") == [
        (1.0, None),
        (None, "the response has no embedding"),
    ]
    assert judged.ask("SELECT status, reason FROM audit.runs") == [("done", None)]
    assert "Traceback" not in capfd.readouterr().err


def test_an_endpoint_that_cannot_be_used_leaves_the_other_scores(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serve(fault=faults.wrong_key(), dimension=16) as endpoint:
        judged = Judged(tmp_path, endpoint)
        more = {"judge": None, "embedder": embedder(endpoint)}
        judged.write(SAMPLES, steps=STEPS | OTHERS, more=more)
        assert judged.command() == 6
    assert judged.ask("SELECT metric, status, count(*) FROM scores GROUP BY ALL") == [
        ("factual_correctness", "scored", 3)
    ]
    [(status, reason)] = judged.ask("SELECT status, reason FROM audit.runs")
    assert status == "failed"
    assert reason.startswith("embedder (hosted_vllm/fake): 401")
    assert "Traceback" not in capfd.readouterr().err


def test_vectors_of_another_length_leave_the_other_scores(tmp_path: Path) -> None:
    with serve(dimension=8) as endpoint:
        judged = Judged(tmp_path, endpoint)
        more = {"judge": None, "embedder": embedder(endpoint)}
        judged.write(SAMPLES[:2], steps=STEPS, more=more)
        assert judged.command() == 0
        endpoint.behaviour.dimension = 4
        judged.write(SAMPLES, steps=STEPS | OTHERS, more=more)
        assert judged.command() == 6
    query = "SELECT metric, count(*) FROM latest.scores GROUP BY ALL"
    assert judged.ask(query) == [("semantic_similarity", 2)]
    query = "SELECT metric, count(*) FROM scores GROUP BY ALL ORDER BY ALL"
    assert judged.ask(query) == [("factual_correctness", 3), ("semantic_similarity", 2)]


def test_an_embedding_of_zeros_is_undefined(tmp_path: Path) -> None:
    zeros = faults.where(
        lambda body: "Rome is old." in body["input"],
        faults.vectors(lambda made: [each * 0 for each in made], "zeros"),
    )
    with serve(fault=zeros, dimension=8) as endpoint:
        judged = Judged(tmp_path, endpoint)
        more = {"judge": None, "embedder": embedder(endpoint, texts_per_call=1)}
        judged.write(SAMPLES, steps=STEPS, more=more)
        assert judged.command() == 0
    reason = "similarity undefined: the embedding of the response is zero"
    assert judged.scores()["Rome"] == ("undefined", None, reason)
    assert judged.scores()["Paris"][0] == "scored"
