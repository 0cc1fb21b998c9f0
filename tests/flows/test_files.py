"""Checks of paths, and SHA-256 digests of files, cached until a file changes."""

import hashlib
import os
from pathlib import Path

import pytest

from claimflow.flows import files
from claimflow.flows.errors import InputError
from claimflow.flows.files import faults_of_writing, path_fault, sha256_of


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (5, "is of type int"),
        (b"x", "is of type bytes"),
        ("a\0b", "holds a character that no file name in UTF-8 has"),
        ("\ud800", "holds a character that no file name in UTF-8 has"),
        ("a" * 300, "cannot be used (File name too long)"),
        ("/", "is the root of all folders"),
    ],
)
def test_what_is_no_path(value: object, what: str) -> None:
    assert path_fault("store", value, "name a file") == ("store", what, "name a file")


def test_a_file_that_is_missing_has_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("none", "none/none", "file/none", "file"):
        assert path_fault("store", tmp_path / path, "name a file") is None


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught, faults_of_writing(tmp_path):
        tmp_path.write_text("x")
    assert str(caught.value) == (
        f"{tmp_path}: cannot be written (Is a directory); "
        "name a file in a folder that you can write to"
    )


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"weights")
    assert sha256_of(path) == sha256_of(path) == hashlib.sha256(b"weights").hexdigest()


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def reading(path: Path) -> str:
        read.append(path)
        return path.read_text("utf-8")

    monkeypatch.setattr(files, "_read_sha256", reading)
    monkeypatch.setattr(files, "_MIN_AGE", 0.0)
    path = tmp_path / "model.onnx"
    path.write_text("weights", "utf-8")
    assert [sha256_of(path), sha256_of(path)] == ["weights"] * 2
    assert len(read) == 1
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_text("WEIGHTS", "utf-8")
        # A copy may keep the modification time.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [sha256_of(path), sha256_of(path)] == ["WEIGHTS"] * 2
    assert len(read) == 2


def test_the_digest_of_a_file_just_written_is_not_cached(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"one", b"two", b"six"):
        path.write_bytes(content)
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()


def test_a_file_that_replaces_another_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MIN_AGE", 0.0)
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    for place, content in ((path, b"one"), (other, b"two")):
        place.write_bytes(content)
        os.utime(place, ns=(0, 0))
    before = sha256_of(path)
    other.replace(path)
    assert sha256_of(path) == hashlib.sha256(b"two").hexdigest() != before
