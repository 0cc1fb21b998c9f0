"""Disk space is estimated before a run starts, and a run that needs more is refused."""

import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import StoreFullError
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.readiness import SPARE, check_disk_space, space_needed
from claimflow.flows.store.store import Store


def steps(config: Path) -> list[str]:
    return [step.name for step in prepare(config).pipeline.steps]


def test_without_a_run_the_size_of_the_samples_counts(small: Path) -> None:
    prepared = prepare(small)
    need = space_needed(prepared, Store(small.with_name("small.duckdb")), wanted=steps(small))
    texts = sum(frame.estimated_size() for frame in prepared.samples.shards(10))
    assert need.source == "the size of the samples"
    assert (need.tables, need.copy) == (texts, 2 * texts)


def test_the_last_run_gives_the_estimate(small: Path) -> None:
    with chdir(small.parent):
        assert main(["run", "small.yaml"]) == 0
    store = Store(small.with_name("small.duckdb"))
    size = store.path.stat().st_size
    whole = space_needed(prepare(small), store, wanted=steps(small))
    assert whole.source == "the last run of small"
    assert whole.tables == size, "all that is on file is of that run"
    assert whole.copy == 4 * size
    third = space_needed(prepare(small, limit=1), store, wanted=steps(small))
    assert third.tables == pytest.approx(whole.tables / 3, abs=4)
    some = space_needed(prepare(small), store, wanted=["precision"])
    assert some.tables < whole.tables / 3

    text = small.read_text("utf-8")
    small.write_text(f"{text}read_copy: false\n", "utf-8")
    assert space_needed(prepare(small), store, wanted=steps(small)).copy == 0


def test_the_message_has_the_sizes(small: Path) -> None:
    store = Store(small.parent / "new" / "folder" / "s.duckdb")
    prepared, wanted = prepare(small), steps(small)
    need = space_needed(prepared, store, wanted=wanted)
    enough = need.tables + need.copy + SPARE
    check_disk_space(prepared, store, wanted=wanted, free=enough)
    with pytest.raises(StoreFullError) as printed:
        check_disk_space(prepared, store, wanted=wanted, free=enough - 1)
    assert str(printed.value) == (
        f"{store.path}: its disk has 100 MB free, and the run may need 100 MB "
        f"({need.tables / 1000:,.0f} kB for its tables by the size of the samples, "
        f"{need.copy / 1000:,.0f} kB for the read copy, 100 MB to spare); make room or do without "
        "the copy (read_copy: false)"
    )
    with pytest.raises(StoreFullError) as printed:
        check_disk_space(prepared, store, wanted=wanted, free=need.tables + SPARE - 1)
    assert str(printed.value).endswith(" to spare); make room")
    with store.writing():
        pass
    with pytest.raises(StoreFullError) as printed:
        check_disk_space(prepared, store, wanted=wanted, free=0)
    assert str(printed.value).endswith("; make room (claimflow prune removes old runs)")


def test_a_run_is_refused_before_it_starts(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(small.parent):
        assert main(["run", "small.yaml"]) == 0
        # Sparse: it takes no room, but a copy of it would.
        os.truncate("small.duckdb", shutil.disk_usage(small).free + 10**9)
        capsys.readouterr()
        assert main(["run", "small.yaml"]) == 3
    assert "free, and the run may need " in capsys.readouterr().err
    with Store(small.with_name("small.duckdb")).reading() as connection:
        assert connection.execute("SELECT count(*) FROM audit.runs").fetchall() == [(1,)]
