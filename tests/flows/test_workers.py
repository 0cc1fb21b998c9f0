"""Local worker processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.errors import StoppedError, WorkersError
from claimflow.flows.runner.workers.local import LocalWorkers
from claimflow.stages.base import Stage
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.rows import Sample
from claimflow.stages.tables import TableError, build

ROOT = Path(__file__).parents[2]
STAGE = DecomposeClaims(of="response", coverage="high")


def part(number: int, text: str | None = None) -> dict[str, pl.DataFrame]:
    response = text or f"Person {number} was born in Paris. It was in 19{number:02}."
    return {"samples": build(Sample, [{"sample_id": str(number), "response": response}])}


def make(workers: LocalWorkers, parts: Iterable[Any], stage: Stage = STAGE) -> Iterator[Any]:
    return workers.each(Stage.make, ((stage, tables, {}) for tables in parts), what=stage.use)


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalWorkers]:
    """Two workers that no test stops."""
    started = LocalWorkers(threading.Event(), count=2)
    yield started
    started.close()


@pytest.fixture
def own_workers(stop: threading.Event) -> Iterator[LocalWorkers]:
    """Two workers of one test."""
    started = LocalWorkers(stop, count=2)
    yield started
    started.close()


def test_parts_come_in_order_and_equal_those_of_this_process(workers: LocalWorkers) -> None:
    parts = [part(number) for number in range(7)]
    made = list(make(workers, parts))
    assert len(made) == 7
    assert all(m.equals(STAGE.make(p, {})) for m, p in zip(made, parts, strict=True))
    assert all(m.height == 2 for m in made)


def test_one_part_more_than_there_are_workers_is_read(workers: LocalWorkers) -> None:
    taken = 0

    def parts() -> Iterator[dict[str, pl.DataFrame]]:
        nonlocal taken
        for number in range(9):
            taken += 1
            yield part(number)

    counts = [taken for _ in make(workers, parts())]
    assert counts == [3, 4, 5, 6, 7, 8, 9, 9, 9]


def test_an_error_of_a_stage_is_raised_here_with_a_note(workers: LocalWorkers) -> None:
    wrong = {"samples": pl.DataFrame({"sample_id": ["a"]})}
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="response") as caught:
        list(make(workers, [part(0), wrong, part(1)]))
    (note,) = caught.value.__notes__
    assert note.startswith("in a worker process:\nTraceback")
    assert [m.height for m in make(workers, [part(2)])] == [2]


def test_a_wrong_table_is_a_table_error(workers: LocalWorkers) -> None:
    matching = LexicalMatch(against="reference", unit="text")
    sample = {"sample_id": "a", "response": "It rains.", "reference": "It rains."}
    twice = {"samples": build(Sample, [sample, sample])}
    with pytest.raises(TableError) as serial:
        matching.make(twice, {})
    with pytest.raises(TableError) as caught:
        list(make(workers, [twice], matching))
    assert str(caught.value) == str(serial.value)


def test_a_run_that_is_stopped_does_not_wait_for_its_workers(
    own_workers: LocalWorkers, stop: threading.Event
) -> None:
    list(own_workers.each(len, [("ab",), ("abc",)], what="x"))
    for process in own_workers.processes:
        process.send_signal(signal.SIGSTOP)
    made = make(own_workers, [part(2), part(3)])
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(StoppedError):
        next(made)
    own_workers.close()
    assert [process.returncode for process in own_workers.processes] == [-9, -9]


def test_the_chunk_of_a_worker_that_dies_is_made_by_another(own_workers: LocalWorkers) -> None:
    list(own_workers.each(len, [("ab",), ("abc",)], what="x"))
    for process in own_workers.processes:
        process.kill()
    parts = [part(number) for number in range(4)]
    made = list(make(own_workers, parts))
    assert all(m.equals(STAGE.make(p, {})) for m, p in zip(made, parts, strict=True))
    assert [process.wait() for process in own_workers.processes[:2]] == [-9, -9]
    assert len(own_workers.processes) == 4


def test_a_chunk_that_no_worker_survives_is_given_up(own_workers: LocalWorkers) -> None:
    with pytest.raises(WorkersError) as caught:
        list(own_workers.each(os._exit, [(7,)], what="lexical_match"))
    assert str(caught.value) == (
        "3 worker processes, one after the other, ended while they made lexical_match "
        "(exit code 7); is there enough memory?"
    )
    assert list(own_workers.each(len, [("ab",)], what="more")) == [2]


def test_a_few_chunks_are_not_worth_a_process(stop: threading.Event) -> None:
    assert [LocalWorkers(stop, 2).worth(chunks) for chunks in (0, 4, 5)] == [False, False, True]
    assert not LocalWorkers(stop, 1).worth(1000)


ABANDONED = """
import os, threading
from claimflow.flows.runner.workers.local import LocalWorkers
from tests.flows import test_workers as t
list(t.make(LocalWorkers(threading.Event(), count=1), [t.part(0)]))
os._exit(0)
"""


def test_workers_end_with_their_parent_process() -> None:
    command = [sys.executable, "-c", ABANDONED]
    # A worker holds on to this pipe for as long as it lives.
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=True, cwd=ROOT)
    assert done.stderr == b""


def test_ctrl_c_does_not_reach_workers(workers: LocalWorkers) -> None:
    list(make(workers, [part(0)]))
    assert [os.getpgid(process.pid) for process in workers.processes] != [os.getpgid(0)]
