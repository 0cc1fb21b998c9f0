import random
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.store import ledger as ledger_module
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import content_key

ONE, TWO, THREE = (content_key("test", n) for n in range(3))


def test_replies_are_recalled_by_key(tmp_path: Path) -> None:
    ledger = Ledger(Store(tmp_path / "s.duckdb"))
    assert ledger.recall([ONE]) == {}
    ledger.remember("tool", {ONE: b"\0first", TWO: b""})
    ledger.remember("tool", {ONE: b"\0first"})
    assert ledger.recall([ONE, TWO, THREE, ONE]) == {ONE: b"\0first", TWO: b""}


def test_the_newest_reply_since_a_time_is_recalled(tmp_path: Path) -> None:
    ledger = Ledger(Store(tmp_path / "s.duckdb"))
    ledger.remember("tool", {ONE: b"old", TWO: b"old"})
    moment = now()
    assert ledger.recall([ONE, TWO], since=moment) == {}
    ledger.remember("tool", {ONE: b"new"})
    assert ledger.recall([ONE, TWO], since=moment) == {ONE: b"new"}
    assert ledger.recall([ONE, TWO]) == {ONE: b"new", TWO: b"old"}


def test_the_store_is_not_opened_without_keys(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    assert Ledger(store).recall([]) == {}
    assert not store.path.exists()


def test_a_reply_over_the_memory_limit_is_written_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    writing = Store.writing

    def noted(store: Store, *, memory: str | None = None) -> Any:
        asked.append(memory)
        return writing(store, memory=memory)

    monkeypatch.setattr(Store, "writing", noted)
    monkeypatch.setattr(ledger_module, "_MEMORY", "16MB")
    ledger = Ledger(Store(tmp_path / "s.duckdb"))
    ledger.remember("tool", {ONE: b"small"})
    large = random.Random(0).randbytes(20_000_000)
    ledger.remember("tool", {TWO: large})
    assert ledger.recall([ONE, TWO]) == {ONE: b"small", TWO: large}
    assert asked == ["16MB", "16MB", None]
