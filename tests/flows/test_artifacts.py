from pathlib import Path

import polars as pl
import pytest

from claimflow.flows.store.artifacts import (
    Artifact,
    ArtifactWriter,
    Provenance,
    find_artifact,
    read_artifact,
)
from claimflow.flows.store.fingerprint import Digest
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Score, content_key
from claimflow.stages.tables import build

KEY = content_key("step", "example")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.duckdb")


def scores(*names: str, status: str = "scored") -> pl.DataFrame:
    score = 0.5 if status == "scored" else None
    fixed = {"metric": "m", "score": score, "status": status, "reason": None}
    return build(Score, [fixed | {"sample_id": name} for name in names])


def draft(store: Store, shards: int, run_id: str = "run") -> ArtifactWriter:
    making = Provenance(run_id, KEY, KEY, {}, "example", 1, {"word": "ä"}, {"model": {"name": "m"}})
    return ArtifactWriter(store, Score, making, shards=shards)


def found(store: Store) -> Artifact | None:
    with store.reading() as connection:
        return find_artifact(connection, KEY)


def test_a_table_is_found_after_its_last_part_is_written(store: Store) -> None:
    table = draft(store, 2)
    table.add(0, scores("a", "b"))
    assert found(store) is None
    table.add(1, scores("c"))
    artifact = found(store)
    assert artifact == table.artifact()
    digest = Digest(Score)
    digest.add(scores("a", "b", "c"))
    assert artifact._replace(artifact_id="") == ("", digest.value(), "scores", 2, 3, 0)


def test_a_table_is_read_as_a_whole_by_part_and_by_column(store: Store) -> None:
    table = draft(store, 2)
    table.add(0, scores("a", "b"))
    table.add(1, scores("c"))
    with store.reading() as connection:
        whole = read_artifact(connection, Score, table.artifact())
        part = read_artifact(connection, Score, table.artifact(), shard=1, columns=("sample_id",))
    assert whole.equals(scores("a", "b", "c"))
    assert part.rows() == [("c",)]


def test_a_table_without_rows_is_stored(store: Store) -> None:
    table = draft(store, 1)
    table.add(0, scores())
    assert found(store) == table.artifact()


def test_a_table_with_failures_is_stored_but_not_found(store: Store) -> None:
    table = draft(store, 1)
    table.add(0, pl.concat([scores("a"), scores("b", status="failed")]))
    assert table.artifact().failures == 1
    assert found(store) is None
    with store.reading() as connection:
        assert read_artifact(connection, Score, table.artifact()).height == 2


def test_the_newest_of_equal_tables_is_found(store: Store) -> None:
    for _ in range(2):
        table = draft(store, 1)
        table.add(0, scores("a"))
    assert found(store) == table.artifact()


def test_a_table_started_again_replaces_its_unfinished_parts(store: Store) -> None:
    draft(store, 2, "other").add(0, scores("z"))
    draft(store, 2).add(0, scores("a", "b"))
    again = draft(store, 2)
    again.add(0, scores("a", "b"))
    again.add(1, scores("c"))
    with store.reading() as connection:
        kept = connection.execute(
            "SELECT run_id, digest IS NOT NULL, count(*) FROM audit.artifacts "
            "JOIN audit.artifact_segments USING (artifact_id) "
            "JOIN stored.scores USING (segment) GROUP BY ALL ORDER BY run_id"
        ).fetchall()
    assert kept == [("other", False, 1), ("run", True, 3)]
