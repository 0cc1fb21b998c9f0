"""Runs on several machines that share a ledger: real servers, stores and processes."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.errors import JudgeError, StoppedError
from claimflow.flows.judge import ledger_server, shared_ledger
from claimflow.flows.judge.calls import Call, Entry, entry_line, read_entry
from claimflow.flows.judge.embedding import EndpointEmbedder
from claimflow.flows.judge.ledger_server import LedgerServer
from claimflow.flows.judge.ledger_writer import Journal, recover_journals
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.shared_ledger import SharedLedger, open_shared_ledger
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.read_copy import read_copy_path
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import content_key
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks, Process
from tests.flows.judged import Judged, about

NAMES: Final = [f"n{number}" for number in range(12)]
KEYS: Final = [content_key("key", number) for number in range(5)]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve(latency=0.2) as endpoint:
        yield endpoint


@contextmanager
def serving(store: Path, *, token: str | None = None, port: int = 0) -> Iterator[LedgerServer]:
    """A ledger in a thread of this process."""
    server = LedgerServer(Ledger(Store(store)), host="127.0.0.1", port=port, token=token)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LedgerServer]:
    with serving(tmp_path / "shared.duckdb") as server:
        yield server


def call(prompt: str, call_id: str | None = None) -> Call:
    asked = (None, KEYS[0], None, None, None, prompt, now())
    return Call(call_id or str(uuid4()), "r", "s", "judge", "m", *asked)


@pytest.fixture
def client(server: LedgerServer) -> Iterator[SharedLedger]:
    client = SharedLedger(server.url, threading.Event())
    yield client
    client.close()


@contextmanager
def two_runs(url: str) -> Iterator[tuple[SharedLedger, SharedLedger]]:
    runs = (SharedLedger(url, threading.Event()), SharedLedger(url, threading.Event()))
    try:
        yield runs
    finally:
        for run in runs:
            run.close()


FORGETFUL = """
import sys
from claimflow.flows.cli.main import main
from claimflow.flows.judge import ledger_server

