"""Tables kept aside until they are read."""

import threading

import polars as pl
import pytest

from claimflow.flows.samples import buffer
from claimflow.flows.samples.buffer import TableQueue

TABLES = [pl.DataFrame({"a": [number, number + 1]}) for number in range(20)]


@pytest.mark.parametrize("limit", [0, 2_000, 1 << 20])
def test_tables_come_out_in_their_order_wherever_they_were_kept(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "_SPILL_BYTES", limit)
    queue = TableQueue()
    for table in TABLES:
        queue.add(table)
    queue.close()
    assert len(queue) == len(TABLES)
    assert all(one.equals(table) for one, table in zip(queue, TABLES, strict=True))
    assert list(queue) == []


def test_a_reader_waits_for_the_tables_of_another_thread() -> None:
    queue, read = TableQueue(), threading.Event()

    def add() -> None:
        queue.add(TABLES[0])
        read.wait()
        queue.add(TABLES[1])
        queue.close()

    thread = threading.Thread(target=add)
    thread.start()
    tables = iter(queue)
    assert next(tables).equals(TABLES[0])
    read.set()
    assert next(tables).equals(TABLES[1])
    assert list(tables) == []
    thread.join()


def test_an_error_comes_after_the_tables() -> None:
    queue = TableQueue()
    queue.add(TABLES[0])
    queue.close(ValueError("lost"))
    tables = iter(queue)
    assert next(tables).equals(TABLES[0])
    with pytest.raises(ValueError, match="lost"):
        next(tables)
