"""Stages that work in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from flows.engine.errors import StoppedError
from flows.engine.workers import Workers
from stages.decompose import DecomposeClaims
from stages.match import LexicalMatch
from stages.rows import Sample
from stages.tables import TableError, build

ROOT = Path(__file__).parents[2]
STAGE = DecomposeClaims(of="response", coverage="high")


def part(number: int, text: str | None = None) -> dict[str, pl.DataFrame]:
    response = text or f"Person {number} was born in Paris. It was in 19{number:02}."
    return {"samples": build(Sample, [{"sample_id": str(number), "response": response}])}


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def workers(stop: threading.Event) -> Iterator[Workers]:
    started = Workers(stop, count=2)
    yield started
    started.close()


def test_parts_come_in_order_and_are_what_the_stage_makes_of_them(workers: Workers) -> None:
    parts = [part(number) for number in range(7)]
    made = list(workers.make(STAGE, parts))
    assert len(made) == 7
    assert all(m.equals(STAGE.make(p, {})) for m, p in zip(made, parts, strict=True))
    assert all(m.height == 2 for m in made)


def test_no_more_parts_are_taken_than_are_at_work_and_one(workers: Workers) -> None:
    taken = 0

    def parts() -> Iterator[dict[str, pl.DataFrame]]:
        nonlocal taken
        for number in range(9):
            taken += 1
            yield part(number)

    counts = [taken for _ in workers.make(STAGE, parts())]
    assert counts == [3, 4, 5, 6, 7, 8, 9, 9, 9]


def test_what_a_stage_raises_is_raised_here_and_says_where(workers: Workers) -> None:
    wrong = {"samples": pl.DataFrame({"sample_id": ["a"]})}
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="response") as caught:
        list(workers.make(STAGE, [part(0), wrong, part(1)]))
    (note,) = caught.value.__notes__
    assert note.startswith("in a worker process:\nTraceback")
    assert [m.height for m in workers.make(STAGE, [part(2)])] == [2]


def test_a_wrong_table_is_a_table_error_as_ever(workers: Workers) -> None:
    matching = LexicalMatch(against="reference", unit="text")
    sample = {"sample_id": "a", "response": "It rains.", "reference": "It rains."}
    twice = {"samples": build(Sample, [sample, sample])}
    with pytest.raises(TableError) as serial:
        matching.make(twice, {})
    with pytest.raises(TableError) as caught:
        list(workers.make(matching, [twice]))
    assert str(caught.value) == str(serial.value)


def test_a_run_that_is_stopped_does_not_wait_for_its_workers(
    workers: Workers, stop: threading.Event
) -> None:
    list(workers.make(STAGE, [part(0), part(1)]))
    for process in workers.processes:
        process.send_signal(signal.SIGSTOP)
    made = workers.make(STAGE, [part(2), part(3)])
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(StoppedError):
        next(made)
    workers.close()
    assert [process.returncode for process in workers.processes] == [-9, -9]


def test_a_worker_that_dies_is_said_so(workers: Workers) -> None:
    list(workers.make(STAGE, [part(0), part(1)]))
    for process in workers.processes:
        process.kill()
    with pytest.raises(RuntimeError) as caught:
        list(workers.make(STAGE, [part(2)]))
    assert str(caught.value) == (
        "a worker process ended (exit code -9) while it made decompose_claims"
    )


ABANDONED = """
import os, threading
from flows.engine.workers import Workers
from tests.flows import test_workers as t
list(Workers(threading.Event(), count=1).make(t.STAGE, [t.part(0)]))
os._exit(0)
"""


def test_workers_end_when_whoever_started_them_is_gone() -> None:
    command = [sys.executable, "-c", ABANDONED]
    # A worker holds on to this pipe for as long as it lives.
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=True, cwd=ROOT)
    assert done.stderr == b""


def test_ctrl_c_is_not_for_them(workers: Workers) -> None:
    list(workers.make(STAGE, [part(0)]))
    assert [os.getpgid(process.pid) for process in workers.processes] != [os.getpgid(0)]
