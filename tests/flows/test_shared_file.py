import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.store import connection
from claimflow.flows.store.connection import OpenFile, SharedFile


@pytest.fixture
def opened() -> list[bool]:
    """For every time that the file was opened, whether it was for reading only."""
    return []


@pytest.fixture
def file(tmp_path: Path, opened: list[bool]) -> SharedFile:
    def open_file(read_only: bool, config: Mapping[str, Any] | None) -> OpenFile:
        opened.append(read_only)
        return OpenFile(tmp_path / "f.duckdb", read_only=read_only, config=config)

    made = SharedFile(open_file)
    with made.connection(read_only=False) as connection:
        connection.execute("CREATE TABLE seen (n INTEGER)")
    opened.clear()
    return made


@pytest.fixture
def waiting() -> threading.Event:
    """Set when every thread that will wait is waiting."""
    return threading.Event()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_SHARED_SECONDS", 60.0)


def take_turns(file: SharedFile, waiting: threading.Event, *turns: Callable[[], None]) -> None:
    """Run `turns` in threads, each of which waits while the one before has the file."""
    threads = []
    for turn in turns:
        threads.append(threading.Thread(target=turn))
        threads[-1].start()
        while file._waiting + (file._owner is not None) < len(threads):
            time.sleep(0.001)
    waiting.set()
    for thread in threads:
        thread.join()


def use(file: SharedFile, waiting: threading.Event, *, read_only: bool, seconds: float = 0) -> None:
    with file.connection(read_only=read_only) as connection:
        waiting.wait()
        time.sleep(seconds)
        connection.execute("FROM seen").fetchall()


def test_the_file_is_closed_when_no_thread_waits(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    waiting.set()
    use(file, waiting, read_only=True)
    use(file, waiting, read_only=True)
    assert opened == [True, True]


def test_a_waiting_thread_gets_the_open_file(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    take_turns(
        file,
        waiting,
        lambda: use(file, waiting, read_only=False),
        lambda: use(file, waiting, read_only=True),
        lambda: use(file, waiting, read_only=False),
    )
    assert opened == [False]


def test_a_writer_does_not_get_a_file_opened_for_reading(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    take_turns(
        file,
        waiting,
        lambda: use(file, waiting, read_only=True),
        lambda: use(file, waiting, read_only=False),
    )
    assert opened == [True, False]


def test_after_a_while_the_file_is_closed_for_other_processes(
    file: SharedFile,
    opened: list[bool],
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_SHARED_SECONDS", 0.1)
    take_turns(
        file,
        waiting,
        lambda: use(file, waiting, read_only=True, seconds=0.2),
        lambda: use(file, waiting, read_only=True),
    )
    assert opened == [True, True]


def test_after_an_error_the_file_is_closed(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    def broken() -> None:
        with pytest.raises(RuntimeError), file.connection(read_only=False) as connection:
            connection.begin()
            connection.execute("INSERT INTO seen VALUES (1)")
            waiting.wait()
            raise RuntimeError

    take_turns(file, waiting, broken, lambda: use(file, waiting, read_only=True))
    assert opened == [False, True]
    with file.connection(read_only=True) as connection:
        assert connection.execute("FROM seen").fetchall() == []


def test_with_settings_of_its_own_the_file_is_opened_again(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    def exclusive() -> None:
        with file.connection(read_only=True, config={"threads": 1}) as connection:
            assert connection.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
            waiting.wait()

    take_turns(file, waiting, lambda: use(file, waiting, read_only=True), exclusive, exclusive)
    assert opened == [True, True, True]


def test_a_thread_cannot_open_the_store_twice(file: SharedFile) -> None:
    with (
        file.connection(read_only=True),
        pytest.raises(RuntimeError, match="open already"),
        file.connection(read_only=True),
    ):
        pass


def test_temporary_tables_are_not_passed_on(
    file: SharedFile, opened: list[bool], waiting: threading.Event
) -> None:
    def mine() -> None:
        with file.connection(read_only=True) as connection:
            connection.execute("CREATE TEMP TABLE mine AS SELECT 1")
            waiting.wait()

    take_turns(file, waiting, mine, mine)
    assert opened == [True]
