"""Reruns of some steps or samples, with the calls counted at the endpoint."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoppedError
from claimflow.flows.judge.judge import EndpointJudge
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.plan import choose
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import (
    FORM,
    MODEL,
    QUESTIONS,
    STEPS,
    VERIFY,
    Judged,
    about,
    judge_of,
    sample,
)

NEWEST = "run_id = (SELECT arg_max(run_id, started_at) FROM audit.runs)"
VERDICTS = "response_in_reference"
SAMPLES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def serving() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def ran(serving: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished pipeline of three samples, whose verdicts cost one call each."""
    judged = Judged(tmp_path_factory.mktemp("ran"), serving)
    judged.write(SAMPLES)
    judged.run()
    assert serving.hits == 3
    return judged.path.parent


@pytest.fixture
def endpoint(serving: Endpoint) -> Endpoint:
    serving.clear()
    serving.behaviour.fault = None
    return serving


@pytest.fixture
def judged(ran: Path, endpoint: Endpoint, tmp_path: Path) -> Judged:
    """A copy of the finished pipeline for a test to change."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return Judged(tmp_path, endpoint)


def steps(judged: Judged) -> dict[str, str]:
    """Whether each step of the newest run was made or reused."""
    rows = judged.ask(f"SELECT step, reused FROM audit.run_steps WHERE {NEWEST}")
    return {step: "reused" if reused else "made" for step, reused in rows}


def runs(judged: Judged) -> int:
    return len(judged.ask("SELECT run_id FROM audit.runs"))


def verdict_calls(judged: Judged) -> set[Any]:
    return {call for (call,) in judged.ask("SELECT DISTINCT call_id FROM latest.verdicts")}


def printed(judged: Judged, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    capsys.readouterr()
    code = judged.command(*options)
    return code, capsys.readouterr().err.removeprefix("claimflow: ").strip()


def test_again_uses_replies_in_the_ledger_and_fresh_asks_again(
    judged: Judged, endpoint: Endpoint
) -> None:
    first = verdict_calls(judged)
    assert judged.command("--again", VERDICTS) == 0
    assert (endpoint.hits, steps(judged)[VERDICTS]) == (0, "made")
    assert verdict_calls(judged) == first

    endpoint.behaviour.fault = faults.content(lambda text: text.replace("neutral", "contradicted"))
    assert judged.command("--again", VERDICTS, "--fresh") == 0
    assert endpoint.hits == 3
    assert steps(judged) == {
        "samples": "reused",
        "response_claims": "reused",
        VERDICTS: "made",
        "precision": "made",
    }
    anew = verdict_calls(judged)
    assert anew.isdisjoint(first)
    assert judged.verdicts()["one"] == ["entailed", "contradicted", "contradicted"]

    # From then on the new replies are the newest.
    assert judged.command("--again", VERDICTS) == 0
    assert (endpoint.hits, verdict_calls(judged)) == (0, anew)
    assert judged.command() == 0
    assert (endpoint.hits, verdict_calls(judged)) == (0, anew)


def test_fresh_alone_makes_every_step_and_asks_nothing_twice(
    judged: Judged, endpoint: Endpoint
) -> None:
    judged.write(SAMPLES, steps=STEPS | {"twin": VERIFY | {"threshold": 0.7}})
    assert judged.command("--fresh") == 0
    assert endpoint.hits == 3
    assert {step for step, how in steps(judged).items() if how == "reused"} == {"samples"}


def test_steps_after_a_fresh_step_use_replies_in_the_ledger(
    judged: Judged, endpoint: Endpoint
) -> None:
    assert judged.command("--again", "response_claims", "--fresh") == 0
    assert endpoint.hits == 0
    assert steps(judged)[VERDICTS] == "reused"


def test_replies_of_a_stopped_fresh_run_are_reused(judged: Judged, endpoint: Endpoint) -> None:
    stop = threading.Event()

    class StopAtOnce(RunObserver):
        def questions_answered(self, step: str, done: int, total: int) -> None:
            stop.set()

    endpoint.clear()
    judged.write(SAMPLES, max_concurrency=1)
    prepared, fresh = prepare(judged.path), Rerun(fresh=True)
    with pytest.raises(StoppedError):
        run_pipeline(prepared, judged.store, rerun=fresh, observer=StopAtOnce(), stop=stop)
    asked = endpoint.hits
    assert 1 <= asked < 3
    assert judged.command() == 0
    assert (endpoint.hits, steps(judged)[VERDICTS]) == (0, "reused")
    assert judged.command("--again", VERDICTS) == 0
    assert endpoint.hits == 0
    of_fresh = "run_id = (SELECT run_id FROM audit.runs WHERE status = 'stopped')"
    new = {call for (call,) in judged.calls("call_id", of_fresh)}
    assert len(new & verdict_calls(judged)) == asked


def test_an_invalid_reply_of_a_stopped_run_is_not_used_by_a_fresh_one(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    store, stop = tmp_path / "s.duckdb", threading.Event()

    def stopping(number: int, body: Any, key: str) -> Fault:
        stop.set()
        return faults.prose()

    endpoint.behaviour.fault = stopping
    with judge_of(endpoint, store, stop) as judge, pytest.raises(StoppedError):
        judge.ask(QUESTIONS, FORM, step="a")
    endpoint.behaviour.fault = None
    endpoint.clear()
    session = Session(Ledger(Store(store)), run_id="f", stop=threading.Event(), fresh={"a": None})
    settings = {"model": MODEL, "api_base": endpoint.api_base, "timeout": 10}
    EndpointJudge("judge", Judge(**settings), session).ask(QUESTIONS, FORM, step="a")
    session.close()
    assert [len(one.body["messages"]) for one in endpoint.requests] == [2]


def test_embeddings_of_an_endpoint_are_asked_again_too(tmp_path: Path, endpoint: Endpoint) -> None:
    embedder = {"provider": "litellm", "model": "hosted_vllm/fake", "api_base": endpoint.api_base}
    similarity = {"use": "embedding_similarity", "left": "response", "right": "reference"}
    judged = Judged(tmp_path, endpoint)
    more = {"judge": None, "embedder": embedder}
    judged.write(["one"], steps={"similarity": similarity}, more=more)
    for options, hits in (((), 1), (("--again", "similarity"), 0), (("--fresh",), 1)):
        judged.command(*options)
        assert endpoint.hits == hits


def test_only_these_steps_are_made(judged: Judged, endpoint: Endpoint) -> None:
    assert judged.command("--only", VERDICTS, "--fresh") == 0
    assert endpoint.hits == 3
    assert steps(judged) == {"samples": "reused", "response_claims": "reused", VERDICTS: "made"}
    assert judged.command("--only", VERDICTS, "response_claims") == 0
    assert set(steps(judged).values()) == {"reused"}


def test_a_needed_step_that_is_not_in_the_store_is_named(
    judged: Judged, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = STEPS | {"response_claims": STEPS["response_claims"] | {"atomicity": "high"}}
    judged.write(SAMPLES, steps=changed)
    before = runs(judged)
    assert printed(judged, capsys, "--only", "precision") == (
        2,
        "--only: needs 'response_claims', whose table is not in the store in its current state; "
        "make it in a run without --only",
    )
    assert printed(judged, capsys, "--from", VERDICTS) == (
        2,
        "--from: needs 'response_claims', whose table is not in the store in its current state; "
        "make it in a run without --from",
    )
    assert (endpoint.hits, runs(judged)) == (0, before)
    assert judged.command("--from", "response_claims") == 0


def test_from_makes_a_step_and_its_dependents(judged: Judged, endpoint: Endpoint) -> None:
    other = STEPS | {"other": {"use": "decompose_claims", "of": "reference", "judge": "embedded"}}
    judged.write(SAMPLES, steps=other)
    assert judged.command("--from", VERDICTS, "--fresh") == 0
    assert endpoint.hits == 3
    assert steps(judged) == {
        "samples": "reused",
        "response_claims": "reused",
        VERDICTS: "made",
        "precision": "made",
    }


def test_failed_repeats_failed_calls_and_makes_the_dependents(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = Judged(tmp_path, endpoint)
    judged.write(SAMPLES)
    store = judged.store.path
    assert printed(judged, capsys, "--failed") == (
        2,
        f"--failed: {store} has no run of p that finished with all samples; run without --failed",
    )
    endpoint.behaviour.fault = faults.where(about("two"), faults.missing(1))
    assert judged.command() == 1
    endpoint.behaviour.fault = None
    assert judged.command("--failed") == 0
    assert endpoint.hits == 1
    assert steps(judged) == {
        "samples": "reused",
        "response_claims": "reused",
        VERDICTS: "made",
        "precision": "made",
    }


def test_where_nothing_failed_there_is_nothing_to_do(
    judged: Judged, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ((run_id,),) = judged.ask("SELECT run_id FROM audit.runs")
    capsys.readouterr()
    assert judged.command("--failed") == 0
    expected = f"nothing failed in run {run_id}: nothing to do\n"
    assert capsys.readouterr().out == expected
    assert main(["plan", str(judged.path), "--failed"]) == 0
    assert capsys.readouterr().out == expected
    assert runs(judged) == 1


def test_only_new_and_changed_samples_cost_calls(judged: Judged, endpoint: Endpoint) -> None:
    for samples, asked in (
        (["four", *SAMPLES], "Case four."),
        ([*SAMPLES[:1], "four", "three"], None),
        ([sample("one"), sample("four") | {"reference": "Case 4. It stands."}], "Case 4."),
    ):
        judged.write(samples)
        judged.run()
        requests = [json.dumps(one.body) for one in endpoint.requests]
        assert len(requests) == (asked is not None)
        assert all(asked is not None and asked in request for request in requests)


def test_some_samples_cost_their_calls(judged: Judged, endpoint: Endpoint) -> None:
    assert judged.command("--samples", "SELECT 'two' AS sample_id", "--fresh") == 0
    assert endpoint.hits == 1
    newest = f"SELECT sample_id FROM samples WHERE {NEWEST}"
    assert judged.ask(newest) == [("two",)]
    assert ("two",) in judged.ask("SELECT sample_id FROM latest.samples")
    assert len(judged.ask("SELECT sample_id FROM latest.samples")) > 1


def test_failed_reads_the_store_of_the_option(judged: Judged, tmp_path: Path) -> None:
    rerun = Rerun(only=(VERDICTS,))
    with pytest.raises(InputError, match="needs 'response_claims'"):
        choose(prepare(judged.path, rerun=rerun), Store(tmp_path / "other.duckdb"), rerun)
