"""A second judge provider, which speaks OpenAI's protocol over http.client, in a whole run."""

import asyncio
import http.client
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from claimflow.flows.judge import provider as registry
from claimflow.flows.judge.provider import (
    ChatReply,
    JudgeProvider,
    Price,
    ProviderError,
    Request,
    Usage,
    register_provider,
)
from claimflow.flows.pipeline.model_settings import PROVIDERS, Judge
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import LABELS, Judged, about


class PlainProvider:
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

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        *,
        api_base: str | None,
        parameters: dict[str, Any],
        timeout: float,
    ) -> tuple[list[list[float]], Usage]:
        raise ProviderError("fatal", "this provider has no embeddings")

    def list_price(self, model: str) -> Price | None:
        return None

    def missing(self, model: str, api_base: str | None) -> str | None:
        return None if api_base else "set api_base"

    def key_variable(self, model: str, api_base: str | None) -> str | None:
        return None

    async def warm_up(self, model: str) -> None: ...

    async def close(self) -> None: ...


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


def test_a_provider_that_is_not_registered_is_an_error() -> None:
    with pytest.raises(ValidationError, match="should be 'litellm'"):
        Judge(model="m", provider="unknown")
