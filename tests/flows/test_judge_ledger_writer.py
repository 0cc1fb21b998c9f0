import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import StoreBusyError
from claimflow.flows.judge import ledger_writer as ledger_writer_module
from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.ledger_writer import LedgerWriter, recover_journals
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key
from tests.flows.locked_store import LockedStore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.duckdb", wait=30)
    with store.writing():
        pass
    return store


def call(number: int, **more: Any) -> Call:
    usual = {"run_id": "r", "step": "s", "judge": "j", "model": "m", "api_base": None}
    ids = {"call_id": content_key("call", number), "request": content_key("request", number)}
    texts = {"repeats": None, "rung": "schema", "system": None, "prompt": "?"}
    texts["asked_at"] = datetime(2026, 1, 1) + timedelta(seconds=number)
    return Call(**usual, **ids, **texts)._replace(**more)


def reply(number: int) -> dict[str, bytes]:
    return {content_key("key", number): f"reply {number}".encode()}


def use(
    store: Store, work: Callable[[LedgerWriter], Awaitable[None]], *, redact: bool = False
) -> None:
    async def main() -> None:
        await work(LedgerWriter(Ledger(store), redact=redact))

    asyncio.run(main())


def rows(store: Store, query: str) -> list[tuple[Any, ...]]:
    with store.reading() as connection:
        return connection.execute(query).fetchall()


def ids(store: Store) -> list[str]:
    found = rows(store, "SELECT call_id::VARCHAR FROM audit.calls ORDER BY asked_at")
    return [name for (name,) in found]


def unsaved(store: Store) -> int:
    return len(list(store.path.parent.glob("*.journal")))


async def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


def test_what_was_added_is_on_file_when_saved_returns(store: Store) -> None:
    async def work(writer: LedgerWriter) -> None:
        await writer.saved()
        for number in range(20):
            writer.add(call(number), reply(number))
        await writer.saved()
        assert ids(store) == [call(number).call_id for number in range(20)]
        writer.add(call(20), {})
        await writer.saved()

    use(store, work)
    assert len(ids(store)) == 21
    assert rows(store, "SELECT count(*), count(DISTINCT made_at) FROM audit.replies") == [(20, 1)]


def test_it_is_saved_though_no_call_waits(store: Store) -> None:
    async def work(writer: LedgerWriter) -> None:
        for number in range(3):
            writer.add(call(number), reply(number))
            await until(lambda n=number: len(ids(store)) > n)

    use(store, work)


def test_a_call_closes_another_of_the_same_moment_or_of_an_earlier_one(store: Store) -> None:
    first, second, third = call(0, open=True), call(1, open=True), call(2, open=True)

    async def work(writer: LedgerWriter) -> None:
        writer.add(first, {})
        writer.add(second, {})
        writer.add(third, {}, closes=second.call_id)
        await writer.saved()
        writer.add(call(3), {}, closes=first.call_id)
        await writer.saved()

    use(store, work)
    assert rows(store, "SELECT open FROM audit.calls ORDER BY asked_at") == [
        (False,), (False,), (True,), (False,),
    ]  # fmt: skip


def test_redacted_calls_hold_no_texts(store: Store) -> None:
    async def work(writer: LedgerWriter) -> None:
        writer.add(call(0, prompt="a secret", reply="a secret", system="a secret"), reply(0))
        await writer.saved()

    use(store, work, redact=True)
    assert "a secret" not in str(rows(store, "FROM audit.calls"))


def test_what_was_added_is_in_a_journal_at_once(store: Store) -> None:
    async def work(writer: LedgerWriter) -> None:
        writer.add(call(0), reply(0))
        assert unsaved(store) == 1
        with LockedStore(store.path):
            # What is being written has a journal of its own.
            await until(lambda: writer._write_began_at is not None)
            writer.add(call(1), reply(1))
            assert unsaved(store) == 2
        await writer.saved()

    use(store, work)
    assert unsaved(store) == 0
    assert ids(store) == [call(0).call_id, call(1).call_id]
    assert rows(store, "SELECT count(DISTINCT key) FROM audit.replies") == [(2,)]


def test_nothing_more_is_asked_while_a_writing_takes_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_writer_module, "_LATE_AFTER", 0.5)

    async def work(writer: LedgerWriter) -> None:
        await writer.keep_up()
        with LockedStore(store.path):
            writer.add(call(0), {})
            await until(lambda: writer._write_began_at is not None)
            assert unsaved(store) == 1
            await until(lambda: time.monotonic() > (writer._write_began_at or 0) + 0.5)
            waiting = asyncio.create_task(writer.keep_up())
            await asyncio.sleep(0.1)
            assert not waiting.done()
        await waiting
        assert ids(store) == [call(0).call_id]

    use(store, work)


def test_a_store_locked_for_too_long_is_reported_and_its_calls_are_kept(store: Store) -> None:
    impatient = Store(store.path, wait=0.5)

    async def work(writer: LedgerWriter) -> None:
        with LockedStore(store.path):
            writer.add(call(0), reply(0))
            with pytest.raises(StoreBusyError, match="another process"):
                await writer.saved()
        with pytest.raises(StoreBusyError):
            await writer.keep_up()
        writer.add(call(1), reply(1))
        with pytest.raises(StoreBusyError):
            await writer.saved()

    use(impatient, work)
    assert ids(store) == []
    recover_journals(Ledger(store))
    assert ids(store) == [call(0).call_id, call(1).call_id]
