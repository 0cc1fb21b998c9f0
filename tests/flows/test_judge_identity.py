"""Who answered is part of every key: replies of another server or setting are not reused."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.judge import provider as registry
from claimflow.flows.judge.calls import chat_call
from claimflow.flows.judge.litellm_settings import normalised, other_address
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    Request,
    endpoint_identity,
    open_provider,
    register_provider,
)
from claimflow.flows.pipeline.model_settings import PROVIDERS, Judge
from claimflow.flows.runner.prepare import prepare
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import Judged

ROOT = Path(__file__).parents[2]
OPENAI = "openai/gpt-4o-mini"
SIMILARITY = {"use": "embedding_similarity", "left": "response", "right": "reference"}
WHO = "SELECT DISTINCT api_base FROM audit.calls ORDER BY api_base"


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_BASE", "_BASE_URL")) or name.startswith(("AWS_", "VERTEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
def servers() -> Iterator[tuple[Endpoint, Endpoint]]:
    with serve() as one, serve() as other:
        yield one, other


def identity(model: str = OPENAI, api_base: str | None = None) -> dict[str, Any]:
    return open_provider("litellm").identity(model, api_base)


def asked(*servers: Endpoint) -> list[int]:
    """Requests since the last call, by server."""
    counts = [len(server.requests) for server in servers]
    for server in servers:
        server.clear()
    return counts


@pytest.mark.parametrize("name", ["OPENAI_API_BASE", "OPENAI_BASE_URL"])
def test_replies_of_another_server_are_not_reused(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one, other = servers
    judged = Judged(tmp_path, one)
    judged.write("a", model=OPENAI, api_base=...)
    for server, counts in ((one, [1, 0]), (one, [0, 0]), (other, [0, 1]), (one, [0, 0])):
        monkeypatch.setenv(name, server.api_base)
        run_pipeline(prepare(judged.path), judged.store)
        assert asked(*servers) == counts
    both = sorted([(one.api_base,), (other.api_base,)])
    assert judged.ask(WHO) == both


def test_an_address_is_the_same_in_the_file_and_in_the_environment(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = servers
    judged = Judged(tmp_path, one)
    judged.write("a", model=OPENAI)
    monkeypatch.setenv("OPENAI_API_BASE", other.api_base)
    run_pipeline(prepare(judged.path), judged.store)
    assert asked(*servers) == [1, 0]
    judged.write("a", model=OPENAI, api_base=...)
    monkeypatch.setenv("OPENAI_API_BASE", f"HTTP://u:pass-word@{one.api_base[7:]}/?key=pass-word")
    made = run_pipeline(prepare(judged.path), judged.store)
    assert [name for name, step in made.steps.items() if not step.reused] == []
    assert "pass-word" not in judged.everything()


def test_vectors_of_another_server_are_not_reused(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = servers
    judged = Judged(tmp_path, one)
    embedder = {"provider": "litellm", "model": "hosted_vllm/fake"}
    judged.write("a", steps={"similarity": SIMILARITY}, more={"embedder": embedder})
    for server, counts in ((one, [1, 0]), (other, [0, 1]), (one, [0, 0])):
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", server.api_base)
        run_pipeline(prepare(judged.path), judged.store)
        assert asked(*servers) == counts
    assert len(judged.ask(WHO)) == 2


def test_a_plan_says_that_earlier_replies_are_of_another_address(
    tmp_path: Path,
    servers: tuple[Endpoint, Endpoint],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = servers
    judged = Judged(tmp_path, one)
    judged.write("a", model=OPENAI, api_base=...)
    monkeypatch.setenv("OPENAI_API_BASE", one.api_base)
    judged.run()
    capsys.readouterr()
    main(["plan", str(judged.path)])
    assert "no reply on file" not in capsys.readouterr().out
    monkeypatch.setenv("OPENAI_API_BASE", other.api_base)
    main(["plan", str(judged.path)])
    line = f"judge: no reply on file is of {OPENAI} at {other.api_base}, so none is reused"
    assert line in capsys.readouterr().out


def test_a_run_that_reuses_everything_does_not_import_litellm(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judged(tmp_path, servers[0])
    judged.write("a", model=OPENAI, api_base=...)
    monkeypatch.setenv("OPENAI_API_BASE", servers[0].api_base)
    run_pipeline(prepare(judged.path), judged.store)
    code = (
        "import sys; from claimflow.flows.cli.main import main\n"
        "assert [main([c, sys.argv[1]]) for c in ('plan', 'run')] == [0, 0]\n"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(judged.path)], check=True, cwd=tmp_path)


def test_own_addresses_and_defaults_leave_keys_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for model in (OPENAI, "anthropic/claude-sonnet-4-5", "ollama_chat/m", "bedrock/m", "azure/m"):
        assert identity(model) == {}
        assert identity(model, "http://127.0.0.1:1/v1") == {}
    monkeypatch.setenv("OPENAI_API_BASE", "https://API.openai.com:443/v1/")
    monkeypatch.setenv("OLLAMA_API_BASE", "http://localhost:11434")
    assert identity() == identity("ollama_chat/m") == {}
    written = Judge(model=OPENAI, api_base="https://Gateway.example:443/v1/")
    assert endpoint_identity(written) == written.identity()


@pytest.mark.filterwarnings("ignore:Items? .* using the `ReadOnly` qualifier")
def test_the_address_is_the_one_that_litellm_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    open_provider("litellm").list_price(OPENAI)
    import litellm

    source = (path.read_text("utf-8") for path in Path(litellm.__file__).parent.rglob("*.py"))
    names = set(re.findall(r'"([A-Z][A-Z0-9_]*_(?:API_BASE|BASE_URL))"', "".join(source)))
    compared = 0
    for provider in sorted({str(getattr(one, "value", one)) for one in litellm.provider_list}):
        if provider in ("github_copilot", "chatgpt", "ragflow"):  # These need more than an address.
            continue
        with monkeypatch.context() as patch:
            for name in names:
                patch.setenv(name, f"http://127.0.0.1/{name}/v1")
            found = litellm.get_llm_provider(f"{provider}/m")[3]
            if found and found.startswith("http://127.0.0.1/"):
                compared += 1
                ours = other_address(provider, None)
                # litellm 1.110 adds the path of the API to an address of bigmodel.
                assert ours is not None and found.startswith(ours), provider  # noqa: PT018
                assert provider == "bigmodel" or ours == found.rstrip("/")
    assert compared > 50


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("azure/m", "AZURE_API_VERSION", "2024-06-01"),
        ("vertex_ai/gemini-2.5-pro", "VERTEXAI_LOCATION", "europe-west4"),
        ("bedrock/m", "AWS_REGION_NAME", "eu-central-1"),
        ("anthropic/claude-sonnet-4-5", "DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS", "9"),
        (OPENAI, "DEFAULT_REASONING_EFFORT_LOW_THINKING_BUDGET", "9"),
    ],
)
def test_variables_that_change_replies_change_the_keys(
    monkeypatch: pytest.MonkeyPatch, model: str, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert identity(model) == {"settings": {name: value}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("add_function_to_prompt", True),
        ("drop_params", True),
        ("modify_params", True),
        ("model_fallbacks", ["openai/other"]),
        ("custom_prompt_dict", {OPENAI: {"roles": {}}}),
        ("api_version", "2024-06-01"),
    ],
)
def test_settings_of_litellm_that_change_replies_change_the_keys(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    open_provider("litellm").list_price(OPENAI)
    import litellm

    assert identity() == {}
    monkeypatch.setattr(litellm, name, value)
    assert identity() == {"settings": {name: value}}


def test_addresses_and_aliases_set_in_litellm_are_part_of_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_provider("litellm").list_price(OPENAI)
    import litellm

    monkeypatch.setattr(litellm, "api_base", "http://127.0.0.1:1/v1/")
    here = {"api_base": "http://127.0.0.1:1/v1"}
    assert identity() == identity("anthropic/claude-sonnet-4-5") == here
    assert identity(OPENAI, "http://127.0.0.1:2/v1") == {}
    assert identity("groq/m") == {}  # litellm asks the address that it knows of Groq.
    assert identity("ollama_chat/m", "http://127.0.0.1:2") == here
    monkeypatch.setattr(litellm, "api_base", None)
    monkeypatch.setattr(litellm, "model_alias_map", {OPENAI: "openai/other"})
    assert identity() == {"settings": {"model_alias_map": "openai/other"}}
    assert identity("openai/third") == {}


def test_a_litellm_proxy_is_who_answers(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = servers
    monkeypatch.setenv("OPENAI_API_BASE", other.api_base)
    monkeypatch.setenv("USE_LITELLM_PROXY", "True")
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", one.api_base)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", "none")
    judged = Judged(tmp_path, other)
    judged.write("a", model=OPENAI, api_base=...)
    run_pipeline(prepare(judged.path), judged.store)
    assert asked(*servers) == [1, 0]
    assert judged.ask(WHO) == [(one.api_base,)]


def test_a_request_has_one_key_wherever_its_address_is_written() -> None:
    def key(address: str | None, **answered_by: Any) -> str:
        request = Request("m", [{"role": "user", "content": "U"}], {}, address)
        about = {"run_id": "r", "step": "s", "judge": "j", "provider": "litellm"}
        made = chat_call(request, answered_by=answered_by, **about, rung="text", repeats=None)
        return made.request

    here = "http://127.0.0.1:1/v1"
    assert key(here) == key(None, api_base=here)
    keys = {key(None), key(here), key(here, settings={"a": 1}), key(None, settings={"a": 1})}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("HTTP://Host:80/V1/", "http://host/V1"),
        ("https://host:443", "https://host"),
        ("http://user:word@host:8000/v1?key=word#x", "http://host:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("user:word@host/v1?key=word", "host/v1"),
        ("http://host:port/v1", "http://host:port/v1"),
    ],
)
def test_an_address_has_one_spelling_and_no_secret(written: str, normal: str) -> None:
    assert normalised(written) == normal == normalised(normal)


class Knowing(JudgeProvider):
    """A provider that says who answers; or nonsense."""

    says: Any = None

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        return ChatReply('{"claims": [{"id": 1, "verdict": "entailed"}]}')

    def identity(self, model: str, api_base: str | None) -> dict[str, Any]:
        if isinstance(self.says, Exception):
            raise self.says
        return dict(self.says or {})


def test_a_provider_of_your_own_says_who_answers(
    tmp_path: Path, servers: tuple[Endpoint, Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    register_provider("knowing", Knowing)
    try:
        judged = Judged(tmp_path, servers[0])
        judged.write("a", model="m", provider="knowing", api_base=...)
        for says in ({}, {"api_base": "http://one"}, {"release": 2}):
            monkeypatch.setattr(Knowing, "says", says)
            made = run_pipeline(prepare(judged.path), judged.store)
            assert not made.steps["response_in_reference"].reused
        assert judged.ask(WHO) == [("http://one",), (None,)]
        for says in (KeyError("region"), {"release": object()}, 7):
            monkeypatch.setattr(Knowing, "says", says)
            with pytest.raises(InputError, match="judge provider knowing: its identity"):
                run_pipeline(prepare(judged.path), judged.store)
    finally:
        PROVIDERS.discard("knowing")
