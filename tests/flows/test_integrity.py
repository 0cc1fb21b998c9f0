"""A store damaged in each way that `claimflow verify` looks for."""

import shutil
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import duckdb
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.store import Store


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, write_small: Callable[[Path], Path]) -> Path:
    """The store of the small pipeline, run once."""
    folder = tmp_path_factory.mktemp("finished")
    write_small(folder)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), chdir(folder):
        assert main(["run", "small.yaml"]) == 0
    return folder / "small.duckdb"


@pytest.fixture
def store(finished: Path, tmp_path: Path) -> Store:
    return Store(Path(shutil.copy(finished, tmp_path / "small.duckdb")))


def artifact(store: Store, step: str) -> str:
    with store.reading() as connection:
        query = "SELECT artifact_id::VARCHAR FROM audit.run_steps WHERE step = $step"
        return str(connection.execute(query, {"step": step}).fetchall()[0][0])


def damaged(store: Store, statement: str) -> list[str]:
    with duckdb.connect(store.path) as connection:
        assert connection.execute(statement).fetchall()[0][0] > 0
    with store.reading() as connection:
        run_id = str(connection.execute("SELECT run_id FROM audit.runs").fetchall()[0][0])
    return [str(fault).replace(run_id, "RUN") for fault in check_store(store).faults]


def test_an_unchanged_store_has_no_faults(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--store", str(store.path)]) == 0
    assert capsys.readouterr().out == "8 tables, 37 rows, all right\n"


def test_rows_that_were_changed_are_found(store: Store) -> None:
    found = damaged(
        store,
        "UPDATE stored.scores SET score = 0.5 WHERE sample_id = 'birth' "
        "AND metric = 'factual_correctness'",
    )
    assert len(found) == 1
    assert found[0].startswith(
        f"scores: artifact {artifact(store, 'precision')}: its rows are not those that were "
        "written (digest "
    )


@pytest.mark.parametrize("change", ["length = 1000000000000", "length = 0", "place = -1"])
def test_a_range_of_segments_that_cannot_be_is_named(store: Store, change: str) -> None:
    with duckdb.connect(store.path) as connection:
        connection.execute(f"UPDATE audit.parts SET {change} WHERE part = 1")
    (fault,) = check_store(store).faults
    assert fault.table == "audit.parts"
    assert fault.place.startswith("part 1, place ")
    assert fault.what.endswith(" segments from 1 are not there; no table was checked")


def test_a_list_that_is_lost_gives_its_number_to_no_other(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    assert main(["run", "small.yaml"]) == 0
    with duckdb.connect("small.duckdb") as connection:
        ((newest,),) = connection.execute("SELECT max(part) FROM audit.artifact_parts").fetchall()
        connection.execute("DELETE FROM audit.parts")
    samples = Path("samples.jsonl")
    samples.write_text(samples.read_text("utf-8").replace("1879", "Ulm"), "utf-8")
    assert main(["run", "small.yaml"]) == 0
    with duckdb.connect("small.duckdb") as connection:
        parts = connection.execute("SELECT min(part) FROM audit.parts").fetchall()
    assert parts == [(newest + 1,)]


def test_samples_in_another_order_are_found(store: Store) -> None:
    with duckdb.connect(store.path) as connection:
        connection.execute(
            "CREATE TABLE turned AS SELECT part, 9 - place - further, segment + further, 1 "
            "FROM (SELECT *, unnest(range(length)) AS further FROM audit.parts)"
        )
        connection.execute("DELETE FROM audit.parts")
        connection.execute("INSERT INTO audit.parts FROM turned")
        connection.execute("DROP TABLE turned")
    places = {fault.place for fault in check_store(store).faults}
    with store.reading() as connection:
        every = connection.execute("SELECT artifact_id::VARCHAR FROM audit.artifacts").fetchall()
    # The summary names no sample, and one sample alone has a verdict.
    assert places <= {f"artifact {one}" for (one,) in every}
    assert f"artifact {artifact(store, 'samples')}" in places
    assert f"artifact {artifact(store, 'precision')}" in places


def test_rows_of_a_sample_in_another_order_are_found(store: Store) -> None:
    with duckdb.connect(store.path) as connection:
        connection.execute("CREATE TEMP TABLE claims AS SELECT * FROM stored.claims")
        connection.execute("DELETE FROM stored.claims")
        connection.execute("INSERT INTO stored.claims SELECT * FROM claims ORDER BY rowid DESC")
    places = {fault.place for fault in check_store(store).faults}
    # The tower alone has two claims.
    assert places == {f"artifact {artifact(store, 'reference_claims')}"}


def test_missing_rows_are_found_with_their_references(store: Store) -> None:
    found = damaged(store, "DELETE FROM stored.claims WHERE claim = 'Einstein was born in 1879.'")
    assert [line for line in found if line.startswith("claims")] == [
        f"claims: artifact {artifact(store, 'response_claims')}: has 1 row, and 2 are on record"
    ]
    (verdict,) = [line for line in found if line.startswith("verdicts")]
    assert verdict.startswith(
        "verdicts: run RUN step response_in_reference: 1 row names a claim that is not there ("
    )


def test_rows_of_a_missing_sample_are_found(store: Store) -> None:
    found = damaged(store, "DELETE FROM stored.samples WHERE sample_id = 'tower'")
    assert (
        "claims: run RUN step reference_claims: 2 rows name a sample that is not there (tower)"
        in found
    )
    assert "scores: run RUN step precision: 1 row names a sample that is not there (tower)" in found


def test_a_duplicate_key_is_found(store: Store) -> None:
    found = damaged(
        store,
        "INSERT INTO stored.scores SELECT * FROM stored.scores "
        "WHERE metric = 'factual_correctness' AND sample_id = 'birth'",
    )
    place = f"scores: artifact {artifact(store, 'precision')}"
    assert f"{place}: 1 row too many with the same key (sample_id, metric)" in found
    assert f"{place}: has 4 rows, and 3 are on record" in found


def test_a_wrong_count_of_failures_is_found(store: Store) -> None:
    step = artifact(store, "precision")
    found = damaged(store, f"UPDATE audit.artifacts SET failures = 2 WHERE artifact_id = '{step}'")
    assert found == [f"scores: artifact {step}: has 0 failed rows, and 2 are on record"]


def test_nan_and_infinity_are_found(store: Store) -> None:
    found = damaged(store, "UPDATE stored.verdicts SET p_entailed = 'NaN'")
    place = f"verdicts: artifact {artifact(store, 'response_in_reference')}"
    assert f"{place}: NaN or infinity in 'p_entailed' of 2 rows" in found


def test_a_missing_call_is_found(store: Store) -> None:
    call = "00000000-0000-0000-0000-000000000001"
    found = damaged(store, f"UPDATE stored.verdicts SET call_id = '{call}'")
    place = f"verdicts: artifact {artifact(store, 'response_in_reference')}"
    assert f"{place}: 2 rows name a call that is not there ({call})" in found


def test_a_missing_call_of_a_vote_is_found(store: Store) -> None:
    call = "00000000-0000-0000-0000-000000000001"
    ballot = f'[{{"verdict": "entailed", "call_id": "{call}"}}, {{"call_id": null}}]'
    found = damaged(store, f"UPDATE stored.verdicts SET ballot = '{ballot}'")
    place = f"verdicts: artifact {artifact(store, 'response_in_reference')}"
    assert f"{place}: 2 rows name a call that is not there ({call})" in found


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE stored.verdicts SET reason = 'changed'", "segments have other rows than were"),
        ("UPDATE audit.segments SET digest = uuid() WHERE kind = 'claims'", "or another digest ("),
        ("INSERT INTO audit.segments FROM audit.segments", "or another digest ("),
        ("UPDATE stored.claims SET segment = NULL", "names a segment that is not there (NULL)"),
        ("UPDATE audit.artifact_parts SET digest = uuid()", "the list of the segments of its part"),
        ("UPDATE audit.artifacts SET kind = 'x' WHERE kind = 'scores'", "there is no table 'x'"),
        ("DELETE FROM audit.run_steps", "names a step that is not there (8 steps)"),
        (
            "INSERT INTO audit.languages VALUES (999, 'response', NULL)",
            "audit.languages: segments: 1 row names a sample that is not there (999)",
        ),
        ("UPDATE stored.samples SET retrieved_contexts = 'no JSON'", "cannot be read (Invalid Inp"),
    ],
)
def test_damage_to_segments_and_records_is_found(store: Store, statement: str, fault: str) -> None:
    found = damaged(store, statement)
    assert any(fault.replace("names", "name") in line.replace("names", "name") for line in found)


