"""A second judge provider, which speaks OpenAI's protocol over http.client, in a whole run."""

import asyncio
import http.client
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import claimflow
from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import InputError
from claimflow.flows.judge import provider as registry
from claimflow.flows.judge import provider_errors, retry
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    ProviderError,
    Request,
    Usage,
    register_provider,
)
from claimflow.flows.pipeline import model_settings
from claimflow.flows.pipeline.model_settings import PROVIDERS, EmbeddingEndpoint, Judge
from claimflow.flows.pipeline.schema import json_schema
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.readiness import check_endpoints
from claimflow.flows.store.store import Store
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import LABELS, Judged, about, sample


class PlainProvider(JudgeProvider):
    """Asks with one connection for each call."""

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        body = {"model": request.model, "messages": request.messages, **request.parameters}
        address = urlsplit(str(request.api_base))

        def send() -> tuple[int, Any]:
            connection = http.client.HTTPConnection(address.netloc, timeout=timeout)
            try:
                headers = {"content-type": "application/json"}
                path = f"{address.path}/chat/completions"
                connection.request("POST", path, json.dumps(body), headers)
                reply = connection.getresponse()
                return reply.status, json.loads(reply.read())
            finally:
                connection.close()

        status, reply = await asyncio.to_thread(send)
        if status != 200:
            raise ProviderError("bad_request", f"status {status}")
        choice, usage = reply["choices"][0], reply["usage"]
        tokens = Usage(usage["prompt_tokens"], None, usage["completion_tokens"])
        text = choice["message"]["content"]
        return ChatReply(text, choice["finish_reason"], None, tokens, None)

    def missing(self, model: str, api_base: str | None) -> str | None:
        return None if api_base else "set api_base"


@pytest.fixture
def plain() -> Iterator[None]:
    factory: type[JudgeProvider] = PlainProvider
    register_provider("plain", factory)
    yield
    PROVIDERS.discard("plain")
    del registry._FACTORIES["plain"]


@pytest.mark.usefixtures("plain")
def test_a_run_asks_the_provider_that_the_pipeline_names(tmp_path: Path) -> None:
    bad = faults.where(about("b"), faults.status(400))
    with serve(fault=bad) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("ab", provider="plain", model="some-model")
        judged.run()
        assert [one.body["model"] for one in endpoint.requests] == ["some-model"] * 2
    assert judged.verdicts() == {"a": LABELS, "b": ["bad_request"] * 3}


