"""Tables where others read them; those on object storage are in test_object_storage.py."""

import json
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import InputError, StoreFullError
from claimflow.flows.pipeline.schedules import read_schedules
from claimflow.flows.store.export import check_place, publish_run, remove_published
from claimflow.flows.store.store import Store


def run_of(store: Store) -> str:
    with store.reading() as connection:
        ((run_id,),) = connection.execute("SELECT run_id FROM audit.runs").fetchall()
    return str(run_id)


def test_a_run_is_written_to_a_folder_with_a_manifest(small_store: Store, tmp_path: Path) -> None:
    run_id = run_of(small_store)
    check_place(str(tmp_path / "out"))
    own = Path(publish_run(small_store, run_id, str(tmp_path / "out")))
    assert own == tmp_path / "out" / run_id
    printed = json.loads((own / "manifest.json").read_bytes())
    assert printed["run_id"] == run_id
    files = {one["file"]: one["bytes"] for one in printed["tables"].values()}
    assert files == {path.name: path.stat().st_size for path in own.glob("*.parquet")}
    assert printed["tables"]["claims"]["rows"] == 6
    assert {path.name for path in own.iterdir()} == {*files, "manifest.json"}


def test_an_incomplete_run_has_no_manifest(small_store: Store, tmp_path: Path) -> None:
    run_id = run_of(small_store)
    own = Path(publish_run(small_store, run_id, str(tmp_path)))
    # Where a table is to be there is a folder.
    (own / "scores.parquet").unlink()
    (own / "scores.parquet").mkdir()
    with pytest.raises(StoreFullError, match="scores"):
        publish_run(small_store, run_id, str(tmp_path))
    assert not (own / "manifest.json").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        publish_run(small_store, run_id, str(tmp_path / "file"))


def test_what_was_published_is_removed_and_nothing_else(small_store: Store, tmp_path: Path) -> None:
    run_id = run_of(small_store)
    own = Path(publish_run(small_store, run_id, str(tmp_path / "out")))
    written = len(list(own.iterdir()))
    (own / "notes.parquet").write_text("mine", "utf-8")
    (tmp_path / "out/claims.parquet").write_text("mine", "utf-8")
    # A manifest that was edited cannot name files elsewhere.
    manifest = json.loads((own / "manifest.json").read_bytes())
    manifest["tables"]["../claims"] = {"file": "../claims.parquet"}
    (own / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert remove_published("20260101-000000-0000", str(tmp_path / "out")) == 0
    assert remove_published(run_id, str(tmp_path / "out")) == written
    left = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*.parquet"))]
    assert left == [f"out/{run_id}/notes.parquet", "out/claims.parquet"]

    (own / "notes.parquet").unlink()
    publish_run(small_store, run_id, str(tmp_path / "out"))
    assert remove_published(run_id, str(tmp_path / "out")) == written
    assert not own.exists()
    assert remove_published(run_id, str(tmp_path / "out")) == 0


@pytest.mark.parametrize("manifest", ["", "[]", '{"run_id": "other", "tables": {"x": {}}}'])
def test_a_folder_with_another_manifest_is_left_alone(tmp_path: Path, manifest: str) -> None:
    own = tmp_path / "20260101-000000-0000"
    own.mkdir()
    (own / "manifest.json").write_text(manifest, "utf-8")
    (own / "x.parquet").write_text("mine", "utf-8")
    assert remove_published(own.name, str(tmp_path)) == 0
    (tmp_path / "link").symlink_to(own)
    assert remove_published("link", str(tmp_path)) == 0
    assert sorted(path.name for path in own.iterdir()) == ["manifest.json", "x.parquet"]


def test_an_address_in_a_schedule_is_not_made_a_path(small: Path) -> None:
    path = small.with_name("s.yaml")
    line = "deployments:\n  one: {pipeline: small.yaml, every: 90, publish: 's3://PLACE'}\n"
    path.write_text(line.replace("PLACE", "bucket/nights"), "utf-8")
    (one,) = read_schedules(path).scheduled
    assert one.parameters["publish"] == "s3://bucket/nights"
    path.write_text(line.replace("PLACE", "AKIA:hush@bucket/nights"), "utf-8")
    with pytest.raises(InputError) as refused:
        read_schedules(path)
    assert str(refused.value) == (
        f"{path}:2 deployments.one.publish: is not valid; "
        "keys and endpoints belong in the environment, not into an address"
    )


def test_a_sheet_cannot_be_written_to_an_address(
    small_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--format",
        "csv",
        "--to",
        "s3://bucket/claims.csv",
        "--store",
        str(small_store.path),
    ]
    assert main(["export", "claims", *options]) == 2
    assert capsys.readouterr().err == "claimflow: --format csv: a sheet is a file; name one by -o\n"
