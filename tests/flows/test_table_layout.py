"""Tables in narrow windows: columns are left out and texts wrapped, and no key is ever cut."""

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.report.table_layout import lay_out, left_out_note
from claimflow.flows.report.terminal import Terminal
from claimflow.stages.registry import STAGES
from tests.flows.report_runs import put_runs

ROOT = Path(__file__).parent.parent.parent
METRICS = sorted(name for stage in STAGES.values() for name in stage.metrics)
COUNTS = ("of", "failed", "micro mean", "undefined", "scored", "95 % interval")

MAIN = """
import shlex, sys
from claimflow.flows.cli.main import main
for command in sys.argv[1:]:
    print(f"$ {command}", flush=True)
    main(shlex.split(command))
"""


def in_terminal(width: int, folder: Path, *commands: str) -> dict[str, list[str]]:
    """What each command prints to a terminal of that width, as lines without styles."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *commands],
        cwd=folder, stdout=theirs, stderr=subprocess.PIPE, env=env,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return {
        command: printed.splitlines()
        for command, printed in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder with a store of two runs, and their ids."""
    folder = tmp_path_factory.mktemp("compared")
    store, a, b = put_runs(folder)
    (folder / ".claimflow").mkdir(exist_ok=True)
    (folder / ".claimflow/last_store").write_text(str(store.path), "utf-8")
    return folder, a, b


def test_80_columns_show_every_metric_and_say_what_is_left_out(small: Path) -> None:
    run = f"run {small.name}"
    found = in_terminal(80, small.parent, run, "show --slices", "runs", f"plan {small.name}")
    shown = "\n".join(found[run])
    for metric in ("factual_correctness", "token_overlap_faithfulness", "bleu_faithfulness"):
        assert re.search(rf"^ {metric} +\d\.\d\d\d ", shown, re.MULTILINE), metric
    assert "columns left out at 80: of, failed" in shown
    assert re.search(r"a wider window or COLUMNS=\d+ shows all", shown)
    assert " token_overlap_faithfulness [topic=Einstein] " in "\n".join(found["show --slices"])
    [run_id] = re.findall(r"^run (\S+):", shown, re.MULTILINE)
    assert any(line.startswith(f" {run_id} ") for line in found["runs"])
    assert "columns left out at 80: reused" in "\n".join(found["runs"])
    for name, lines in found.items():
        table = [line for line in lines if line.startswith(" ") and "  claimflow " not in line]
        assert max(len(line.rstrip()) for line in table) <= 80, name


def test_sql_prints_a_block_for_each_record_that_is_wider_than_the_window(
    compared: tuple[Path, str, str],
) -> None:
    folder, a, _ = compared
    found = in_terminal(80, folder, "sql 'SELECT * FROM scores'", "sql 'SELECT 1 AS one'")
    wide, narrow = (found[command] for command in found)
    assert wide[0].startswith("record 1 of ")
    assert f"run_id     {a}" in wide
    assert "metric     precision" in wide
    assert " one " in narrow


def test_columns_is_the_width_of_a_pipe_which_else_has_every_column(
    compared: tuple[Path, str, str],
) -> None:
    folder, a, b = compared
    diff = [sys.executable, "-m", "claimflow", "diff", a, b]
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    whole, narrow = (
        subprocess.run(diff, cwd=folder, capture_output=True, text=True, check=True, env=world)
        for world in (env, env | {"COLUMNS": "80"})
    )
    assert "left out at" not in whole.stdout
    assert re.search(r"metric +n +A +B +B - A +95 % interval +p +p \(Holm\)", whole.stdout)
    assert "columns left out at 80: p, n" in narrow.stdout


@given(
    st.integers(40, 200),
    st.lists(st.tuples(st.sampled_from(METRICS), st.integers(0, 10**6)), min_size=1, max_size=8),
)
def test_no_metric_is_cut_at_any_width(width: int, found: list[tuple[str, int]]) -> None:
    columns = [
        "metric",
        "mean",
        "95 % interval",
        "micro mean",
        "scored",
        "undefined",
        "failed",
        "of",
    ]
    rows = [
        [name, "0.500", "0.100 to 0.900", "0.400", "9", "0", f"{failed:,}", "9"]
        for name, failed in found
    ]
    laid = lay_out(columns, rows, width, drop=COUNTS)
    assert laid is not None
    assert laid.width <= width
    assert [columns[one.place] for one in laid.shown[:2]] == ["metric", "mean"]
    assert laid.left_out == [*COUNTS[: len(laid.left_out)]]
    assert not any(one.wrapped for one in laid.shown)
    assert laid.shown[0].width >= max(len(name) for name, _ in found)
    if "failed" in laid.left_out:
        note = left_out_note(columns, rows, laid, width)
        failing = [f"{name} {failed:,}" for name, failed in found if failed]
        assert all(part in note for part in failing[:5])
        assert ("(failed: " in note) == bool(failing)


KEYS = st.text("abcdefghij_0123456789", min_size=1, max_size=60)


@given(
    st.integers(40, 200),
    st.lists(st.tuples(KEYS, KEYS, st.text("ab \n", max_size=300)), min_size=1, max_size=4),
)
def test_no_key_is_cut_in_a_table_or_in_blocks(
    width: int, rows: list[tuple[str, str, str]]
) -> None:
    with patch.dict(os.environ, COLUMNS=str(width)):
        terminal = Terminal()
    with terminal.capture() as captured:
        terminal.print_table(["sample_id", "step", "claim"], rows, texts=("claim",))
    printed = captured.get()
    for first, second, _ in rows:
        assert re.search(rf"(^| ){first}( |$)", printed, re.MULTILINE)
        assert re.search(rf"(^| ){second}( |$)", printed, re.MULTILINE)
    if "record 1 of" not in printed:
        assert all(len(line) <= width for line in printed.splitlines())


def test_words_of_a_text_are_whole_and_share_what_is_left() -> None:
    rows = [["a" * 20, "one two three four five six seven eight", "12"]]
    laid = lay_out(["id", "claim", "n"], rows, 50, texts=("claim",))
    assert laid is not None
    assert [(one.width, one.wrapped) for one in laid.shown] == [(20, False), (20, True), (2, False)]
    assert lay_out(["id", "claim", "n"], rows, 40, texts=("claim",)) is None
