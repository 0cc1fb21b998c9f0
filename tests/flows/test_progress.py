import io
import itertools
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from claimflow.flows.cli.progress import LineObserver, step_line
from claimflow.flows.runner.observer import StepResult
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.store import Store

MAIN = "import sys; from claimflow.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"


def made(*, reused: bool = False, failures: int = 0) -> StepResult:
    return StepResult("claims", Artifact("id", "digest", "claims", 1, 1234, failures), reused, 2.04)


def test_a_line_reports_the_result_of_a_step() -> None:
    assert step_line(made()) == "  claims: 1,234 rows made in 2.0 s"
    assert step_line(made(reused=True)) == "  claims: 1,234 rows reused"
    assert step_line(made(failures=3)) == "  claims: 1,234 rows made in 2.0 s, 3 failed"


class Pieces(io.StringIO):
    """Records each call of write."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = Pieces()
    monkeypatch.setattr(sys, "stderr", written)
    LineObserver(Store(tmp_path / "s.duckdb")).step_finished(made())
    assert written.pieces == ["  claims: 1,234 rows made in 2.0 s\n"]


def test_parts_of_a_table_are_written_every_15_seconds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seconds = itertools.count(0.0, 6.0)
    watch = LineObserver(Store(tmp_path / "s.duckdb"), clock=lambda: next(seconds))
    watch.run_started("the-run", ["claims"], ["a-dead-run"])
    for done in range(1, 6):
        watch.step_progress("claims", done, 5)
    assert capsys.readouterr().err.splitlines() == [
        "run a-dead-run was killed; the tables it had made are kept and will be reused",
        "run the-run",
        "  claims: 3 of 5 parts of the samples",
    ]


def test_answered_questions_are_written_every_15_seconds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seconds = iter([0.0, 14.9, 15.0, 15.0, 29.0, 31.0, 31.0])
    watch = LineObserver(Store(tmp_path / "s.duckdb"), clock=lambda: next(seconds))
    for done in (10, 1200, 1300, 2400):
        watch.questions_answered("verdicts", done, 5000)
    assert capsys.readouterr().err.splitlines() == [
        "  verdicts: 1,200 of 5,000 questions answered",
        "  verdicts: 2,400 of 5,000 questions answered",
    ]


def test_a_terminal_shows_the_steps_and_a_bar(small: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", str(small)],
        cwd=small.parent,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    seen = io.BytesIO()
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end of a terminal is closed
            break
        seen.write(chunk)
    os.close(ours)
    assert process.wait() == 0
    output = seen.getvalue().decode()
    assert "precision: 3 rows made" in output
    assert "━" in output
