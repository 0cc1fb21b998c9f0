"""litellm in a process that uses it, too: its settings, callbacks and clients stay as they are."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from claimflow.flows.judge.provider import ProviderError, Request, open_provider
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import LABELS, Judged, about

MODELS = ["openai/m", "hosted_vllm/m", "anthropic/claude-sonnet-4-5"]
RESET = struct.pack("ii", 1, 0)
"""Linger for no time: the other side is told that the connection is gone."""
MESSAGES = [{"role": "user", "content": "What of the claim?"}]


class Breaking:
    """Hears a request whole, and breaks the connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.heard = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        # Closing alone would not wake a thread that accepts.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                size = 0
                while (line := stream.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                stream.read(size)
                self.heard += 1
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.fixture
def breaking() -> Iterator[Breaking]:
    server = Breaking()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "quite-secret")


def ask(model: str, address: str) -> None:
    async def one() -> None:
        provider = open_provider("litellm")
        try:
            await provider.warm_up(model)
            await provider.chat(Request(model, MESSAGES, {}, address), timeout=10)
        finally:
            await provider.close()

    asyncio.run(one())


@pytest.mark.parametrize("model", MODELS)
def test_a_request_whose_connection_breaks_is_sent_once(breaking: Breaking, model: str) -> None:
    with pytest.raises(ProviderError) as raised:
        ask(model, breaking.url)
    assert raised.value.kind == "server"
    assert breaking.heard == 1


def test_calls_are_neither_priced_nor_logged_by_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    open_provider("litellm").list_price("openai/m")
    needless: list[str] = []
    for module, name in (
        ("litellm.cost_calculator", "completion_cost"),
        ("litellm.litellm_core_utils.litellm_logging", "get_standard_logging_object_payload"),
    ):
        done = partial(needless.append, name)
        monkeypatch.setattr(sys.modules[module], name, lambda *_, done=done, **__: done())
    with serve() as endpoint:
        ask("openai/m", endpoint.api_base)
        ask("hosted_vllm/m", endpoint.api_base)
    assert needless == []


# In a process of its own, which has litellm before claimflow, as a notebook may.
NOTEBOOK = """
import asyncio, logging, os, sys, warnings
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
# numpy adds filters of warnings in every process that imports it.
import numpy
from litellm.integrations.custom_logger import CustomLogger

class Watching(CustomLogger):
    def __init__(self):
        super().__init__()
        self.seen = []
    def log_pre_api_call(self, model, messages, kwargs):
        self.seen.append(("before", model))
    async def async_pre_call_deployment_hook(self, kwargs, call_type):
        self.seen.append(("sent", kwargs["model"]))
    async def async_post_call_success_deployment_hook(self, request_data, response, call_type):
        self.seen.append(("received", request_data["model"]))
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        self.seen.append(("after", kwargs["model"], kwargs["response_cost"] is not None))

watching = Watching()
litellm.callbacks = [watching]
functions = []

async def succeeded(kwargs, response, start_time, end_time):
    functions.append(kwargs["model"])

litellm.success_callback = [succeeded]

def snapshot():
    kept = {name: value for name, value in vars(litellm).items() if not name.startswith("__")}
    plain = (list, dict, set, str, int, float, bool, type(None))
    copied = {n: repr(v) for n, v in kept.items() if isinstance(v, plain) and n != "model_cost"}
    levels = {name: logging.getLogger(name).level for name in ("LiteLLM", "openai", "httpx")}
    filters = list(warnings.filters)
    return {n: id(v) for n, v in kept.items()}, copied, set(litellm.model_cost), levels, filters

async def own(number):
    message = [{"role": "user", "content": "of the user"}]
    reply = await litellm.acompletion(
        model="openai/gpt-4o-mini", messages=message, api_base=sys.argv[1], api_key="k"
    )
    assert litellm.completion_cost(reply, model="gpt-4o-mini") > 0
    for _ in range(100):
        await asyncio.sleep(0.02)
        if len([one for one in watching.seen if one[0] == "after"]) == number:
            break
    assert len([one for one in watching.seen if one == ("after", "gpt-4o-mini", True)]) == number

async def main():
    from claimflow.flows.cli.main import main as claimflow
    await own(1)
    for number, pipeline in enumerate(sys.argv[2:], 2):
        before, seen = snapshot(), list(watching.seen)
        assert await asyncio.to_thread(claimflow, ["run", pipeline]) == 1
        after = snapshot()
        # litellm loads some of its names when they are first used.
        changed = [name for name, value in before[0].items() if after[0].get(name) != value]
        changed += [name for name, value in before[1].items() if after[1].get(name) != value]
        assert not changed, (pipeline, changed)
        assert after[2:] == before[2:], pipeline
        assert watching.seen == seen, pipeline
        # A client that the user's loop has opened is open.
        await own(number)
        assert len(functions) == number, (pipeline, functions)

asyncio.run(main())
"""


def test_runs_leave_the_litellm_of_their_process_as_it_was(tmp_path: Path) -> None:
    bad = faults.where(about("b"), faults.status(400))
    with serve(fault=bad) as endpoint:
        addresses = {
            "openai": endpoint.api_base,
            "hosted_vllm": endpoint.api_base,
            "ollama_chat": endpoint.api_base.removesuffix("/v1"),
        }
        judged = {}
        for name, address in addresses.items():
            folder = tmp_path / name
            folder.mkdir()
            judged[name] = Judged(folder, endpoint)
            judged[name].write("ab", model=f"{name}/fake", api_base=address)
        pipelines = [str(one.path) for one in judged.values()]
        done = subprocess.run(
            [sys.executable, "-c", NOTEBOOK, endpoint.api_base, *pipelines],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    for one in judged.values():
        assert one.verdicts() == {"a": LABELS, "b": ["bad_request"] * 3}


SCRIPT = """
import gc

before = gc.get_threshold()
from claimflow import prepare, run_pipeline

result = run_pipeline(prepare("p.yaml"))
assert gc.get_threshold() == before
"""


def test_a_script_with_a_judge_ends_silently_and_collects_garbage_as_before(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("ab")
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert judged.verdicts() == {"a": LABELS, "b": LABELS}
