"""Rows and their order do not depend on how a table is split into parts."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.runner import table_builder
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.workers import local
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import run_steps


class PartProgress(RunObserver):
    """Records the progress of each step."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def step_progress(self, step: str, done: int, total: int) -> None:
        self.told.append((step, done, total))


def tables(config: Path, watch: PartProgress) -> dict[str, pl.DataFrame]:
    """The table of every step of a run, with the part of each row."""
    prepared = prepare(config)
    run = run_pipeline(prepared, observer=watch)
    kinds = {step.name: step.stage.makes.table for step in prepared.pipeline.steps}
    steps = run_steps(run.store, run.run_id)
    found = {}
    with run.store.reading() as connection:
        for step, artifact in steps.select("step", "artifact_id").iter_rows():
            kind = kinds.get(step, "samples")
            query = (
                f"SELECT shard, rows.* EXCLUDE segment FROM stored.{kind} AS rows "
                f"JOIN audit.artifact_segments USING (segment) WHERE artifact_id = $id "
                "ORDER BY shard, place, rows.rowid"
            )
            found[step] = read_table(connection, query, id=artifact)
    return found


def test_groups_and_workers_make_the_same_rows(
    write_small: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(group: int, worth_workers: int) -> dict[str, pl.DataFrame]:
        for size in ("GROUP", "AT_ONCE"):
            monkeypatch.setattr(table_builder, size, group)
        monkeypatch.setattr(local, "WORTH", worth_workers)
        folder = tmp_path / f"{group} {worth_workers}"
        folder.mkdir()
        watch = PartProgress()
        found = tables(write_small(folder), watch)
        told = sorted(told for told in watch.told if told[0] != "summary")
        # What workers make with another step is stored before its turn comes.
        early = {"deterministic_faithfulness"} if worth_workers == 3 else set()
        assert told == sorted(
            (step, n, 3)
            for step in found
            if step != "summary"
            for n in ((3,) if step in early else (1, 2, 3))
        )
        return found

    monkeypatch.setattr(table_builder, "SHARD", 1)
    one_by_one = made(1, 99)
    assert all(table.height for table in one_by_one.values())
    for group, worth_workers in ((2, 99), (5, 99), (2, 3)):
        grouped = made(group, worth_workers)
        assert grouped.keys() == one_by_one.keys()
        for step, table in one_by_one.items():
            assert grouped[step].equals(table), (group, worth_workers, step)
        assert grouped["precision"]["shard"].to_list() == [0, 1, 2]
