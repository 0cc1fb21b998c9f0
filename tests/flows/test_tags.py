"""Names of runs: given, moved, listed, forgotten, and found by every command that takes a run."""

import getpass
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError
from claimflow.flows.store import runs
from claimflow.flows.store.pruning import Retention, prune
from claimflow.flows.store.results import all_runs, chosen_run
from claimflow.flows.store.runs import (
    NOISE_SUFFIX,
    add_tag,
    find_run,
    remove_tag,
    tags,
)
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import put_run, samples


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.duckdb")


def put(store: Store, pipeline: str = "p", status: runs.Ending = "done") -> str:
    run_id, _ = runs.start_run(store, pipeline=pipeline, config_path="p.yaml", config="")
    runs.end_run(store, run_id, status)
    return run_id


def test_the_newest_row_of_a_tag_counts(store: Store) -> None:
    first, second = put(store), put(store)
    add_tag(store, first, "main")
    add_tag(store, first, "v1.0")
    add_tag(store, second, "main")
    assert tags(store).select("tag", "run_id").rows() == [("main", second), ("v1.0", first)]
    assert (find_run(store, "main"), find_run(store, "v1.0")) == (second, first)
    assert all_runs(store).select("run_id", "tags").rows() == [(second, "main"), (first, "v1.0")]


def test_a_run_with_several_tags_has_one_row(store: Store) -> None:
    run = put(store)
    for tag in ("b", "a"):
        add_tag(store, run, tag)
    assert all_runs(store)["tags"].to_list() == ["a, b"]


def test_a_removed_tag_leaves_its_run(store: Store) -> None:
    run = put(store)
    add_tag(store, run, "main")
    remove_tag(store, "main")
    assert find_run(store, "main") is None
    assert find_run(store, run) == run
    with pytest.raises(InputError, match="there is no tag 'main'; known are none"):
        remove_tag(store, "main")


def test_who_gave_and_removed_a_tag_is_recorded(store: Store) -> None:
    run = put(store)
    add_tag(store, run, "main", who="ann")
    assert tags(store).select("tag", "who").rows() == [("main", "ann")]
    remove_tag(store, "main", who="bob")
    assert tags(store).is_empty()
    add_tag(store, run, "main")
    assert tags(store)["who"].to_list() == [getpass.getuser()]
    with store.reading() as connection:
        rows = connection.execute("SELECT who, removed FROM audit.tags ORDER BY tagged_at")
        assert rows.fetchall()[:2] == [("ann", False), ("bob", True)]


def test_a_removed_tag_does_not_return_when_its_last_run_is_pruned(store: Store) -> None:
    runs_made = [put(store) for _ in range(3)]
    add_tag(store, runs_made[2], "main")
    add_tag(store, runs_made[0], "main")
    remove_tag(store, "main")
    prune(store, Retention(runs=1))
    assert find_run(store, runs_made[0]) is None
    assert find_run(store, runs_made[2]) == runs_made[2]
    assert tags(store).is_empty()


def test_latest_and_previous_are_done_runs(store: Store) -> None:
    old, other, new = put(store), put(store, "another"), put(store)
    put(store, status="failed")
    put(store, f"p{NOISE_SUFFIX}", "measured")
    assert find_run(store, "latest") == new
    assert find_run(store, "previous") == old
    assert find_run(store, "previous", before=other) is None
    assert find_run(store, "previous", before=old) is None
    assert find_run(store, "latest", pipeline="another") == other
    assert find_run(store, "latest", pipeline="nobody") is None
    # Compared with a run, it is that of the same pipeline.
    assert find_run(store, "latest", before=other) == other


def test_the_beginning_of_an_id_names_the_newest_run(store: Store) -> None:
    put(store)
    second = put(store)
    assert find_run(store, second[:8]) == second
    assert find_run(store, "1999") is None


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("latest", "'latest' always means a run of its own; choose another name"),
        ("previous", "'previous' always means a run of its own; choose another name"),
        ("a b", "'a b' cannot be a tag; use up to 100 letters, digits, points, _ and -"),
        ("", "'' cannot be a tag; use up to 100 letters, digits, points, _ and -"),
        ("ä", "'ä' cannot be a tag; use up to 100 letters, digits, points, _ and -"),
        ("2026", "'2026' looks like a run id; choose a name such as main"),
        ("20261122-1", "'20261122-1' looks like a run id; choose a name such as main"),
    ],
)
def test_names_that_cannot_be_tags_are_refused(store: Store, tag: str, message: str) -> None:
    run = put(store)
    with pytest.raises(InputError) as caught:
        add_tag(store, run, tag)
    assert str(caught.value) == f"tag: {message}"


def test_the_error_of_an_unknown_run_names_the_nearest_tag(store: Store) -> None:
    add_tag(store, put(store), "main")
    with pytest.raises(InputError, match="there is no run 'mian'; did you mean 'main'"):
        chosen_run(store, "mian")


def test_the_command_adds_lists_and_removes_tags(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--store", str(store.path))
    run = put(store)
    assert main(["tag", "latest", "main", *where]) == 0
    assert main(["tag", "--list", *where]) == 0
    assert main(["runs", "--live", *where]) == 0
    assert main(["tag", "--remove", "main", *where]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["main", "is", "run", run]
    assert lines[3][:2] == ["main", run]
    assert lines[6][:2] == [run, "main"]
    assert lines[7] == ["tag", "main", "is", "removed"]


def test_the_command_without_a_run_and_a_name_is_an_error(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store)
    assert main(["tag", "latest", "--store", str(store.path)]) == 2
    printed = "claimflow: tag: needs a run and a name; write claimflow tag RUN NAME, or --list\n"
    assert capsys.readouterr().err == printed


def test_show_and_explain_accept_a_tag(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--live", "--store", str(store.path))
    table = samples(["birth"], response="old")
    add_tag(store, put_run(store, {"samples": table}), "main")
    put_run(store, {"samples": samples(["birth"], response="new")})
    assert main(["show", "main", *where]) == 0
    assert f"run {find_run(store, 'main')}: 1 sample" in capsys.readouterr().out
    assert main(["explain", "birth", "--run", "main", *where]) == 0
    assert "response: old" in capsys.readouterr().out
