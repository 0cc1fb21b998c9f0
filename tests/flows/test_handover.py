import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.store import connection
from claimflow.flows.store.connection import Handover


@pytest.fixture
def opened() -> list[bool]:
    """For every time that the file was opened, whether only to read."""
    return []


@pytest.fixture
def file(tmp_path: Path, opened: list[bool]) -> Handover:
    def connect(read_only: bool) -> duckdb.DuckDBPyConnection:
        opened.append(read_only)
        return duckdb.connect(tmp_path / "f.duckdb", read_only)

    made = Handover(connect)
    with made.turn(read_only=False) as connection:
        connection.execute("CREATE TABLE seen (n INTEGER)")
    opened.clear()
    return made


@pytest.fixture
def all_here() -> threading.Event:
    """Whether everybody who is going to wait does so."""
    return threading.Event()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_HELD", 60.0)


def in_line(file: Handover, all_here: threading.Event, *turns: Callable[[], None]) -> None:
    """Let threads take `turns`, each waiting already when the one before has its own."""
    threads = []
    for turn in turns:
        threads.append(threading.Thread(target=turn))
        threads[-1].start()
        while file._waiting + (file._owner is not None) < len(threads):
            time.sleep(0.001)
    all_here.set()
    for thread in threads:
        thread.join()


def take(file: Handover, all_here: threading.Event, *, read_only: bool, seconds: float = 0) -> None:
    with file.turn(read_only=read_only) as connection:
        all_here.wait()
        time.sleep(seconds)
        connection.execute("FROM seen").fetchall()


def test_nobody_waits_so_the_file_is_closed(
    file: Handover, opened: list[bool], all_here: threading.Event
) -> None:
    all_here.set()
    take(file, all_here, read_only=True)
    take(file, all_here, read_only=True)
    assert opened == [True, True]


def test_who_waits_is_handed_the_open_file(
    file: Handover, opened: list[bool], all_here: threading.Event
) -> None:
    in_line(
        file,
        all_here,
        lambda: take(file, all_here, read_only=False),
        lambda: take(file, all_here, read_only=True),
        lambda: take(file, all_here, read_only=False),
    )
    assert opened == [False]


def test_a_writer_is_not_handed_what_can_only_be_read(
    file: Handover, opened: list[bool], all_here: threading.Event
) -> None:
    in_line(
        file,
        all_here,
        lambda: take(file, all_here, read_only=True),
        lambda: take(file, all_here, read_only=False),
    )
    assert opened == [True, False]


def test_after_a_while_others_get_a_chance(
    file: Handover,
    opened: list[bool],
    all_here: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_HELD", 0.1)
    in_line(
        file,
        all_here,
        lambda: take(file, all_here, read_only=True, seconds=0.2),
        lambda: take(file, all_here, read_only=True),
    )
    assert opened == [True, True]


def test_what_broke_is_not_handed_on(
    file: Handover, opened: list[bool], all_here: threading.Event
) -> None:
    def broken() -> None:
        with pytest.raises(RuntimeError), file.turn(read_only=False) as connection:
            connection.begin()
            connection.execute("INSERT INTO seen VALUES (1)")
            all_here.wait()
            raise RuntimeError

    in_line(file, all_here, broken, lambda: take(file, all_here, read_only=True))
    assert opened == [False, True]
    with file.turn(read_only=True) as connection:
        assert connection.execute("FROM seen").fetchall() == []


def test_alone_nobody_has_the_file_open(
    file: Handover, tmp_path: Path, all_here: threading.Event
) -> None:
    def alone() -> None:
        with file.alone(), duckdb.connect(tmp_path / "f.duckdb", config={"threads": 1}):
            pass

    in_line(file, all_here, lambda: take(file, all_here, read_only=True), alone, alone)


def test_nobody_waits_for_himself(file: Handover) -> None:
    with (
        file.turn(read_only=True),
        pytest.raises(RuntimeError, match="open already"),
        file.turn(read_only=True),
    ):
        pass


def test_what_is_temporary_is_not_handed_on(
    file: Handover, opened: list[bool], all_here: threading.Event
) -> None:
    def mine() -> None:
        with file.turn(read_only=True) as connection:
            connection.execute("CREATE TEMP TABLE mine AS SELECT 1")
            all_here.wait()

    in_line(file, all_here, mine, mine)
    assert opened == [True]
