"""`claimflow.evaluate` and its process: threads, other processes, Ctrl-C, what it changes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import claimflow
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import sample

METRICS = ["factual_correctness"]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


def judge(endpoint: Endpoint) -> dict[str, Any]:
    return {"model": "hosted_vllm/fake", "api_base": endpoint.api_base, "timeout": 10}


def run_script(
    folder: Path, script: str, *arguments: str, **variables: str
) -> subprocess.Popen[str]:
    path = os.pathsep.join(sys.path)
    # litellm may have set it in this process.
    inherited = {name: text for name, text in os.environ.items() if name != "TIKTOKEN_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "PYTHONPATH": path, **variables},
    )


@pytest.mark.parametrize("stores", [1, 4])
def test_threads_evaluate_at_once(tmp_path: Path, endpoint: Endpoint, stores: int) -> None:
    """Each gets its own rows, whether the threads share a store or not."""

    def evaluate(number: int) -> claimflow.Result:
        answers = [sample(f"{number}{name}") for name in "ab"]
        store = tmp_path / f"{number % stores}.duckdb"
        return claimflow.evaluate(answers, metrics=METRICS, judge=judge(endpoint), store=store)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(evaluate, range(4)))
    for number, result in enumerate(results):
        assert result.scores["sample_id"].to_list() == [f"{number}a", f"{number}b"]
        assert result.scores["status"].to_list() == ["scored", "scored"]
    # Replies that another thread got are reused.
    assert sum(result.calls.height for result in results) == endpoint.hits <= 24
    assert len({result.run_id for result in results}) == 4


SCRIPT = """
import json, sys
import claimflow

settings = json.loads(sys.argv[1])
result = claimflow.evaluate(**settings)
print(json.dumps([result.scores["score"].to_list(), result.calls.height]))
"""


def test_two_processes_share_a_store(tmp_path: Path, endpoint: Endpoint) -> None:
    settings = {
        "answers": [sample(name) for name in "abc"],
        "metrics": METRICS,
        "judge": judge(endpoint),
        "store": "shared.duckdb",
    }
    going = [run_script(tmp_path, SCRIPT, json.dumps(settings)) for _ in range(2)]
    printed = [process.communicate() for process in going]
    assert [process.returncode for process in going] == [0, 0], printed
    scores = [json.loads(out)[0] for out, _ in printed]
    assert scores[0] == scores[1]
    again = claimflow.evaluate(**{**settings, "store": tmp_path / "shared.duckdb"})
    assert again.calls.height == 0
    assert again.scores["score"].to_list() == scores[0]


INTERRUPTED = """
import json, sys
import claimflow

try:
    claimflow.evaluate(**json.loads(sys.argv[1]))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_keeps_what_was_paid_for(tmp_path: Path) -> None:
    answers = [sample(str(number)) for number in range(30)]
    with serve(latency=0.05) as endpoint:
        settings = {
            "answers": answers,
            "metrics": METRICS,
            "judge": judge(endpoint) | {"max_concurrency": 2},
            "store": "s.duckdb",
        }
        with run_script(tmp_path, INTERRUPTED, json.dumps(settings)) as going:
            while endpoint.hits < 10:
                assert going.poll() is None
            going.send_signal(signal.SIGINT)
            out, errors = going.communicate()
        assert (going.returncode, out, errors) == (0, "interrupted\n", "")
        paid = endpoint.hits
        assert paid < 60
        (ended,) = claimflow.connect(tmp_path / "s.duckdb").runs["status"]
        assert ended == "stopped"
        store = tmp_path / "s.duckdb"
        result = claimflow.evaluate(**{**settings, "store": store})
        assert result.calls.height == (hits := endpoint.hits) - paid
        whole = claimflow.evaluate(answers, metrics=METRICS, judge=judge(endpoint))
        assert hits <= whole.calls.height + 2
        assert result.scores.drop("step").equals(whole.scores.drop("step"))


def test_a_store_is_read_while_a_run_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    with serve(latency=0.05) as endpoint:
        settings: dict[str, Any] = {
            "metrics": METRICS,
            "judge": judge(endpoint) | {"max_concurrency": 1},
            "store": store,
        }
        first = claimflow.evaluate([sample("a")], **settings)
        before = endpoint.hits
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(claimflow.evaluate, [sample(n) for n in "abcdefgh"], **settings)
            while endpoint.hits < before + 3:
                assert not going.done()
            during = claimflow.connect(store)
            assert during.result(first.run_id).mean("factual_correctness") == first.mean(METRICS[0])
            assert not going.done()
            assert going.result().scores.height == 8


def test_a_budget_that_is_spent_fails_rows_and_keeps_the_replies(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    settings: dict[str, Any] = {
        "metrics": METRICS,
        "judge": judge(endpoint) | {"price": {"input": 1000, "output": 1000}, "max_tokens": 200},
        "store": tmp_path / "s.duckdb",
    }
    answers = [sample(name) for name in "abcdef"]
    short = claimflow.evaluate(answers, **settings, budget_usd=6.0)
    assert short.cost_usd is not None
    assert 0 < short.cost_usd <= 6
    assert short.failed is not None
    assert "the budget of 6.00 USD is spent" in short.failed
    assert "the budget of 6.00 USD is spent" in short.failures["reason"][0]
    paid = endpoint.hits
    result = claimflow.evaluate(answers, **settings, budget_usd=100)
    assert result.scores["status"].to_list() == ["scored"] * 6
    assert result.calls.height == endpoint.hits - paid
    whole = claimflow.evaluate(answers, **{**settings, "store": None})
    assert short.calls.height + result.calls.height == whole.calls.height


LEFT_ALONE = """
import json, logging, os, signal, sys, threading, warnings

import numpy, polars  # They add filters of warnings, in every process that imports them.
import claimflow

def process():
    loggers = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers)
               for name in ("", "claimflow", "openai", "httpx", "aiohttp", "prefect")}
    return {
        "environment": dict(os.environ),
        "loggers": repr(loggers),
        "warnings": repr(warnings.filters),
        "interrupt": signal.getsignal(signal.SIGINT),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook),
        "folder": os.getcwd(),
    }

before = process()
claimflow.evaluate(**json.loads(sys.argv[1]))
after = process()
changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
assert not changed, changed
assert "prefect" not in sys.modules
"""


@pytest.mark.parametrize("model", ["hosted_vllm/fake", "anthropic/claude-sonnet-4-5"])
def test_the_process_stays_as_it_was(tmp_path: Path, endpoint: Endpoint, model: str) -> None:
    address = endpoint.url if model.startswith("anthropic") else endpoint.api_base
    settings = {
        "answers": [sample("a") | {"reponse": "x"}],
        "metrics": METRICS,
        "judge": {"model": model, "api_base": address, "timeout": 10},
    }
    with run_script(tmp_path, LEFT_ALONE, json.dumps(settings), ANTHROPIC_API_KEY="k") as going:
        printed = going.communicate()
    assert (going.returncode, *printed) == (0, "", "")
    assert endpoint.hits > 0
    assert list(tmp_path.iterdir()) == []