def test_a_table_that_is_gone_is_a_fault(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(store.path) as connection:
        connection.execute("DROP VIEW audit.artifact_segments")
    assert main(["verify", "--store", str(store.path)]) == 1
    printed = capsys.readouterr().out
    assert "cannot be read (Catalog Error: Table with name artifact_segments" in printed


def test_the_newest_run_of_each_pipeline_is_checked(
    store: Store, write_small: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_small(store.path.parent).parent
    (folder / "samples.jsonl").write_text(
        '{"sample_id": "tower", "response": "It is high.", "reference": "It is.", '
        '"retrieved_contexts": []}\n',
        "utf-8",
    )
    with chdir(folder):
        assert main(["run", "small.yaml"]) == 0
    path = str(store.path)
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE stored.scores SET score = 0.5 WHERE sample_id = 'birth'")
    capsys.readouterr()
    assert main(["verify", "--store", path]) == 0
    assert capsys.readouterr().out.endswith(
        "checked: 1 of 2 runs, the newest of each pipeline; --all checks every run\n"
    )
    assert main(["verify", "--all", "--store", path]) == 1


def test_a_missing_table_is_found(store: Store) -> None:
    step = artifact(store, "summary")
    found = damaged(store, f"DELETE FROM audit.artifacts WHERE artifact_id = '{step}'")
    assert found == [
        f"audit.run_steps: run RUN step summary: 1 row names a table that is not there ({step})",
        f"audit.artifact_parts: parts: 1 row names a table that is not there ({step})",
    ]


def test_a_missing_run_is_found(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(store.path) as connection:
        connection.execute(
            "INSERT INTO audit.tags (tag, run_id, tagged_at) VALUES ('main', 'gone', '2026-01-01')"
        )
    assert main(["verify", "--store", str(store.path)]) == 1
    assert capsys.readouterr().out == (
        "audit.tags: tag main: 1 row names a run that is not there (gone)\n"
        "8 tables, 37 rows, 1 fault\n"
    )


def test_calls_with_negative_numbers_are_found(store: Store) -> None:
    columns = (
        "call_id, run_id, step, judge, model, request, outcome, seconds, attempts, asked_at, open"
    )
    values = "uuid(), run_id, 's', 'judge', 'm', uuid(), 'ok', 1, 1, started_at, false"
    numbers = "prompt_tokens, cost"
    found = damaged(
        store,
        f"INSERT INTO audit.calls ({columns}, {numbers}) SELECT {values}, tokens, cost "
        "FROM audit.runs, (VALUES (-5, NULL), (9223372036854775807, NULL), (5, -0.5), (5, 0.5)) "
        "AS numbers(tokens, cost)",
    )
    assert found == [
        "audit.calls: run RUN: negative tokens or cost in 2 rows; sums of this run are too low"
    ]
