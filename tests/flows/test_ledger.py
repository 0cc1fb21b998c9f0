from pathlib import Path

from flows.engine.ledger import Ledger
from flows.engine.store import Store
from stages.keys import content_key

ONE, TWO, THREE = (content_key("test", n) for n in range(3))


def test_what_was_remembered_is_recalled_by_key_alone(tmp_path: Path) -> None:
    ledger = Ledger(Store(tmp_path / "s.duckdb"))
    assert ledger.recall([ONE]) == {}
    ledger.remember("tool", {ONE: b"\0first", TWO: b""})
    ledger.remember("tool", {ONE: b"\0first"})
    assert ledger.recall([ONE, TWO, THREE, ONE]) == {ONE: b"\0first", TWO: b""}


def test_nothing_is_asked_of_the_store_for_no_keys(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    assert Ledger(store).recall([]) == {}
    assert not store.path.exists()
