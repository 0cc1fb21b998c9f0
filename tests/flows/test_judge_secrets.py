"""Keys stay in the environment: not in files, stores, messages or logs; stores are private."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.judge.client import chat
from claimflow.flows.judge.environment_secrets import without_secrets
from claimflow.flows.judge.ledger_writer import Journal
from claimflow.flows.judge.provider import ChatReply, JudgeProvider, ProviderError, Request
from claimflow.flows.store.read_copy import read_copy_path, write_read_copy
from claimflow.flows.store.store import Store
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import LABELS, Judged

WORD = "s3cret-word-of-the-gateway"
EXTRA = {"extra_headers": {"x-tenant": "env:GATEWAY_LOGIN", "x-team": "a"}}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("GATEWAY_LOGIN", WORD)
    with serve() as server:
        yield server


@pytest.mark.parametrize("model", ["openai/m", "hosted_vllm/m", "ollama_chat/m"])
def test_a_header_comes_from_the_environment_and_is_nowhere_else(
    tmp_path: Path, endpoint: Endpoint, capfd: pytest.CaptureFixture[str], model: str
) -> None:
    judged = Judged(tmp_path, endpoint)
    base = endpoint.url if model.startswith("ollama") else endpoint.api_base
    judged.write("a", model=model, api_base=base, extra=EXTRA)
    assert judged.command() == 0
    assert judged.verdicts() == {"a": LABELS}
    (request,) = endpoint.requests
    sent = {name.lower(): value for name, value in request.headers.items()}
    assert (sent["x-tenant"], sent["x-team"]) == (WORD, "a")
    assert WORD not in judged.everything() + "".join(capfd.readouterr())


def test_another_key_is_the_same_judge(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judged(tmp_path, endpoint)
    judged.write("a", extra=EXTRA)
    judged.run()
    monkeypatch.setenv("GATEWAY_LOGIN", "another-word")
    judged.run()
    assert endpoint.hits == 0


def test_a_variable_that_is_not_set_is_named_before_the_first_call(
    tmp_path: Path,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judged = Judged(tmp_path, endpoint)
    judged.write("a", extra=EXTRA)
    for value, problem in (("", "set GATEWAY_LOGIN in the environment"), ("a\nb", "holds a sign")):
        monkeypatch.setenv("GATEWAY_LOGIN", value)
        assert judged.command() == 2
        assert problem in capsys.readouterr().err
    assert endpoint.hits == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": WORD},
        {"Authorization": f"Bearer {WORD}"},
        {"cookie": WORD},
        {"x-team": f"env:{WORD}"},
        {"x-team": 5},
        {"x-team": "a\r\nx-other: b"},
        WORD,
    ],
)
def test_a_header_that_may_be_a_secret_is_not_in_the_file(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str], headers: Any
) -> None:
    judged = Judged(tmp_path, endpoint)
    for place in ("extra_headers", "headers"):
        judged.write("a", extra={place: headers})
        assert judged.command() == 2
        printed = capsys.readouterr().err
        assert "header" in printed
        assert WORD not in printed


class Echoing(JudgeProvider):
    """Gives back the header that it was sent, in a reply or in an error."""

    def __init__(self, *, fail: bool) -> None:
        self.fail = fail
        self.sent = ""

    async def chat(self, request: Request, *, timeout: float) -> ChatReply:
        self.sent = request.parameters["extra_headers"]["x-tenant"]
        if self.fail:
            raise ProviderError("server", f"no entry for {self.sent}")
        return ChatReply(f"you are {self.sent}", refusal=self.sent, fingerprint=self.sent)


@pytest.mark.usefixtures("endpoint")
def test_a_reply_that_echoes_a_key_is_kept_without_it() -> None:
    provider, request = Echoing(fail=False), Request("m", [], EXTRA, None)
    reply = asyncio.run(chat(provider, request, timeout=5))
    assert (provider.sent, reply.text) == (WORD, "you are ***")
    assert WORD not in repr(reply)
    provider.fail = True
    with pytest.raises(ProviderError, match=r"no entry for \*\*\*"):
        asyncio.run(chat(provider, request, timeout=5))


@pytest.mark.parametrize(
    "written",
    [
        r"\u0073\u006B\u002d\u0061\u002b\u0062\u002f\u0063\u003d\u003d99",
        r"sk-a+b\/c==99",
        "sk-a%2Bb%2fc%3D%3D99",
        "%73%6b%2Da+b/c==99",
        "c2stYStiL2M9PTk5",
    ],
)
def test_a_key_in_another_coding_is_hidden(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-a+b/c==99")
    assert without_secrets(f"you are {written}!") == "you are ***!"


def test_what_a_run_leaves_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "s.duckdb")
        with store.writing():
            pass
        write_read_copy(store)
        journal = Journal(store)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.pop(read_copy_path(store.path).name) == 0o400
    assert sorted(modes.values()) == [0o600, 0o600]
    journal.discard()


def test_the_mode_of_a_store_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    with store.writing():
        pass
    store.path.chmod(0o640)
    with Store(store.path).writing():
        pass
    assert store.path.stat().st_mode & 0o777 == 0o640
