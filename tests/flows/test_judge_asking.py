"""Two runs at once on one store: what both ask is asked once."""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.judge.embedding import EndpointEmbedder
from claimflow.flows.judge.key_locks import KeyLocks
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint
from claimflow.stages.rows import content_key
from tests.endpoint import faults
from tests.endpoint.server import Endpoint, serve
from tests.flows.forks import Forks, Process
from tests.flows.judged import FORM, QUESTIONS, Judged, about, judge_of, session

NAMES = [f"n{number}" for number in range(24)]
KEYS = [content_key("key", number) for number in range(5)]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve(latency=0.3) as endpoint:
        yield endpoint


@pytest.fixture
def judged(tmp_path: Path, endpoint: Endpoint) -> Judged:
    judged = Judged(tmp_path, endpoint)
    judged.write(NAMES, max_concurrency=4)
    return judged


def start(forks: Forks, judged: Judged, *options: str) -> Process:
    return forks.run(judged.path.parent, "run", judged.path.name, *options)


def wait_for(happened: Callable[[], Any], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def check_finished(judged: Judged, runs: list[Process]) -> None:
    """Both runs have all verdicts, and every call is stored once."""
    for run in runs:
        assert run.code() == 0, run.err()
    found = judged.ask("SELECT run_id, count(*) FROM verdicts WHERE verdict NOT NULL GROUP BY 1")
    assert sorted(count for _, count in found) == [3 * len(NAMES)] * len(runs)
    assert judged.ask("SELECT count(*) - count(DISTINCT call_id) FROM audit.calls") == [(0,)]
    assert not list(judged.path.parent.glob("*.journal"))


def test_two_runs_at_once_ask_what_one_of_them_would(
    judged: Judged, forks: Forks, endpoint: Endpoint
) -> None:
    runs = [start(forks, judged) for _ in range(2)]
    check_finished(judged, runs)
    assert endpoint.hits == len(NAMES)


def test_a_run_that_starts_later_waits_for_answers_in_flight(
    judged: Judged, forks: Forks, endpoint: Endpoint
) -> None:
    first = start(forks, judged)
    wait_for(lambda: endpoint.hits > len(NAMES) // 3)
    check_finished(judged, [first, start(forks, judged)])
    assert endpoint.hits == len(NAMES)


def test_the_other_run_goes_on_where_a_killed_one_stopped(
    judged: Judged, forks: Forks, endpoint: Endpoint
) -> None:
    first, second = (start(forks, judged) for _ in range(2))
    wait_for(lambda: endpoint.hits > len(NAMES) // 2)
    first.send(signal.SIGKILL)
    assert first.code() == -signal.SIGKILL
    gone = time.monotonic()
    assert second.code() == 0, second.err()
    assert len(endpoint.hits_by_key) == len(NAMES)
    # What the killed run had in flight is lost to it, and so is what had come a moment ago.
    again = [one for one in endpoint.requests if endpoint.hits_by_key[one.key] > 1]
    assert all(one.replied is None or one.replied > gone - 0.2 for one in again)
    assert len(again) <= 2 * 4
    assert judged.ask("SELECT count(*) FROM latest.verdicts WHERE verdict NOT NULL") == [(72,)]


def test_what_failed_in_one_run_is_asked_by_the_other(
    judged: Judged, forks: Forks, endpoint: Endpoint
) -> None:
    endpoint.behaviour.fault = faults.where(about("n5"), faults.first(1, faults.status(400)))
    runs = [start(forks, judged) for _ in range(2)]
    assert sorted(run.code() for run in runs) == [0, 1]
    assert sorted(endpoint.hits_by_key.values()) == [1] * (len(NAMES) - 1) + [2]


def test_a_fresh_run_asks_everything_itself(
    judged: Judged, forks: Forks, endpoint: Endpoint
) -> None:
    runs = [start(forks, judged), start(forks, judged, "--fresh")]
    check_finished(judged, runs)
    assert set(endpoint.hits_by_key.values()) <= {1, 2}
    assert endpoint.hits >= len(NAMES)
    fresh = judged.ask(
        "SELECT count(*) FROM audit.calls JOIN (SELECT run_id FROM audit.runs "
        "ORDER BY (SELECT count(*) FROM audit.calls WHERE calls.run_id = runs.run_id) DESC LIMIT 1)"
        " USING (run_id)"
    )
    assert fresh == [(len(NAMES),)]


def test_a_run_that_waits_can_be_stopped(judged: Judged, forks: Forks, endpoint: Endpoint) -> None:
    endpoint.behaviour.fault = faults.hang()
    judged.write(NAMES[:4], max_concurrency=4, timeout=60)
    first = start(forks, judged)
    wait_for(lambda: endpoint.hits == 4)
    second = start(forks, judged)
    wait_for(lambda: judged.ask("SELECT count(*) FROM audit.runs") == [(2,)])
    waiting = (
        f"{judged.store.path}: waiting for answers that another run on this store is asking for"
    )
    wait_for(lambda: waiting in second.err())
    second.send(signal.SIGINT)
    started = time.monotonic()
    assert second.code() == 130
    assert time.monotonic() - started < 10
    assert endpoint.hits == 4
    first.send(signal.SIGKILL)
    first.code()


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """The results of two threads that start at the same time."""
    barrier = threading.Barrier(2)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_two_sessions_of_one_process_ask_once(tmp_path: Path, endpoint: Endpoint) -> None:
    def ask(_: int) -> Any:
        with judge_of(endpoint, tmp_path / "s.duckdb") as judge:
            return judge.ask(QUESTIONS, FORM, step="a")

    one, other = in_threads(ask)
    assert one == other
    assert len(one) == len(QUESTIONS)
    assert endpoint.hits == 1


def test_texts_are_embedded_once(tmp_path: Path, endpoint: Endpoint) -> None:
    texts = [f"text {number}" for number in range(12)]
    settings = EmbeddingEndpoint(
        provider="litellm",
        model="hosted_vllm/fake",
        api_base=endpoint.api_base,
        timeout=10,
        texts_per_call=2,
        max_concurrency=2,
    )

    def embed(_: int) -> Any:
        with session(tmp_path / "s.duckdb") as opened:
            return EndpointEmbedder(settings, opened).embed(texts, step="s")

    one, other = in_threads(embed)
    assert one.height == other.height == len(texts)
    assert endpoint.hits == 6


def locked_elsewhere(path: Path, key: str) -> bool:
    """Whether another process finds `key` locked."""
    child = os.fork()
    if child == 0:
        os._exit(not KeyLocks(path).take([key]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_keys_are_locked_for_other_sessions_and_processes(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    one, other = KeyLocks(store), KeyLocks(store)
    assert one.take(KEYS[:3])
    assert not other.take(KEYS[2:])
    assert other.take(KEYS[3:])
    assert [locked_elsewhere(store, key) for key in KEYS] == [True] * 5
    before = other.changes()
    one.release(KEYS[:1])
    assert other.changes() > before
    assert [locked_elsewhere(store, key) for key in KEYS] == [False] + [True] * 4
    # The file stays open for the other session: closing it would drop all locks.
    one.close()
    assert [locked_elsewhere(store, key) for key in KEYS] == [False] * 3 + [True] * 2
    other.close()
    assert not locked_elsewhere(store, KEYS[4])


def test_a_session_sees_no_change_of_its_own(tmp_path: Path) -> None:
    locks = KeyLocks(tmp_path / "s.duckdb")
    before = locks.changes()
    assert locks.take(KEYS)
    locks.release(KEYS)
    assert locks.changes() == before
    locks.close()


@pytest.mark.parametrize(
    "content",
    [b"b" * 25 * 40, bytes(range(256)) * 100, b"." * 4_999, b"b" + b"\xff" * 8 + bytes(16)],
)
def test_what_no_session_wrote_into_the_log_is_not_read(tmp_path: Path, content: bytes) -> None:
    store = tmp_path / "s.duckdb"
    (tmp_path / "s.duckdb.asking").write_bytes(content)
    locks = KeyLocks(store)
    assert locks.take(KEYS)
    assert all(locked_elsewhere(store, key) for key in KEYS)
    locks.close()
    assert not any(locked_elsewhere(store, key) for key in KEYS)


def test_many_keys_take_no_more_locks_of_the_kernel_than_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each call it looks through all locks of a file; the log is read once."""
    held: set[int] = set()
    most, read, lockf, pread = [0], [0], fcntl.lockf, os.pread

    def count_locks(descriptor: int, command: int, length: int, start: int) -> None:
        lockf(descriptor, command, length, start)
        (held.discard if command == fcntl.LOCK_UN else held.add)(start)
        most[0] = max(most[0], len(held))

    def count_bytes(descriptor: int, length: int, start: int) -> bytes:
        found = pread(descriptor, length, start)
        read[0] += len(found)
        return found

    store = tmp_path / "s.duckdb"
    ours, theirs = ([content_key(who, number) for number in range(1_000)] for who in "ab")
    go_on, wait = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(wait)
        other = KeyLocks(store)
        for key in theirs:
            other.take([key])
        os.read(go_on, 1)
        os._exit(0)
    # It has noted its begin and its keys.
    asking = tmp_path / "s.duckdb.asking"
    locks = KeyLocks(store)
    try:
        wait_for(lambda: asking.is_file() and asking.stat().st_size >= 25 * 1_001)
        monkeypatch.setattr(fcntl, "lockf", count_locks)
        monkeypatch.setattr(os, "pread", count_bytes)
        assert not locks.take([ours[0], theirs[0]])
        assert all(locks.take([key]) for key in ours)
        assert most[0] <= 3
        assert read[0] == 25 * 1_001
    finally:
        os.close(wait)
        os.waitpid(child, 0)
    # What it held ends with it.
    assert all(locks.take([key]) for key in theirs)
    locks.release(ours)
    locks.close()
    assert asking.stat().st_size == 0


def test_without_locks_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(37, "No locks available")

    locks = KeyLocks(tmp_path / "s.duckdb")
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "lockf", no_locks)
        assert locks.take(KEYS)
        locks.close()
    nowhere = KeyLocks(tmp_path / "nowhere" / "s.duckdb")
    assert nowhere.take(KEYS)
    nowhere.close()
