import fcntl
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import StoreFullError
from claimflow.flows.judge.calls import Call, call_table
from claimflow.flows.judge.ledger_writer import Entry, Journal, recover_journals
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Its store has a name that means something else to a shell."""
    return Ledger(Store(tmp_path / "s[1]*.duckdb"))


def call(number: int, **more: Any) -> Call:
    usual = {"run_id": "r", "step": "s", "judge": "j", "model": "m", "api_base": None}
    ids = {"call_id": content_key("call", number), "request": content_key("request", number)}
    texts = {"repeats": None, "rung": "schema", "system": None, "prompt": "?"}
    texts["asked_at"] = datetime(2026, 1, 1) + timedelta(seconds=number)
    return Call(**usual, **ids, **texts)._replace(**more)


def key(number: int) -> str:
    return content_key("key", number)


def leave(ledger: Ledger, *calls: Call, closes: str | None = None) -> Path:
    """A journal that a writer left behind."""
    journal = Journal(ledger.store)
    for number, one in enumerate(calls):
        journal.add(Entry(one, {key(number): b"\xff reply %d" % number}, closes))
    (path,) = set(ledger.store.path.parent.glob("*.journal")) - KNOWN
    journal.keep()
    KNOWN.add(path)
    return path


KNOWN: set[Path] = set()


def journals(ledger: Ledger) -> list[str]:
    return sorted(path.name for path in ledger.store.path.parent.glob("*.journal"))


def on_file(ledger: Ledger, column: str) -> list[Any]:
    with ledger.store.reading() as connection:
        query = f"SELECT {column} FROM audit.calls ORDER BY asked_at"
        return [value for (value,) in connection.execute(query).fetchall()]


def test_what_was_left_is_taken_in_whole_and_its_file_is_gone(ledger: Ledger) -> None:
    first = call(0, reply="one \u2028\n\x85 line", cost=Decimal("0.000000123"), attempts=2)
    leave(ledger, first, call(1, reply="two", error="\ud800"))
    assert recover_journals(ledger) == 2
    assert journals(ledger) == []
    assert on_file(ledger, "reply") == ["one \u2028\n\x85 line", "two"]
    assert on_file(ledger, "cost") == [Decimal("0.000000123"), None]
    assert on_file(ledger, "asked_at")[0] == first.asked_at
    assert ledger.recall([key(0), key(1)]) == {key(0): b"\xff reply 0", key(1): b"\xff reply 1"}
    assert recover_journals(ledger) == 0


def test_an_entry_is_in_the_file_as_soon_as_it_is_added(ledger: Ledger) -> None:
    journal = Journal(ledger.store)
    journal.add(Entry(call(0), {}, None))
    (name,) = journals(ledger)
    assert call(0).call_id in (ledger.store.path.parent / name).read_text()
    journal.discard()
    assert journals(ledger) == []


def test_a_journal_whose_writer_lives_is_left_alone(ledger: Ledger) -> None:
    journal = Journal(ledger.store)
    journal.add(Entry(call(0), {}, None))
    assert recover_journals(ledger) == 0
    assert len(journals(ledger)) == 1
    journal.keep()
    assert recover_journals(ledger) == 1


def test_a_line_without_its_end_is_left_out(ledger: Ledger) -> None:
    path = leave(ledger, call(0), call(1))
    path.write_bytes(path.read_bytes()[:-5])
    assert recover_journals(ledger) == 1
    assert on_file(ledger, "call_id::VARCHAR") == [call(0).call_id]


def test_a_call_that_is_on_file_already_is_not_put_there_again(ledger: Ledger) -> None:
    ledger.remember("judge", {}, calls=call_table([call(0)]))
    leave(ledger, call(0), call(1))
    leave(ledger, call(1), call(2))
    recover_journals(ledger)
    assert on_file(ledger, "call_id::VARCHAR") == [call(n).call_id for n in range(3)]


def test_a_call_closes_one_of_an_earlier_journal(ledger: Ledger) -> None:
    first = call(0, reply="wrong", open=True)
    leave(ledger, first)
    leave(ledger, call(1), closes=first.call_id)
    recover_journals(ledger)
    assert on_file(ledger, "open") == [False, False]


def test_journals_of_another_store_are_not_touched(ledger: Ledger) -> None:
    other = Ledger(Store(ledger.store.path.with_name("s1.duckdb")))
    leave(other, call(0))
    assert recover_journals(ledger) == 0
    assert recover_journals(other) == 1


def test_no_room_is_one_clear_line(ledger: Ledger) -> None:
    nowhere = Store(ledger.store.path.parent / "nowhere" / "s.duckdb")
    with pytest.raises(StoreFullError) as caught:
        Journal(nowhere)
    assert str(caught.value) == (
        f"{nowhere.path}: a file beside it cannot be written (No such file or directory); "
        "make room and run again; what is on file is kept"
    )


def test_a_journal_is_locked_before_it_has_its_name(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    lock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *how: (seen.append(journals(ledger)), lock(*how)))
    Journal(ledger.store).discard()
    assert seen == [[]]
