import csv
import json
import re
import shutil
from collections.abc import Callable
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from uuid import UUID

import duckdb
import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.export import export_tables, publish_run, published_views
from claimflow.flows.store.store import Store
from claimflow.stages.rows import row_kinds

RECORD = (
    "artifacts batch_calls batches calibrations calls canaries edits gates labels "
    "readers run_steps runs seen_samples sendings sent store tags"
).split()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, write_small: Callable[[Path], Path]) -> Path:
    """The folder of the small pipeline, run twice; a step was made in both."""
    folder = tmp_path_factory.mktemp("finished")
    write_small(folder)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), chdir(folder):
        assert main(["run", "small.yaml"]) == 0
        assert main(["run", "small.yaml", "--again", "precision"]) == 0
    return folder


@pytest.fixture
def export(finished: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs `claimflow export` on that store, into a folder `out`."""
    store, folder = str(finished / "small.duckdb"), str(tmp_path / "out")
    return lambda *options: main(["export", *options, "--store", store, "-o", folder])


def runs(finished: Path) -> list[str]:
    with Store(finished / "small.duckdb").reading() as connection:
        found = connection.execute("SELECT run_id FROM audit.runs ORDER BY started_at").fetchall()
    return [run_id for (run_id,) in found]


def test_every_table_except_replies_is_written(
    export: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export() == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    kinds = [row.table for row in row_kinds()]
    tables = [*kinds, "text_languages", *(f"audit.{name}" for name in RECORD)]
    assert names == sorted(["manifest.json", *(f"{table}.parquet" for table in tables)])
    listed = json.loads((tmp_path / "out/manifest.json").read_text("utf-8"))
    assert sorted(listed["tables"]) == sorted(tables)
    assert f"{tmp_path}/out/claims.parquet: 12 rows" in capsys.readouterr().out.splitlines()
    claims = pl.read_parquet(tmp_path / "out/claims.parquet")
    assert claims.height == 12
    assert claims.schema["claim_id"] == pl.String
    scores = pl.read_parquet(tmp_path / "out/scores.parquet")
    assert set(scores.filter(metric="factual_correctness")["score"]) == {0.0, 1.0, None}
    assert scores["details"][0].startswith("{")


def test_the_languages_of_one_run_are_those_of_its_samples(finished: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(finished / "small.duckdb", tmp_path / "small.duckdb"))
    [run_id, _] = runs(finished)
    (written,) = export_tables(Store(path), tmp_path, tables=["text_languages"], run_id=run_id)
    found = pl.read_parquet(written.place)
    assert set(found["sample_id"]) == {"tower", "birth", "silence"}
    assert set(found["run_id"]) == {run_id}


def test_the_rows_of_one_run_include_reused_tables(
    export: Callable[..., int], finished: Path, tmp_path: Path
) -> None:
    second = runs(finished)[1]
    assert export("--run", second, "claims", "audit.runs", "audit.artifacts") == 0
    claims = pl.read_parquet(tmp_path / "out/claims.parquet")
    assert set(claims["run_id"]) == {second}
    assert claims.height == 6
    assert pl.read_parquet(tmp_path / "out/audit.runs.parquet")["run_id"].to_list() == [second]
    assert pl.read_parquet(tmp_path / "out/audit.artifacts.parquet").height == 8


def test_the_calls_of_one_run_include_calls_of_earlier_runs_that_its_rows_name(
    finished: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copy(finished / "small.duckdb", tmp_path / "small.duckdb"))
    first, second = runs(finished)
    named, other = (str(UUID(int=number)) for number in (1, 2))
    with Store(path).writing() as connection:
        for call in (named, other):
            connection.execute(
                "INSERT INTO audit.calls (call_id, run_id, step, judge, model, request, outcome, "
                "seconds, attempts, asked_at, open) VALUES ($call, $run, 's', 'judge', 'm', "
                "uuid(), 'ok', 1, 1, now()::TIMESTAMP, false)",
                {"call": call, "run": first},
            )
        connection.execute("UPDATE stored.verdicts SET call_id = $call", {"call": named})
    for run_id, calls in ((first, [named, other]), (second, [named])):
        (written,) = export_tables(Store(path), tmp_path, tables=["audit.calls"], run_id=run_id)
        assert sorted(pl.read_parquet(written.place)["call_id"]) == calls


def test_an_existing_file_is_replaced_and_the_output_says_so(
    export: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/scores.parquet").write_text("an older one")
    assert export("scores") == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/out/scores.parquet: 24 rows, in place of an older file\n"
    )
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["manifest.json", "scores.parquet"]
    assert pl.read_parquet(tmp_path / "out/scores.parquet").height == 24


def test_the_replies_are_written_when_named(export: Callable[..., int], tmp_path: Path) -> None:
    assert export("audit.replies") == 0
    assert pl.read_parquet(tmp_path / "out/audit.replies.parquet").height == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["claim", "audit.run"],
            "export: there is no table 'claim'; did you mean 'claims'?\n"
            "export: there is no table 'audit.run'; did you mean 'audit.runs'?",
        ),
        (
            ["samples", "--format", "csv"],
            "--format csv: is for scores, claims, verdicts or rubric_verdicts; "
            "name one of the four",
        ),
        (["claims", "--step", "x"], "--step: is for a sheet; add --format csv"),
    ],
)
def test_input_errors(
    export: Callable[..., int],
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert export(*options) == 2
    assert capsys.readouterr().err == f"claimflow: {message}\n"
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_an_input_error(
    export: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("")
    assert export() == 2
    assert capsys.readouterr().err == (
        f"claimflow: {tmp_path}/out: cannot be made (File exists); name a folder that "
        "you can write to\n"
    )


def test_the_scores_of_a_run_are_a_sheet(
    small_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = '=HYPERLINK("http://x")'
    path = tmp_path / "s.duckdb"
    shutil.copy(small_store.path, path)
    with duckdb.connect(path) as connection:
        connection.execute(
            "UPDATE stored.scores SET reason = $reason WHERE sample_id = 'silence'",
            {"reason": hostile},
        )
    place = ("--store", str(path), "--live", "-o", str(tmp_path / "scores.csv"))
    assert main(["export", "scores", "--format", "csv", *place]) == 0
    header, *rows = csv.reader((tmp_path / "scores.csv").read_text("utf-8-sig").splitlines())
    assert header == [
        *("run_id", "step", "sample_id", "metric", "score"),
        *("status", "reason", "part", "whole"),
    ]
    assert len(rows) == 12
    assert {row[6] for row in rows if row[2] == "silence"} == {f"'{hostile}"}
    precision = {row[2]: (row[4], row[5]) for row in rows if row[1] == "precision"}
    assert precision["tower"] == ("1.0", "scored")
    assert precision["silence"] == ("", "undefined")
    assert main(["export", "scores", "--format", "csv", *place, "--step", "precison"]) == 2
    assert "has no step 'precison' of scores; did you mean 'precision'?" in capsys.readouterr().err


def published(finished: Path, folder: Path, place: str = "*") -> duckdb.DuckDBPyConnection:
    """A connection with the views of the runs of the small pipeline, published in `folder`."""
    for run_id in runs(finished):
        publish_run(Store(finished / "small.duckdb"), run_id, str(folder))
    out = StringIO()
    with redirect_stdout(out):
        assert main(["schema", "--published", f"{folder}/{place}"]) == 0
    connection = duckdb.connect()
    connection.execute(out.getvalue())
    return connection


def test_the_views_of_published_tables_are_those_of_the_store(
    finished: Path, tmp_path: Path
) -> None:
    known = (
        "SELECT CASE schema_name WHEN 'main' THEN '' ELSE schema_name || '.' END || view_name, "
        "comment FROM duckdb_views() WHERE NOT internal"
    )
    described = (
        "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal "
        "AND schema_name = $schema AND table_name = $name ORDER BY column_index"
    )
    with (
        closing(published(finished, tmp_path / "its 'nights'" / "run_id=5")) as there,
        Store(finished / "small.duckdb").reading() as here,
    ):
        names = {name for name, _ in there.execute(known).fetchall()} - {"audit.published"}
        of_store = {name for name, _ in here.execute(known).fetchall()}
        assert names == of_store - {"audit.artifact_segments"} | {f"audit.{n}" for n in RECORD}
        for name in names:
            rows = f"FROM {name} ORDER BY ALL"
            assert there.execute(rows).fetchall() == here.execute(rows).fetchall(), name
            schema, _, table = f"main.{name}".rpartition(".")
            of = {"schema": schema.rpartition(".")[2], "name": table}
            assert there.execute(described, of).fetchall() == here.execute(described, of).fetchall()


def test_a_run_that_is_being_published_is_not_seen(finished: Path, tmp_path: Path) -> None:
    first, second = runs(finished)
    with closing(published(finished, tmp_path)) as connection:
        guide = Path(__file__).parents[2].joinpath("flows/guides/scale.md").read_text("utf-8")
        (newest,) = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
        assert {(one[0], one[2]) for one in connection.execute(newest).fetchall()} == {("small", 6)}
        seen = "SELECT DISTINCT run_id FROM scores ORDER BY run_id"
        assert connection.execute(seen).fetchall() == sorted([(first,), (second,)])
        (tmp_path / second / "manifest.json").unlink()
        assert connection.execute(seen).fetchall() == [(first,)]
        assert connection.execute("SELECT run_id FROM audit.runs").fetchall() == [(first,)]


def test_an_exported_run_is_published_and_its_views_are_made_anywhere_and_again(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, _ = runs(finished)
    store = ["--store", str(finished / "small.duckdb")]
    with chdir(tmp_path):
        assert main(["export", "--run", first, "--to", f"nights/{first}", *store]) == 0
        capsys.readouterr()
        assert main(["schema", "--published", "nights/*"]) == 0
    sql = capsys.readouterr().out
    with closing(duckdb.connect()) as connection:
        connection.execute(sql)
        connection.execute(sql)
        counted = connection.execute("SELECT run_id, count(*) FROM scores GROUP BY run_id")
        assert counted.fetchall() == [(first, 12)]


def test_a_run_that_is_copied_counts_once_and_a_damaged_manifest_not(
    finished: Path, tmp_path: Path
) -> None:
    first, second = runs(finished)
    with closing(published(finished, tmp_path / "nights", "../*/*/")) as connection:
        shutil.copytree(tmp_path / "nights" / first, tmp_path / "copies" / first)
        manifest = tmp_path / "nights" / second / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:20])
        counted = connection.execute("SELECT run_id, count(*) FROM scores GROUP BY run_id")
        assert counted.fetchall() == [(first, 24 // 2)]
        assert connection.execute("SELECT run_id FROM audit.runs").fetchall() == [(first,)]


@pytest.mark.parametrize("place", ["", "none/*", "run"])
def test_a_place_without_a_published_run_is_an_error(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    with chdir(tmp_path):
        assert main(["schema", "--published", place]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"claimflow: --published {place}: no run is published there: no folder has a "
        "manifest.json; name the folder of a run, or all of them, as in 'nights/*'\n"
    )


def test_published_tables_in_object_storage_need_an_extension_of_duckdb() -> None:
    first, *others = published_views("s3://bucket/nights/*").splitlines()
    assert first == "INSTALL httpfs; LOAD httpfs;"
    assert any("'s3://bucket/nights/*/scores.parquet'" in line for line in others)
