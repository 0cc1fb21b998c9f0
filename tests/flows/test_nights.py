"""Thirty nights on one store, in each of which a few samples change."""

import json
import random
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.pruning import Retention, prune
from claimflow.flows.store.store import Store
from claimflow.stages.rows import row_kinds

NIGHTS = 30
SAMPLES = 60
CHANGED = 2

PIPELINE = """
name: nights
samples: {path: samples.jsonl}
store: store.duckdb
read_copy: false
steps:
  response_claims: {use: decompose_claims, of: response, judge: embedded}
  reference_matches: {use: lexical_match, against: reference, unit: text}
  deterministic_correctness: {use: deterministic_correctness}
  summary: {use: summarize_scores}
"""


def sentence(drawn: random.Random) -> str:
    return (
        f"The tower {drawn.randint(1, 999)} of the town was opened in {drawn.randint(1800, 2020)}."
    )


def night(folder: Path, samples: Sequence[dict[str, Any]]) -> None:
    (folder / "p.yaml").write_text(PIPELINE, "utf-8")
    lines = "".join(json.dumps(one) + "\n" for one in samples)
    (folder / "samples.jsonl").write_text(lines, "utf-8")
    with chdir(folder), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        assert main(["run", "p.yaml"]) == 0


def latest(store: Store) -> dict[str, pl.DataFrame]:
    """The rows of the latest run by kind, without the ids of runs and calls."""
    with store.reading() as connection:
        return {
            row.table: read_table(
                connection, f"SELECT * EXCLUDE run_id FROM latest.{row.table} ORDER BY ALL"
            )
            for row in row_kinds()
        }


def digests(store: Store) -> list[tuple[object, ...]]:
    """The digest of each table of the latest run."""
    with store.reading() as connection:
        return connection.execute(
            "SELECT step, digest FROM audit.run_steps JOIN audit.latest_runs USING (run_id) "
            "JOIN (SELECT artifact_id, digest FROM audit.artifacts) USING (artifact_id) "
            "ORDER BY ALL"
        ).fetchall()


def stored_rows(store: Store) -> dict[str, int]:
    with store.reading() as connection:
        counts = {
            row.table: connection.execute(f"SELECT count(*) FROM stored.{row.table}").fetchall()
            for row in row_kinds()
        }
    return {table: int(found[0][0]) for table, found in counts.items()}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a store with thirty nights, and the samples of the last one."""
    folder = tmp_path_factory.mktemp("nights")
    drawn = random.Random(0)
    samples = [
        {"sample_id": f"s{n}", "response": sentence(drawn), "reference": sentence(drawn)}
        for n in range(SAMPLES)
    ]
    for number in range(NIGHTS):
        if number:
            for sample in drawn.sample(samples, CHANGED):
                sample["response"] = f"{sentence(drawn)} {sentence(drawn)}"
        night(folder, samples)
    return folder, samples


def test_each_night_adds_the_rows_of_the_samples_that_changed(
    nights: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, _ = nights
    store = Store(folder / "store.duckdb")
    rows = stored_rows(store)
    changed = CHANGED * (NIGHTS - 1)
    assert rows["samples"] == SAMPLES + changed
    assert rows["sentence_matches"] == SAMPLES + changed
    # A response has one sentence at first, and two once it has changed.
    assert rows["claims"] == SAMPLES + 2 * changed
    with store.reading() as connection:
        seen = connection.execute("SELECT count(*) FROM samples").fetchall()
        lists = connection.execute(
            "SELECT count(DISTINCT part) FROM audit.artifact_parts"
        ).fetchall()
    assert seen == [(SAMPLES * NIGHTS,)]
    # All tables of a night have one list of segments; those of summaries have their own.
    assert lists == [(2 * NIGHTS,)]
    assert check_store(store).faults == []


def test_the_last_night_is_the_same_as_in_a_store_of_its_own(
    nights: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, samples = nights
    night(tmp_path, samples)
    old, new = Store(folder / "store.duckdb"), Store(tmp_path / "store.duckdb")
    assert digests(old) == digests(new)
    alone = latest(new)
    for table, rows in latest(old).items():
        assert rows.equals(alone[table]), table
    assert stored_rows(new)["samples"] == SAMPLES


def test_pruned_nights_leave_the_rows_of_the_others(
    nights: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, _ = nights
    store = Store(tmp_path / "store.duckdb")
    store.path.write_bytes((folder / "store.duckdb").read_bytes())
    before = latest(store)
    prune(store, Retention(runs=2))
    after = latest(store)
    for table, rows in before.items():
        assert rows.equals(after[table]), table
    assert SAMPLES < stored_rows(store)["samples"] <= SAMPLES + CHANGED
    assert check_store(store).faults == []