ledger_server.ABANDONED_SECONDS = 1.0
sys.exit(main(sys.argv[1:]))
"""
"""The command, which takes claims for abandoned after a second in place of a minute."""


class Command:
    """`claimflow ledger` in a process of its own."""

    def __init__(self, store: Path, port: int = 0, *, forgetful: bool = False) -> None:
        command = ["-c", FORGETFUL] if forgetful else ["-m", "claimflow"]
        self.process = subprocess.Popen(
            [sys.executable, *command, "ledger", str(store), "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[0]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    commands: list[Command] = []

    def start(port: int = 0, **more: Any) -> Command:
        commands.append(Command(tmp_path / "shared.duckdb", port, **more))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()


def machines(folder: Path, endpoint: Endpoint, url: str, count: int, **more: Any) -> list[Judged]:
    """Machines with stores of their own and the same samples."""
    found = [Judged(folder / str(number), endpoint) for number in range(count)]
    for machine in found:
        machine.path.parent.mkdir(parents=True)
        machine.write(NAMES, more={"ledger": url}, max_concurrency=2, **more)
    return found


def start(forks: Forks, machine: Judged, *options: str) -> Process:
    return forks.run(machine.path.parent, "run", machine.path.name, *options)


def wait_for(happened: Callable[[], Any], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def is_closed(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            return False
    except OSError:
        return True


def calls_in(store: Path) -> int:
    with Store(store).reading() as connection:
        [[count]] = connection.execute("SELECT count(*) FROM audit.calls").fetchall()
    return int(count)


def check_whole(machine: Judged) -> None:
    """A machine has all verdicts, and each of them leads to its call."""
    found = machine.ask(
        "SELECT count(*) FROM latest.verdicts JOIN audit.calls USING (call_id) "
        "WHERE verdict NOT NULL AND prompt NOT NULL AND reply NOT NULL"
    )
    assert found == [(3 * len(NAMES),)]
    assert machine.ask("SELECT count(*) - count(DISTINCT call_id) FROM audit.calls") == [(0,)]
    assert not list(machine.path.parent.glob("*.journal"))


def test_machines_at_once_ask_what_one_of_them_would(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, forks: Forks
) -> None:
    three = machines(tmp_path, endpoint, server.url, 3)
    runs = [start(forks, machine) for machine in three]
    for machine, run in zip(three, runs, strict=True):
        assert run.code() == 0, run.err()
        check_whole(machine)
    assert endpoint.hits == len(NAMES)
    paid = "SELECT count(*) FROM audit.calls JOIN audit.runs USING (run_id)"
    assert sum(count for machine in three for [count] in machine.ask(paid)) == len(NAMES)


def test_a_new_machine_asks_for_nothing_and_plan_says_so(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = machines(tmp_path, endpoint, server.url, 2)
    assert first.command() == 0
    capsys.readouterr()
    assert main(["plan", str(second.path)]) == 0
    assert f"no calls; {3 * len(NAMES)} answers are on file" in capsys.readouterr().out
    assert not second.store.path.exists()
    assert second.command() == 0
    told = f"shared ledger at {server.url}: answers taken: {3 * len(NAMES)}, calls sent: 0"
    assert told in capsys.readouterr().err
    assert endpoint.hits == 0
    check_whole(second)


def test_merging_stores_that_share_a_ledger_copies_each_reply_once(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = machines(tmp_path, endpoint, server.url, 2)
    assert first.command() == second.command() == 0
    capsys.readouterr()
    assert main(["merge", str(second.store.path), "--config", str(first.path)]) == 0
    told = f"0 calls and 0 replies copied, {3 * len(NAMES)} were there already"
    assert told in capsys.readouterr().out
    assert main(["verify", "--config", str(first.path)]) == 0


def test_a_call_that_is_saved_twice_is_stored_once(tmp_path: Path, client: SharedLedger) -> None:
    entry = Entry(call("What?"), {KEYS[0]: b"tin"})
    for _ in range(2):
        client.send([entry])
        assert len(client.recall(KEYS)) == 1
    client.send([Entry(call("What?"), {KEYS[0]: b"tin"})])
    client.recall(KEYS)
    with Store(tmp_path / "shared.duckdb").reading() as connection:
        assert connection.execute("SELECT count(*) FROM audit.replies").fetchall() == [(2,)]


def test_a_query_of_the_store_of_a_ledger_is_of_the_store_itself(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    [old] = machines(tmp_path, endpoint, server.url, 1)
    old.write(NAMES)
    assert old.command() == 0
    copy = read_copy_path(old.store.path)
    assert copy.exists()
    with serving(old.store.path) as other:
        assert not copy.exists()
        client = SharedLedger(other.url, threading.Event())
        client.send([Entry(call("What?"), {KEYS[0]: b"tin"})])
        client.recall(KEYS)
        client.close()
        capsys.readouterr()
        query = "SELECT count(*) AS calls FROM audit.calls"
        assert main(["sql", query, "--store", str(old.store.path), "--format", "csv"]) == 0
    assert capsys.readouterr().out.split() == ["calls", str(len(NAMES) + 1)]


def test_a_machine_that_asks_afresh_sends_its_answers(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer
) -> None:
    first, second = machines(tmp_path, endpoint, server.url, 2)
    first.run()
    assert second.command("--fresh") == 0
    assert endpoint.hits == len(NAMES)
    wait_for(lambda: calls_in(tmp_path / "shared.duckdb") == 2 * len(NAMES))


def test_runs_that_wait_for_what_failed_in_the_other_one_end(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_ledger, "KEYS_AT_ONCE", 1)
    failing = (about(NAMES[0]), about(NAMES[-1]))
    fault = faults.where(lambda body: any(one(body) for one in failing), faults.status(400))
    endpoint.behaviour.fault = fault
    # Each claims its first question, then waits until the other one has claimed its own.
    both = threading.Barrier(2)
    take = LedgerServer._take

    async def meeting(self: LedgerServer, body: bytes) -> Any:
        answer = await take(self, body)
        with suppress(threading.BrokenBarrierError):
            await asyncio.to_thread(both.wait, 5)
        return answer

    monkeypatch.setattr(LedgerServer, "_take", meeting)
    with serving(tmp_path / "shared.duckdb") as server, ThreadPoolExecutor(2) as pool:
        one, other = machines(tmp_path, endpoint, server.url, 2)
        other.write(NAMES[::-1], more={"ledger": server.url}, max_concurrency=2)
        prepared = [prepare(machine.path) for machine in (one, other)]
        ends = [pool.submit(run_pipeline, ready) for ready in prepared]
        assert all(end.result(timeout=60).run_id for end in ends)


def test_what_failed_on_one_machine_is_asked_by_the_other(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, forks: Forks
) -> None:
    endpoint.behaviour.fault = faults.where(about("n5"), faults.first(1, faults.status(400)))
    runs = [start(forks, one) for one in machines(tmp_path, endpoint, server.url, 2)]
    assert sorted(run.code() for run in runs) == [0, 1]
    assert sorted(endpoint.hits_by_key.values()) == [1] * (len(NAMES) - 1) + [2]


def test_another_machine_goes_on_where_a_killed_one_stopped(
    tmp_path: Path,
    endpoint: Endpoint,
    server: LedgerServer,
    forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_server, "ABANDONED_SECONDS", 3.0)
    first, second = machines(tmp_path, endpoint, server.url, 2)
    killed = start(forks, first)
    wait_for(lambda: endpoint.hits > len(NAMES) // 2)
    other = start(forks, second)
    killed.send(signal.SIGKILL)
    gone = time.monotonic()
    assert killed.code() == -signal.SIGKILL
    assert other.code() == 0, other.err()
    check_whole(second)
    # In flight, or answered and on the killed machine alone.
    again = [one for one in endpoint.requests if endpoint.hits_by_key[one.key] > 1]
    assert all(one.replied is None or one.replied > gone - 1.5 for one in again)
    # Back again, it sends what it was answered, and asks for nothing.
    endpoint.clear()
    assert first.command() == 0
    assert endpoint.hits == 0
    check_whole(first)


def test_a_ledger_that_is_killed_loses_nothing_and_runs_wait_for_it(
    tmp_path: Path, endpoint: Endpoint, started: Callable[..., Command], forks: Forks
) -> None:
    ledger = started()
    two = machines(tmp_path, endpoint, ledger.url, 2)
    runs = [start(forks, machine) for machine in two]
    wait_for(lambda: endpoint.hits > len(NAMES) // 2)
    ledger.kill()
    time.sleep(0.5)
    started(ledger.port)
    for machine, run in zip(two, runs, strict=True):
        assert run.code() == 0, run.err()
        check_whole(machine)
    assert endpoint.hits == len(NAMES)
    endpoint.clear()
    [third] = machines(tmp_path / "later", endpoint, ledger.url, 1)
    assert third.command() == 0
    assert endpoint.hits == 0


def test_a_run_whose_ledger_is_gone_keeps_its_answers_and_sends_them_later(
    tmp_path: Path,
    endpoint: Endpoint,
    started: Callable[..., Command],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_ledger, "_PATIENCE", 0.5)
    monkeypatch.setattr(shared_ledger, "_QUIET_SECONDS", 0.0)
    ledger = started()
    first, second = machines(tmp_path, endpoint, ledger.url, 2)
    endpoint.behaviour.latency = 1.0
    endpoint.clear()
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(lambda: (wait_for(lambda: endpoint.hits > 1), ledger.kill()))
        assert first.command() == 6
        killed.result()
    told = capsys.readouterr().err
    assert f"the shared ledger at {ledger.url} does not answer" in caplog.text
    assert f"the shared ledger at {ledger.url}: it does not answer" in told
    assert "run again to continue" in told
    asked = endpoint.hits
    assert 0 < asked < len(NAMES)
    endpoint.behaviour.latency = 0.0
    started(ledger.port, forgetful=True)
    assert first.command() == 0
    assert endpoint.hits == len(NAMES) - asked
    assert second.command() == 0
    assert endpoint.hits == 0
    check_whole(second)


def test_redacted_calls_are_shared_redacted(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer
) -> None:
    [machine] = machines(tmp_path, endpoint, server.url, 1)
    assert machine.command("--redact") == 0
    server.stop()
    wait_for(lambda: calls_in(tmp_path / "shared.duckdb") == len(NAMES))
    with Store(tmp_path / "shared.duckdb").reading() as connection:
        prompts = connection.execute("SELECT prompt FROM audit.calls").fetchall()
    assert not any("tower" in prompt for [prompt] in prompts)


def test_embeddings_of_an_endpoint_are_shared(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer
) -> None:
    settings = EmbeddingEndpoint(
        provider="litellm", model="hosted_vllm/fake", api_base=endpoint.api_base
    )
    stop = threading.Event()
    vectors = []
    for number in range(2):
        ledger = Ledger(Store(tmp_path / f"{number}.duckdb"))
        with open_shared_ledger(server.url, "p.yaml", stop) as shared:
            session = Session(ledger, run_id="r", stop=stop, shared=shared)
            try:
                embedder = EndpointEmbedder(settings, session)
                vectors.append(embedder.embed(["tin", "lead"], step="s").sort("text").rows())
            finally:
                session.close()
    assert vectors[0] == vectors[1]
    assert endpoint.hits == 1


def told_of(folder: Path, endpoint: Endpoint, url: str, capsys: Any) -> str:
    [machine] = machines(folder, endpoint, url, 1)
    assert machine.command() == 2
    assert not machine.store.path.exists()
    [line] = [one for one in capsys.readouterr().err.splitlines() if "claimflow: " in one]
    line_number = machine.path.read_text().splitlines().index(f"ledger: {url}") + 1
    assert f"p.yaml:{line_number} ledger: " in line
    return str(line)


def test_a_ledger_that_does_not_answer_is_told_before_the_run(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(tmp_path, endpoint, "http://127.0.0.1:9", capsys)
    assert "no ledger answers" in told
    assert "start it with `claimflow ledger FILE`" in told
    assert endpoint.hits == 0


def test_doctor_asks_the_ledger_first(
    tmp_path: Path, endpoint: Endpoint, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = machines(tmp_path, endpoint, server.url, 2)
    assert main(["doctor", str(good.path)]) == 0
    assert f"shared ledger at {server.url}\n  answers" in capsys.readouterr().out
    bad.write(NAMES, more={"ledger": "http://127.0.0.1:9"})
    endpoint.clear()
    assert main(["doctor", str(bad.path)]) == 2
    assert "no ledger answers" in capsys.readouterr().err
    assert endpoint.hits == 0


def test_an_address_that_is_none_is_told_with_one_that_is(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    [machine] = machines(tmp_path, endpoint, "10.0.0.5:8767", 1)
    assert main(["check", str(machine.path)]) == 2
    assert "write a URL such as http://127.0.0.1:8767" in capsys.readouterr().err


def test_another_server_is_no_ledger(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "what answers is no ledger" in told_of(tmp_path, endpoint, endpoint.url, capsys)


def test_a_token_must_be_that_of_the_ledger(
    tmp_path: Path,
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(tmp_path / "shared.duckdb", token="a-long-secret") as server:
        for number, token in enumerate(("", "another-secret", "\u00fcber", "a\nsecret")):
            monkeypatch.setenv(shared_ledger.TOKEN, token)
            told = told_of(tmp_path / str(number), endpoint, server.url, capsys)
            assert "the ledger wants another token; set CLAIMFLOW_LEDGER_TOKEN" in told
            assert "secret" not in told
        monkeypatch.setenv(shared_ledger.TOKEN, "a-long-secret\n")
        [machine] = machines(tmp_path / "right", endpoint, server.url, 1)
        assert machine.command() == 0


def test_other_machines_need_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(shared_ledger.TOKEN, raising=False)
    store = tmp_path / "shared.duckdb"
    assert main(["ledger", str(store), "--host", "0.0.0.0"]) == 2
    told = capsys.readouterr().err
    assert "--host 0.0.0.0: other machines could write to the ledger" in told
    assert "set CLAIMFLOW_LEDGER_TOKEN" in told
    assert not store.exists()


def test_a_port_in_use_is_told(
    tmp_path: Path, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.url.rpartition(":")[2]
    assert main(["ledger", str(tmp_path / "other.duckdb"), "--port", port]) == 2
    assert f"--port {port}: cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["", "nowhere.invalid", "192.0.2.1", "a" * 300])
def test_an_address_that_is_not_of_this_machine_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host: str,
) -> None:
    monkeypatch.setenv(shared_ledger.TOKEN, "a-long-secret")
    assert main(["ledger", str(tmp_path / "s.duckdb"), "--host", host, "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert "--host" in told
    assert "name an address of this machine" in told
    assert not (tmp_path / "s.duckdb").exists()


def test_one_ledger_shares_a_store(
    tmp_path: Path, server: LedgerServer, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "shared.duckdb"
    assert main(["ledger", str(store), "--port", "0"]) == 2
    assert f"{store}: another ledger shares it" in capsys.readouterr().err
    assert httpx.get(server.url).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("take", b"", 422),
        ("take", b"[" * 200_000, 422),
        ("take", b"[" * 90_000, 422),
        ("take", b'{"keys": []}', 422),
        ("take", json.dumps({"run": "r", "keys": ["x"]}).encode(), 422),
        ("take", json.dumps({"run": "r", "keys": [1]}).encode(), 422),
        ("take", json.dumps({"run": "r" * 65, "keys": KEYS}).encode(), 422),
        ("take", json.dumps({"run": "r", "keys": KEYS[:1] * 10_001}).encode(), 422),
        ("save", b"{}", 422),
        ("save", b"[null, {}, null]", 422),
        ("save", b"\xff", 422),
        ("save", b"x" * ((64 << 20) + 1), 413),
        ("nothing", b"", 404),
    ],
)
def test_a_request_that_no_run_sends_is_refused(
    server: LedgerServer, path: str, body: bytes, status: int
) -> None:
    assert httpx.post(f"{server.url}/{path}", content=body, timeout=30).status_code == status
    assert httpx.get(server.url).status_code == 200


def test_a_request_that_does_not_say_how_long_it_is_is_refused(server: LedgerServer) -> None:
    assert httpx.post(f"{server.url}/take", content=iter([b"{", b"}"])).status_code == 411


def test_long_requests_wait_for_room(server: LedgerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_server, "_BODIES_BYTES", 10)
    assert httpx.post(f"{server.url}/save", content=b"x" * 11).status_code == 503
    assert httpx.get(server.url).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:{port}", 200),
        ("127.0.0.1:{port}", 200),
        ("[0:0:0:0:0:0:0:1]:{port}", 200),
        ("localhost:1", 403),
        ("localhost", 403),
        ("elsewhere.example:{port}", 403),
    ],
)
def test_without_a_token_only_this_machine_is_served(
    server: LedgerServer, host: str, status: int
) -> None:
    name = host.format(port=server.url.rpartition(":")[2])
    assert httpx.get(server.url, headers={"Host": name}).status_code == status


@pytest.mark.parametrize("header", ["Origin", "Host"])
def test_a_page_in_a_browser_cannot_write_to_the_ledger(server: LedgerServer, header: str) -> None:
    headers = {header: "http://elsewhere.example"}
    assert httpx.post(f"{server.url}/save", headers=headers).status_code == 403


GREETING: Final = json.dumps({"service": "claimflow ledger", "protocol": 1}).encode()


@contextmanager
def nonsense(answer: bytes, greeting: bytes = GREETING) -> Iterator[str]:
    """A server that says it is a ledger, and then answers anything else with `answer`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(greeting)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.reply(answer)

        def reply(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"known": true, "elsewhere": []}\n[1]\n',
        b'{"known": true, "elsewhere": 3}',
    ],
)
def test_answers_that_no_ledger_gives_end_the_run_in_order(
    tmp_path: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    with nonsense(answer) as url:
        [machine] = machines(tmp_path, endpoint, url, 1)
        assert machine.command() == 6
    told = capsys.readouterr().err
    assert f"the shared ledger at {url}: what it answers cannot be read" in told
    assert "Traceback" not in told
    assert endpoint.hits == 0


@pytest.mark.parametrize(
    ("greeting", "told"),
    [
        (b"[" * 50_000, "what answers is no ledger (status 200)"),
        (b"x" * 1_000_000, "no ledger answers (an answer of more than 65,536 bytes)"),
        (GREETING.replace(b"1", b"2"), "the ledger is of claimflow"),
    ],
)
def test_a_greeting_that_no_ledger_gives_is_told_before_the_run(
    tmp_path: Path,
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    greeting: bytes,
    told: str,
) -> None:
    with nonsense(b"", greeting) as url:
        assert told in told_of(tmp_path, endpoint, url, capsys)


def test_replies_to_other_keys_than_those_asked_are_not_taken_over(tmp_path: Path) -> None:
    entry = entry_line(Entry(call("What?"), {KEYS[0]: b"tin", KEYS[1]: b"lead"}, KEYS[2]))
    with nonsense(b'{"known": true, "elsewhere": ["x"]}\n' + entry) as url:
        client = SharedLedger(url, threading.Event())
        [found], elsewhere = client.take(KEYS[:1])
        client.close()
    assert (dict(found.replies), found.closes) == ({KEYS[0]: b"tin"}, None)
    assert not elsewhere


def test_one_entry_that_is_refused_does_not_keep_back_the_others(
    tmp_path: Path, client: SharedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [Entry(call("What?"), {key: b"tin"}) for key in KEYS]
    entries[2] = entries[2]._replace(call=call("What?", "no id"))
    client.send(entries)
    found = {key for entry in client.recall(KEYS) for key in entry.replies}
    assert found == {*KEYS} - {KEYS[2]}
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a call is not shared" in told
    assert "a line is no entry" in told


def test_a_reply_in_the_ledger_that_cannot_be_read_is_asked_again(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    store = tmp_path / "shared.duckdb"
    with serving(store) as server:
        first, second = machines(tmp_path, endpoint, server.url, 2)
        assert first.command() == 0
        port = int(server.url.rpartition(":")[2])
    junk = '\'{"answer": {}, "call": "x"}\'::BLOB'
    with Store(store).writing() as connection:
        of_one = "key = (SELECT min(key) FROM audit.replies)"
        connection.execute(f"UPDATE audit.replies SET reply = {junk} WHERE {of_one}")
    endpoint.clear()
    with serving(store, port=port):
        assert second.command() == 0
    assert endpoint.hits == 1


@pytest.mark.parametrize("head", [b"", b"POST /take HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_without_a_request_is_closed(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(ledger_server, "_HEAD_SECONDS", 0.3)
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
        silent.sendall(head)
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        slow.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        slow.sendall(head or b"GET")
        while slow.recv(1000):
            pass


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_ledger_in_order(
    tmp_path: Path, started: Callable[..., Command], times: int
) -> None:
    ledger = started()
    process = ledger.process
    client = SharedLedger(ledger.url, threading.Event())
    client.send([Entry(call("What?"), {KEYS[0]: b"tin"})])
    client.close()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "1 call saved" in out
    if times == 1:
        assert calls_in(tmp_path / "shared.duckdb") == 1
        assert not list(tmp_path.glob("*.journal"))


def test_a_second_ctrl_c_does_not_wait_for_requests(started: Callable[..., Command]) -> None:
    ledger = started()
    httpx.get(ledger.url, timeout=30)  # It serves now.
    with socket.create_connection(("127.0.0.1", ledger.port), timeout=30) as slow:
        slow.sendall(b"POST /take HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
        ledger.process.send_signal(signal.SIGINT)
        wait_for(lambda: is_closed(ledger.port))
        ledger.process.send_signal(signal.SIGINT)
        out, err = ledger.process.communicate(timeout=60)
    assert (ledger.process.returncode, err) == (0, "")
    assert "0 calls saved" in out


def test_a_ledger_is_found_by_a_link_to_its_store(
    tmp_path: Path, started: Callable[..., Command], capsys: pytest.CaptureFixture[str]
) -> None:
    started()
    (tmp_path / "link.duckdb").symlink_to(tmp_path / "shared.duckdb")
    assert main(["ledger", str(tmp_path / "link.duckdb"), "--port", "0"]) == 2
    assert "another ledger shares it" in capsys.readouterr().err


def test_a_link_is_no_file_of_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "s.duckdb.claims").symlink_to(victim)
    assert main(["ledger", str(tmp_path / "s.duckdb"), "--port", "0"]) == 2
    assert "s.duckdb.claims: cannot be opened" in capsys.readouterr().err
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_ledger_is_asked_without_a_proxy(
    server: LedgerServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "socks5://127.0.0.1:1")
    client = SharedLedger(server.url, threading.Event())
    assert client.problem() is None
    client.close()


def test_certificates_that_cannot_be_read_are_told(
    tmp_path: Path,
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    told = told_of(tmp_path, endpoint, "https://127.0.0.1:9", capsys)
    assert "the certificates of this machine cannot be read" in told


def test_a_run_that_was_forgotten_claims_again_what_it_had(
    client: SharedLedger, server: LedgerServer
) -> None:
    other = SharedLedger(server.url, threading.Event())
    client.take(KEYS[:3])
    server._claims.end(client._run)
    other.take(KEYS[:1])
    client.take(KEYS[3:4])
    assert client.holds(KEYS[1:4])
    assert not client.holds(KEYS[:1])
    assert other.take(KEYS).elsewhere == {*KEYS[1:4]}
    other.close()


def test_a_run_is_not_sure_of_claims_that_it_could_not_renew(
    client: SharedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.take(KEYS)
    assert client.holds(KEYS)
    monkeypatch.setattr(shared_ledger, "_SURE_SECONDS", 0.0)
    assert not client.holds(KEYS)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_killed_run_was_answered_is_sent_later_though_it_is_in_the_store(
    tmp_path: Path, client: SharedLedger, *, damaged: bool
) -> None:
    ledger = Ledger(Store(tmp_path / "s.duckdb"))
    journal = Journal(ledger.store, shared=True)
    journal.add(Entry(call("What?"), {KEYS[0]: b"tin"}))
    journal.keep()
    if damaged:
        [path] = tmp_path.glob("*.journal")
        with path.open("ab") as file:
            file.write(b"garbage\n")
    # `prune`, `noise`, or a run without the shared ledger.
    assert recover_journals(ledger) == 1
    assert recover_journals(ledger) == 0
    ledger.remember("judge", {KEYS[0]: b"lead"})
    assert recover_journals(ledger, client) == 1
    assert [dict(entry.replies) for entry in client.recall(KEYS)] == [{KEYS[0]: b"tin"}]
    assert ledger.recall(KEYS) == {KEYS[0]: b"lead"}
    left = [path.name.partition(".journal")[2] for path in tmp_path.glob("s.duckdb.*journal*")]
    assert left == ([".unsent.unreadable"] if damaged else [])


def test_what_is_too_long_for_one_request_goes_in_several(
    client: SharedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_server, "BODY_BYTES", 3_000)
    client.send([Entry(call("What?" * 200), {key: key.encode()}) for key in KEYS])
    for found in (client.recall(KEYS), client.take(KEYS).entries):
        assert {key: reply for entry in found for key, reply in entry.replies.items()} == {
            key: key.encode() for key in KEYS
        }


def test_an_answer_that_trickles_ends_the_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_ledger, "_PATIENCE", 1.0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not ended.wait(0.05):
                    self.wfile.write(b"x")

        def log_message(self, *_: Any) -> None:
            pass

    ended, stop = threading.Event(), threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        client = SharedLedger(f"http://127.0.0.1:{served.server_port}", stop)
        with pytest.raises(JudgeError, match="it does not answer"):
            client.take(KEYS)
        monkeypatch.setattr(shared_ledger, "_PATIENCE", 60.0)
        monkeypatch.setattr(shared_ledger, "_CLOSE_SECONDS", 0.2)
        threading.Timer(0.3, stop.set).start()
        began = time.monotonic()
        with pytest.raises(StoppedError):
            client.take(KEYS)
        assert time.monotonic() - began < 30
        client.close()
        ended.set()
        served.shutdown()
        thread.join()


def test_claims_survive_a_kill_of_the_ledger(
    tmp_path: Path, started: Callable[..., Command]
) -> None:
    ledger = started()
    claims = tmp_path / "shared.duckdb.claims"
    with two_runs(ledger.url) as (a, b):
        a.take(KEYS[:3])
        a.release(KEYS[:1])
        ledger.kill()
        with claims.open("ab") as file:
            file.write(b'["r", ["half')
        ledger = started(ledger.port)
        assert b.take(KEYS) == ([], frozenset(KEYS[1:3]))
        a.close()
        assert b.take(KEYS) == ([], frozenset())
        b.close()
        assert claims.read_bytes() == b""


def test_the_file_of_claims_stays_short(
    tmp_path: Path, client: SharedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_server, "_FEW_LINES", 10)
    client.take(KEYS[:1])
    for _ in range(50):
        client.take(KEYS[1:])
        client.release(KEYS[1:])
    claims = tmp_path / "shared.duckdb.claims"
    assert len(claims.read_bytes()) < 2_000
    assert KEYS[0].encode() in claims.read_bytes()


def test_keys_are_claimed_by_one_run_until_they_are_answered_or_released(
    tmp_path: Path, server: LedgerServer
) -> None:
    with two_runs(server.url) as (a, b):
        assert a.take(KEYS[:3]) == ([], frozenset())
        assert b.take(KEYS) == ([], frozenset(KEYS[:3]))
        assert a.take(KEYS[:3]) == ([], frozenset())
        a.send([Entry(call("What?"), {KEYS[0]: b"tin"})])
        found, elsewhere = b.take(KEYS)
        assert [dict(entry.replies) for entry in found] == [{KEYS[0]: b"tin"}]
        assert elsewhere == {KEYS[1], KEYS[2]}
        a.release(KEYS[1:2])
        assert b.take(KEYS[1:3]) == ([], frozenset(KEYS[2:3]))
        a.close()
        assert b.take(KEYS[2:3]) == ([], frozenset())


def test_a_run_out_of_reach_claims_its_keys_again(
    tmp_path: Path, started: Callable[..., Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_ledger, "RENEW_SECONDS", 0.1)
    ledger = started()
    with two_runs(ledger.url) as (a, b):
        many = [content_key("many", number) for number in range(200)]
        a.take(many)
        ledger.kill()
        # As though the run had not been heard of for a minute.
        (tmp_path / "shared.duckdb.claims").unlink()
        started(ledger.port)
        # What the other run takes in the meantime stays with it.
        theirs = [key for key in many if not b.take([key]).elsewhere]
        assert theirs != many
        ours = [key for key in many if key not in theirs]
        # It learns so when the answer to its claim arrives.
        wait_for(lambda: not any(a.holds([key]) for key in theirs))
        assert a.holds(ours)


def test_a_run_does_not_ask_what_another_one_took_over(
    tmp_path: Path,
    endpoint: Endpoint,
    server: LedgerServer,
    client: SharedLedger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_ledger, "RENEW_SECONDS", 0.05)
    [machine] = machines(tmp_path, endpoint, server.url, 1)
    prepared = prepare(machine.path)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_pipeline, prepared)
        wait_for(lambda: endpoint.hits > 1)
        # The ledger has not heard of the run for a minute, and another one comes.
        claimed = dict(server._claims._run_of)
        for of in set(claimed.values()):
            server._claims.end(of)
        client.take([*claimed])
        time.sleep(2)
        assert endpoint.hits < len(NAMES) - 2
        client.close()
        assert run.result(timeout=60).run_id
    assert endpoint.hits == len(NAMES)


def test_a_run_that_is_stopped_does_not_wait_for_the_ledger(tmp_path: Path) -> None:
    stop = threading.Event()
    ledger = SharedLedger("http://127.0.0.1:9", stop)
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    with pytest.raises(StoppedError):
        ledger.take(KEYS)
    assert time.monotonic() - began < 20
    ledger.close()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(prompt=TEXTS, replies=st.dictionaries(st.sampled_from(KEYS), st.binary()))
def test_an_entry_is_what_its_line_says(prompt: str, replies: dict[str, bytes]) -> None:
    entry = Entry(call(prompt), replies, KEYS[1])
    line = entry_line(entry)
    assert line.splitlines() == [line[:-1]]
    assert read_entry(line) == entry
    unknown = Entry(None, replies)
    assert read_entry(entry_line(unknown)) == unknown