@pytest.mark.usefixtures("plain")
def test_replies_of_two_providers_have_ledger_keys_of_their_own(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a")
        judged.run()
        assert endpoint.hits == 1
        judged.write("a", provider="plain")
        judged.run()
        assert endpoint.hits == 1
        judged.run()
        assert endpoint.hits == 0
        judged.write("a")
        judged.run()
        assert endpoint.hits == 0
    requests = {request for (request,) in judged.calls("request")}
    assert len(requests) == 2


@pytest.mark.usefixtures("plain")
def test_what_a_provider_lacks_stops_the_run_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a", provider="plain", api_base=...)
        assert judged.command() == 2
        assert endpoint.hits == 0
    assert "set api_base" in capsys.readouterr().err


@pytest.mark.usefixtures("plain")
def test_only_a_provider_other_than_litellm_is_part_of_the_identity() -> None:
    judge = Judge(model="m")
    assert judge.identity() == {"model": "m", "api_base": None, "temperature": 0}
    other = Judge(model="m", provider="plain")
    assert other.identity() == {**judge.identity(), "judge_provider": "plain"}


@pytest.mark.usefixtures("plain")
def test_an_embedder_of_another_provider_has_keys_of_its_own() -> None:
    usual = EmbeddingEndpoint(provider="litellm", model="m")
    assert usual.identity() == {"model": "m", "api_base": None}
    other = EmbeddingEndpoint(provider="plain", model="m")
    assert other.identity() == {**usual.identity(), "judge_provider": "plain"}


@pytest.mark.usefixtures("plain")
def test_a_misspelt_provider_is_an_error_that_lists_the_registered_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("a", provider="plian")
        assert judged.command() == 2
    error = capsys.readouterr().err
    assert "judge.provider: 'plian' is not a registered provider; did you mean 'plain'?" in error
    assert "registered: litellm, plain;" in error
    assert "claimflow.providers" in error


INSTALLED = """
import asyncio
from claimflow.flows.judge.provider import ChatReply, JudgeProvider, ProviderError, Usage

class Fixed(JudgeProvider):
    async def chat(self, request, *, timeout):
        {chat}

    async def embed(self, model, texts, *, api_base, parameters, timeout):
        return [[1.0, float(len(text))] for text in texts], Usage()
"""


def install(folder: Path, module: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package with the provider `module`:Fixed, registered as `module`, on the path."""
    site = folder / "site"
    information = site / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    (site / f"{module}.py").write_text(code, "utf-8")
    (information / "METADATA").write_text(f"Name: {module}\nVersion: 1.0\n", "utf-8")
    points = f"[claimflow.providers]\n{module} = {module}:Fixed\n"
    (information / "entry_points.txt").write_text(points, "utf-8")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))


def pipeline_of(folder: Path, provider: str, *, timeout: float = 60) -> Path:
    (folder / "samples.jsonl").write_text(
        '{"sample_id": "a", "response": "It is high.", "reference": "It is high."}\n', "utf-8"
    )
    path = folder / "p.yaml"
    path.write_text(
        f"""name: p
samples: {{path: samples.jsonl}}
store: p.duckdb
judge: {{provider: {provider}, model: any, timeout: {timeout}}}
embedder: {{provider: {provider}, model: any}}
steps:
  response_claims: {{use: decompose_claims, of: response}}
  similarity: {{use: embedding_similarity, left: response, right: reference}}
""",
        "utf-8",
    )
    return path


def failures(path: Path) -> list[tuple[Any, ...]]:
    with Store(path.with_suffix(".duckdb")).reading() as connection:
        query = "SELECT DISTINCT status, failure, reason FROM claims WHERE status = 'failed'"
        return connection.execute(query).fetchall()


def test_a_provider_of_an_installed_package_needs_one_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = """return ChatReply('{"texts": [{"id": 1, "claims": ["It is high."]}]}')"""
    install(tmp_path, "acme_judge", INSTALLED.format(chat=reply), monkeypatch)
    path = pipeline_of(tmp_path, "acme_judge")
    run_pipeline(prepare(path))
    with Store(path.with_suffix(".duckdb")).reading() as connection:
        assert connection.execute("SELECT claim FROM claims").fetchall() == [("It is high.",)]
        query = "SELECT judge, model, outcome FROM audit.calls ORDER BY judge"
        calls = connection.execute(query).fetchall()
    assert calls == [("embedder", "any", "ok"), ("judge", "any", "ok")]


@pytest.mark.parametrize(
    ("chat", "kind", "reason"),
    [
        ("return {}['choices']", "bad_request", "KeyError: 'choices' (acme_fails.py:7)"),
        ("return 'a text'", "bad_request", "TypeError: chat returned str, not ChatReply"),
        ("raise ConnectionError('no route')", "server_error", "cannot be reached: no route"),
        ("return ChatReply(5)", "bad_request", "text of the ChatReply is int, not str"),
        (
            "return ChatReply('', usage=None)",
            "bad_request",
            "the provider returned NoneType, not Usage",
        ),
        ("raise SystemExit(3)", "bad_request", "SystemExit: 3"),
        ("raise asyncio.CancelledError", "server_error", "the provider cancelled the call"),
        ("raise ProviderError('odd', 'x')", "bad_request", "of the unknown kind 'odd'"),
        ("raise ProviderError('server', 5, 'soon')", "server_error", "5"),
        ("await asyncio.sleep(60)", "timeout", "no reply in time"),
    ],
)
def test_an_exception_of_a_provider_is_a_row_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: str, kind: str, reason: str
) -> None:
    monkeypatch.setattr(retry, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(provider_errors, "_GRACE_SECONDS", 0.1)
    monkeypatch.delitem(sys.modules, "acme_fails", raising=False)
    install(tmp_path, "acme_fails", INSTALLED.format(chat=chat), monkeypatch)
    path = pipeline_of(tmp_path, "acme_fails", timeout=0.1)
    run_pipeline(prepare(path))
    ((status, failure, why),) = failures(path)
    assert (status, failure) == ("failed", kind)
    assert reason in why


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("list_price(self, model): raise ValueError('no')", "ValueError: no (acme_prices.py:11)"),
        ("list_price(self, model): raise SystemExit(3)", "SystemExit: 3 (acme_prices.py:11)"),
        ("list_price(self, model): return 0.5", "it returned float, not Price or None"),
        (
            "list_price(self, model): return Price(Decimal(-1), Decimal(1), Decimal(1))",
            "Price(input=Decimal('-1'), cached=Decimal('1'), output=Decimal('1')) is no price",
        ),
        (
            "list_price(self, model): return Price(0, 0, float('nan'))",
            "Price(input=0, cached=0, output=nan) is no price",
        ),
        ("missing(self, model, api_base): return {}['x']", "KeyError: 'x' (acme_prices.py:11)"),
        ("missing(self, model, api_base): return 5", "it returned int, not str or None"),
    ],
)
def test_a_provider_that_fails_before_the_run_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, fault: str
) -> None:
    monkeypatch.delitem(sys.modules, "acme_prices", raising=False)
    imports = "\nfrom decimal import Decimal\nfrom claimflow.flows.judge.provider import Price\n"
    code = INSTALLED.format(chat="return ChatReply('')") + f"    def {method}\n{imports}"
    install(tmp_path, "acme_prices", code, monkeypatch)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        check_endpoints(prepare(pipeline_of(tmp_path, "acme_prices")).pipeline)
    name = method.partition("(")[0]
    (line,) = str(raised.value).splitlines()
    assert line == f"judge provider acme_prices: {name} failed: {fault}; mend the provider"


def test_a_package_that_cannot_be_loaded_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "acme_broken", "import no_such_module\n", monkeypatch)
    with pytest.raises(InputError) as raised:
        run_pipeline(prepare(pipeline_of(tmp_path, "acme_broken")))
    message = (
        "judge provider acme_broken: acme_broken:Fixed cannot be imported: ModuleNotFoundError"
    )
    assert message in str(raised.value)


@pytest.mark.parametrize("code", ["class Fixed: pass", "def Fixed(): raise ValueError('no')"])
def test_a_registered_object_that_is_no_provider_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.delitem(sys.modules, "acme_other", raising=False)
    install(tmp_path, "acme_other", code, monkeypatch)
    with pytest.raises(InputError) as raised:
        run_pipeline(prepare(pipeline_of(tmp_path, "acme_other")))
    assert "judge provider acme_other: cannot be loaded: " in str(raised.value)
    assert "acme_other:Fixed" in str(raised.value)


def test_a_missing_text_and_absurd_numbers_of_tokens_end_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "acme_null", raising=False)
    reply = "return ChatReply(None, usage=Usage(-5, 10**30, 'many'))"
    end = "    async def close(self):\n        raise OSError('closed twice')\n"
    install(tmp_path, "acme_null", INSTALLED.format(chat=reply) + end, monkeypatch)
    path = pipeline_of(tmp_path, "acme_null")
    run_pipeline(prepare(path))
    assert [status for status, _, _ in failures(path)] == ["failed"]
    with Store(path.with_suffix(".duckdb")).reading() as connection:
        query = "SELECT DISTINCT prompt_tokens, cached_tokens, completion_tokens FROM audit.calls"
        assert connection.execute(f"{query} WHERE judge = 'judge'").fetchall() == [(None,) * 3]


def test_the_schema_admits_any_provider_but_onnx_for_an_endpoint() -> None:
    definitions = json_schema()["$defs"]
    assert definitions["Judge"]["properties"]["provider"]["type"] == "string"
    assert "const" not in definitions["Judge"]["properties"]["provider"]
    embedder = definitions["EmbeddingEndpoint"]["properties"]["provider"]
    assert embedder["not"] == {"const": "onnx"}


def test_the_provider_of_the_guide_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[2] / "configs/guides/judges.md").read_text("utf-8")
    code = guide.partition("```python\nimport httpx\n")[2].partition("```")[0]
    defined: dict[str, Any] = {}
    exec(f"import httpx\n{code}", defined)
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    monkeypatch.setattr(model_settings, "PROVIDERS", set(PROVIDERS))
    monkeypatch.setattr(registry, "PROVIDERS", model_settings.PROVIDERS)
    register_provider("gateway", defined["Gateway"])
    bad = faults.where(about("b"), faults.status(400))
    with serve(fault=bad) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write("ab", provider="gateway", model="some-model")
        judged.run()
    assert judged.verdicts() == {"a": LABELS, "b": ["bad_request"] * 3}


class Yes(JudgeProvider):
    """Every claim is entailed. It says who it is by its attributes only."""

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        ids = re.findall(r'id="(\d+)"', request.messages[-1]["content"])
        return ChatReply(
            json.dumps({"claims": [{"id": int(n), "verdict": "entailed"} for n in ids]})
        )


class NamedYes(Yes):
    name = "yes"
    model = "always"


STEPS_OF_YES: dict[str, Any] = {
    "response_claims": {"use": "decompose_claims", "of": "response", "judge": "embedded"},
    "response_in_reference": {
        "use": "verify_claims",
        "claims": "response_claims",
        "against": "reference",
    },
    "precision": {"use": "factual_correctness", "mode": "precision"},
}


def evaluate_with(judge: Any, store: Path) -> claimflow.Result:
    pipeline = {"name": "p", "samples": {"path": ""}, "steps": STEPS_OF_YES}
    return claimflow.evaluate([sample("a")], pipeline=pipeline, judge=judge, store=store)


@pytest.mark.parametrize(
    ("judge", "provider", "model"),
    [
        (Yes(), f"{__name__}:Yes", "Yes"),
        (NamedYes(), "yes", "always"),
        ({"provider": NamedYes(), "model": "m", "rpm": 600}, "yes", "m"),
    ],
)
def test_an_object_is_a_judge(tmp_path: Path, judge: Any, provider: str, model: str) -> None:
    found = evaluate_with(judge, tmp_path / "s.duckdb")
    assert found.scores["score"].to_list() == [1.0]
    assert found.calls["model"].to_list() == [model]
    (written,) = found.sql("SELECT config FROM audit.runs").rows()
    assert provider in written[0]
    assert evaluate_with(judge, tmp_path / "s.duckdb").calls.height == 0


def test_an_object_may_be_of_a_class_that_cannot_be_imported(tmp_path: Path) -> None:
    """As one made in a function, or by an edited cell of a notebook."""
    kind = type("Unnamed", (Yes,), {"__module__": __name__})
    assert evaluate_with(kind(), tmp_path / "s.duckdb").scores["score"].to_list() == [1.0]


def test_two_objects_of_a_class_need_names(tmp_path: Path) -> None:
    class Another(Yes):
        pass

    first, second = Another(), Another()
    evaluate_with(first, tmp_path / "s.duckdb")
    with pytest.raises(claimflow.InputError, match=r"two providers are named .*Another, and"):
        evaluate_with(second, tmp_path / "s.duckdb")
    del first
    assert evaluate_with(second, tmp_path / "s.duckdb").calls.height == 0
    second.name = "litellm"  # type: ignore[attr-defined]
    with pytest.raises(claimflow.InputError, match="two providers are named litellm"):
        evaluate_with(second, tmp_path / "s.duckdb")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), BaseException("odd")])
def test_whatever_a_provider_raises_is_a_failed_row(tmp_path: Path, error: BaseException) -> None:
    """Ctrl-C is raised in the main thread only; elsewhere it would end the event loop."""

    class Raising(Yes):
        name = f"raising-{type(error).__name__}"

        async def chat(self, request: Request, *, timeout: float) -> ChatReply:
            raise error

    found = evaluate_with(Raising(), tmp_path / "s.duckdb")
    assert found.scores["status"].to_list() == ["failed"]
    assert re.search(rf"{type(error).__name__}: .*\(test_judge_provider.py:", str(found.failed))
