import fcntl
import json
import os
import resource
import signal
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import StoreFullError
from claimflow.flows.judge.calls import Call, call_table
from claimflow.flows.judge.ledger_writer import Entry, Journal, recover_journals
from claimflow.flows.store.integrity import check_store
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


def test_what_was_added_before_the_disk_was_full_is_whole(ledger: Ledger) -> None:
    journal = Journal(ledger.store)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    added = 0
    try:
        # No multiple of the length of a line: the system takes the beginning of one.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_001, most))
        with pytest.raises(StoreFullError):
            for number in range(100):
                journal.add(Entry(call(number), {}, None))
                added += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, ignored)
    journal.add(Entry(call(100), {}, None))
    journal.keep()
    assert added
    assert recover_journals(ledger) == added + 1


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


ABSURD = {
    "tokens beyond every column": {"prompt_tokens": 10**30, "cached_tokens": 5 * 10**19},
    "tokens that are no whole numbers": {"prompt_tokens": 1e30, "completion_tokens": 1.5},
    "negative numbers": {"completion_tokens": -5, "cost": Decimal(-5), "attempts": -1},
    "a cost beyond its column": {"cost": Decimal("1e30"), "seconds": -1.0},
    "not a number": {"cost": Decimal("NaN"), "seconds": float("nan")},
    "texts": {"prompt_tokens": "7", "cost": "free", "seconds": "long", "attempts": "two"},
}
"""Numbers that the first release wrote into a journal as they came, and others."""


def counts(ledger: Ledger) -> list[Any]:
    columns = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost")
    return [on_file(ledger, column) for column in columns]


@pytest.mark.parametrize("name", ABSURD)
def test_a_journal_with_absurd_numbers_is_taken_in_with_those_unknown(
    ledger: Ledger, name: str
) -> None:
    usual: dict[str, Any] = {"prompt_tokens": 9, "cached_tokens": 0, "completion_tokens": 2}
    leave(ledger, call(0, **usual | ABSURD[name]), call(1, **usual, cost=Decimal("0.5")))
    assert recover_journals(ledger) == 2
    known = [9, 0, 2, Decimal("0.5")]
    for column, (found, good), value in zip(
        usual | {"cost": None}, counts(ledger), known, strict=True
    ):
        assert good == value
        assert found == (None if column in ABSURD[name] or column == "cost" else value)
    seconds, attempts = on_file(ledger, "seconds"), on_file(ledger, "attempts")
    assert seconds == [0.0, 0.0]
    assert attempts == [0, 0]
    assert journals(ledger) == []


def fields(**more: Any) -> list[Any]:
    """A call as a journal has it, with other values."""
    return json.loads(json.dumps(call(5)._replace(**more), default=str))  # type: ignore[no-any-return]


def line(call: Any, replies: Any = None, closes: Any = None) -> bytes:
    return json.dumps([call, replies or {}, closes]).encode()


WRONG = {
    "another version": line([*fields(), "more"]),
    "no call": line({"call_id": 1}),
    "no list": b'{"call": 1}',
    "an id that is none": line(fields(call_id="x")),
    "an id in other signs": line(fields(request="{" + key(1) + "}")),
    "no model": line(fields(model=None)),
    "a prompt that is no text": line(fields(prompt=5)),
    "a lone surrogate": line(fields(prompt="\ud800")),
    "a date that is none": line(fields(asked_at="99999-01-01")),
    "a time zone": line(fields(asked_at="2026-01-01T00:00:00+14:00")),
    "a key that is none": line(fields(), {"x": "aGk="}),
    "replies that are no list": line(fields(), [1]),
    "a reply that is not base64": line(fields(), {key(3): "?"}),
    "a reply that is a number": line(fields(), {key(3): 5}),
    "closes what is no call": line(fields(), None, "x"),
    "not JSON": b"hello",
    "binary": bytes(range(255, 10, -1)),
    "nested": b"[" * 100_000,
    "a huge number": b"[[1" + b"1" * 5000,
    "zeros of a power failure": bytes(512),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_call_is_set_aside_and_the_rest_is_saved(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = leave(ledger, call(0), call(1))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, WRONG[name], second, b""]))
    before = path.read_bytes()
    assert recover_journals(ledger) == 2
    assert ledger.recall([key(0), key(1)]) == {key(0): b"\xff reply 0", key(1): b"\xff reply 1"}
    (aside,) = path.parent.glob("*.unreadable")
    assert aside.name == f"{path.name}.unreadable"
    assert aside.read_bytes() == before
    lines = "1 of 3 lines are no calls of this version of claimflow; they are not saved"
    assert [record.message for record in caplog.records] == [f"{aside}: {lines}"]
    assert recover_journals(ledger) == 0
    (fault,) = check_store(ledger.store).faults
    assert str(fault) == (
        f"audit.calls: file {aside.name}: calls of a run that could not be saved; open it with the "
        "version of claimflow that wrote it, under its name without the ending, or delete it"
    )


def test_a_file_without_any_call_is_set_aside(ledger: Ledger) -> None:
    path = ledger.store.path.with_name(f"{ledger.store.path.name}.1-2.journal")
    path.write_bytes(b"\xff\xfe\x00 no line ends here")
    assert recover_journals(ledger) == 0
    assert [one.name for one in path.parent.glob("*.unreadable")] == [f"{path.name}.unreadable"]


def test_what_only_has_the_name_of_a_journal_ends_no_run(ledger: Ledger) -> None:
    leave(ledger, call(0))
    ledger.store.path.with_name(f"{ledger.store.path.name}.1-2.journal").mkdir()
    os.mkfifo(ledger.store.path.with_name(f"{ledger.store.path.name}.1-3.journal"))
    assert recover_journals(ledger) == 1
