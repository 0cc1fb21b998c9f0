"""The demo pipelines on a store that the first release made: nothing is made or asked for again."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.store import Store
from tests.endpoint.server import Endpoint, serve

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "tests/data/first_release/demo.duckdb.gz"
PIPELINES = ("quickstart.yaml", "llm/quickstart.yaml", "llm/nightly.yaml")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A copy of the store that the first release made of the demo pipelines."""
    path = tmp_path / "demo.duckdb"
    path.write_bytes(gzip.decompress(FIRST.read_bytes()))
    return Store(path)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serve() as endpoint:
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield endpoint


def rows(store: Store, sql: str) -> set[tuple[object, ...]]:
    with store.reading() as connection:
        return set(connection.execute(sql).fetchall())


def test_every_step_is_reused(store: Store, endpoint: Endpoint) -> None:
    for name in PIPELINES:
        ran = run_pipeline(prepare(ROOT / "configs" / name), store)
        assert [step for step, result in ran.steps.items() if not result.reused] == []
    assert endpoint.requests == []
    assert check_store(store).faults == []


def test_without_the_tables_the_replies_give_the_same_tables(
    store: Store, endpoint: Endpoint
) -> None:
    made = "SELECT fingerprint, digest, row_count, failures FROM audit.artifacts"
    replies = "SELECT key, reply, made_at FROM audit.replies"
    with store.writing():
        pass  # A store of an older schema version cannot be read before it is migrated.
    before = rows(store, made), rows(store, replies)
    with store.writing() as connection:
        connection.execute("DELETE FROM audit.artifacts")
    for name in PIPELINES:
        run_pipeline(prepare(ROOT / "configs" / name), store)
    assert (rows(store, made), rows(store, replies)) == before
    assert endpoint.requests == []
