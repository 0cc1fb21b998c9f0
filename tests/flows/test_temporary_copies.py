"""Temporary copies of what is read: on a full disk, and after the process was killed."""

import gzip
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.samples.reader import read_samples
from claimflow.flows.samples.temporary import copies_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from claimflow.flows.samples.formats import open_file
from claimflow.flows.samples.temporary import copies_folder

path = Path(sys.argv[1])
with copies_folder() as folder:
    (folder / "object.jsonl").write_text("secret")
    next(open_file(path.name, path).format.read(path))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond `size`, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def chats(count: int) -> str:
    texts = [{"role": "user", "content": f"Is tin a metal? {'Yes or no. ' * 1_000}"}]
    return "".join(
        json.dumps({"id": str(number), "messages": texts, "response": "Yes."}) + "\n"
        for number in range(count)
    )


# The spans of 10,000 traces of 11 KB go beyond what SQLite keeps in memory.
@pytest.mark.parametrize(("name", "count"), [("t.jsonl", 10_000), ("t.jsonl.gz", 100)])
def test_a_full_disk_of_temporary_files_is_told(
    name: str, count: int, temporary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = chats(count).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    with largest_file(100_000):
        assert main(["traces", str(path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"claimflow: {temporary}: no room for temporary files \([^()]*\); "
        "make room there, or set TMPDIR to a folder on another disk, and run again",
        line,
    )


def test_a_killed_process_leaves_no_copy_for_long(temporary: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"response": "secret"}\n'))
    command = [sys.executable, "-c", KILLED, str(path)]
    subprocess.run(command, timeout=60, check=False)
    left = [one for one in temporary.rglob("*") if one.is_file()]
    assert [one.name for one in left] == ["object.jsonl"], "the copy of a.jsonl.gz has no name"
    for folder in temporary.iterdir():
        os.utime(folder, (time.time() - 3_600,) * 2)
    assert read_samples("a.jsonl.gz", base=tmp_path, rename={}).count == 1
    assert [*temporary.iterdir()] == []


def test_copies_in_use_stay(temporary: Path) -> None:
    with copies_folder() as first:
        os.utime(first, (time.time() - 3_600,) * 2)
        with copies_folder():
            assert first.is_dir()
    assert [*temporary.iterdir()] == []
