"""The command line as a user sees it: what is printed where, and the exit codes."""

import json
import os
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import duckdb
import polars as pl
import pytest

from claimflow.flows import __version__
from claimflow.flows.cli.main import main
from claimflow.flows.store.store import Store

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "configs/quickstart.yaml")
LONG = "a" * 300
MAIN = "import sys; from claimflow.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, write_small: Callable[[Path], Path]) -> Path:
    """The folder of the small pipeline, run once."""
    folder = tmp_path_factory.mktemp("finished")
    write_small(folder)
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), chdir(folder):
        assert main(["run", "small.yaml"]) == 0
    return folder


@pytest.fixture
def ran(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small pipeline in a copy of that folder, which is the current one."""
    folder = tmp_path / "ran"
    shutil.copytree(finished, folder)
    (folder / ".claimflow/last_store").write_text(str(folder / "small.duckdb"), "utf-8")
    monkeypatch.chdir(folder)
    return folder / "small.yaml"


def used_here(path: Path) -> str:
    """The line that names the store that was not named."""
    return f"store: {path.with_name('small.duckdb')} (last used here)\n"


def process(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )


def test_run_prints_metrics_lowest_samples_store_and_next_commands(small: Path) -> None:
    going = process(small.parent, "run", "small.yaml")
    out, err = going.communicate()
    assert going.returncode == 0, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1].endswith(": 3 samples, 8 steps made, 0 reused")
    assert "metric mean 95 % interval scored undefined failed of" in lines
    assert "factual_correctness 0.500 0.095 to 0.905 2 1 0 3" in lines
    assert "the 2 lowest samples, by the mean of their claim metrics" in lines
    assert "contradicted (response_in_reference): Einstein was born in 1879." in lines
    assert lines[-5:] == [
        f"store: {small.parent}/small.duckdb",
        "next:",
        'claimflow sql "SELECT sample_id, claim, verdicts.step FROM latest.claims JOIN '
        "latest.verdicts USING (run_id, claim_id) WHERE verdict = 'contradicted'\"",
        "claimflow explain birth",
        "claimflow plan small.yaml",
    ]
    printed = err.splitlines()
    assert printed[0] == "3 samples"
    assert printed[1].startswith("run ")
    assert sorted(line.split(":")[0].strip() for line in printed[2:]) == [
        "context_matches",
        "deterministic_faithfulness",
        "precision",
        "reference_claims",
        "response_claims",
        "response_in_reference",
        "samples",
        "summary",
    ]


def test_a_second_run_reuses_everything(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.yaml"]) == 0
    assert ": 3 samples, 0 steps made, 8 reused" in capsys.readouterr().out


def test_renamed_columns_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.csv").write_text("answer,gold\nParis is old.,Paris is very old.\n")
    (tmp_path / "p.yaml").write_text(
        "name: p\nsamples: {path: s.csv, rename: {gold: reference}}\nstore: s.duckdb\n"
        "steps:\n  similarity: {use: embedding_similarity, left: response, right: reference}\n"
    )
    assert main(["run", str(tmp_path / "p.yaml")]) == 0
    printed = capsys.readouterr()
    assert "1 sample (response from answer, reference from gold)" in printed.err
    assert "no means: no step of this run makes scores" in printed.out
    assert "verdict" not in printed.out


def test_a_misspelt_field_that_no_step_needs_is_a_warning(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    samples = small.with_name("samples.jsonl")
    for column in ("refrence", "reference_id"):
        samples.write_text(f'{{"response": "Paris is old.", "{column}": "x"}}\n', "utf-8")
        small.write_text(
            "name: p\nsamples: {path: samples.jsonl}\nstore: s.duckdb\n"
            "steps:\n  response_claims: {use: decompose_claims, of: response}\n",
            "utf-8",
        )
        caplog.clear()
        assert main(["plan", str(small)]) == 0
        warned = [
            f"claimflow: warning: {small}:2 samples: no sample has 'reference', and the column "
            "'refrence' becomes metadata; if the column 'refrence' holds it, write rename: "
            "{refrence: reference}"
        ]
        assert caplog.messages == (warned if column == "refrence" else [])


def test_a_field_that_is_misspelt_in_some_samples_is_a_warning(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        {
            "response": "Paris is old.",
            "reference": "Paris is old.",
            "contexts": ["x"],
            "topic": "t",
        },
        {"respnse": "Paris is new.", "reference": "Paris is old."},
        {"response": "Paris.", "respnse": "x", "reference": "Paris is old."},
        {"respnse": "Rome is new.", "reference": "Rome is old."},
    ]
    small.with_name("samples.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    with chdir(small.parent):
        assert main(["plan", "small.yaml"]) == 0
    assert caplog.messages == [
        "claimflow: warning: samples.jsonl:2: the sample has 'respnse' and no 'response' "
        "(and 1 more); did you mean 'response'?"
    ]


def test_slices_that_no_sample_has_are_a_warning(
    small: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (small.parent / "samples.jsonl").write_text('{"answer": "Paris is old.", "topic": "x"}\n')
    small.write_text(
        "name: p\nsamples: {path: samples.jsonl}\nstore: s.duckdb\nsteps:\n"
        "  claims: {use: decompose_claims, of: response}\n"
        "  summary: {use: summarize_scores, slices: [topic, topc, answer]}\n"
        "  matches: {use: lexical_match, against: reference, unit: text}\n"
        "  scores: {use: deterministic_correctness, reference_matches: matches}\n"
    )
    with chdir(small.parent):
        assert main(["plan", "small.yaml"]) == 2
    caplog.clear()
    (small.parent / "samples.jsonl").write_text(
        '{"answer": "Paris is old.", "reference": "Paris is old.", "topic": "x"}\n'
    )
    with chdir(small.parent):
        assert main(["plan", "small.yaml"]) == 0
    place = "claimflow: warning: small.yaml:6 steps.summary.slices: no sample has the field"
    assert caplog.messages == [
        f"{place} 'topc'; did you mean 'topic'?",
        f"{place} 'answer'; known are topic",
    ]


def test_files_are_named_as_they_are_reached(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small.parent / "samples.jsonl").write_text('{"answer": 5}\n')
    with chdir(small.parent.parent):
        config = f"{small.parent.name}/small.yaml"
        assert main(["plan", config]) == 2
        assert capsys.readouterr().err == (
            f"claimflow: {small.parent.name}/samples.jsonl:1: 'answer' is a number; "
            "write it as text\n"
        )
        small.with_name("samples.jsonl").rename(small.with_name("sample.jsonl"))
        assert main(["plan", config]) == 2
        assert capsys.readouterr().err == (
            f"claimflow: {config}:3 samples.path: {small.parent.name}/samples.jsonl: "
            "no such file; did you mean 'sample.jsonl'?\n"
        )


def test_limit_takes_the_first_samples(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = small.with_name("other.duckdb")
    assert main(["run", str(small), "--limit", "1", "--store", str(store)]) == 0
    printed = capsys.readouterr().out
    assert ": 1 of 3 samples, 8 steps made, 0 reused\npartial run (--limit 1): latest," in printed
    assert store.exists()
    assert not small.with_name("small.duckdb").exists()


def test_plan_shows_what_is_reused_made_and_waited_for(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "small.yaml", "--again", "response_claims"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "response_claims decompose_claims make" in lines
    assert "reference_claims decompose_claims reuse 4 rows" in lines
    assert "response_in_reference verify_claims waits for response_claims" in lines


def test_runs_show_and_explain(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out.split()
    run_id = next(word for word in listed if word.startswith("20"))

    assert main(["show", run_id[:12], "--slices"]) == 0
    shown = capsys.readouterr().out
    assert f"run {run_id}: 3 samples" in shown
    assert "factual_correctness [topic=Einstein]" in shown

    assert main(["explain", "bir", "--run", run_id]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"sample birth  (run {run_id})")
    for words in (
        "response: Einstein was born in 1879.",
        "response_claims: 1 claim",
        "response_in_reference: contradicted",
        "evidence: Einstein was born in 1905",
        "precision.factual_correctness: 0.0000",
    ):
        assert words in printed


def test_runs_lists_the_columns_that_some_run_has(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def listed(*options: str) -> str:
        assert main(["runs", *options]) == 0
        return capsys.readouterr().out

    unused = {"tags", "partial", "reason", "reserved"}
    assert not unused & set(listed().split())
    assert unused < json.loads(listed("--format", "json"))[0].keys()
    assert main(["tag", "latest", "main"]) == 0
    assert {"tags", "main"} < set(listed().split())
    store = ran.parent / "small.duckdb"
    assert listed("--batches") == f"{store} has no batch of calls\n"
    assert listed("--batches", "--format", "json") == "[]\n"
    with Store(tmp_path / "new.duckdb").writing():
        pass
    assert listed("--store", str(tmp_path / "new.duckdb")).endswith("new.duckdb has no run\n")


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[2J\x07 [bold]Paris[/bold] \u202eis old\x9b.\u2028\u2029"
    sample = {"sample_id": "\x1b]0;x", "response": hostile, "reference": "Rome is old."}
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample))
    (tmp_path / "small.yaml").write_text(
        "name: small\nsamples: {path: samples.jsonl}\nstore: small.duckdb\nsteps:\n"
        "  similarity: {use: embedding_similarity, left: response, right: reference}\n"
        "  semantic_similarity: {use: semantic_similarity}\n"
    )
    assert main(["run", str(tmp_path / "small.yaml"), "--store", str(tmp_path / "s.duckdb")]) == 0
    store = ["--store", str(tmp_path / "s.duckdb")]
    assert main(["explain", "\x1b", *store]) == 0
    assert main(["sql", "SELECT response FROM samples", *store]) == 0
    printed = capsys.readouterr().out
    assert "␛[2J␇ [bold]Paris[/bold] \ufffdis old\ufffd.\ufffd\ufffd" in printed
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\u2029"} & set(printed)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_results_on_a_terminal_have_no_control_characters(ran: Path, form: str) -> None:
    query = "SELECT chr(27) || '[2J' || chr(155) || chr(8232) || chr(8238) AS a"
    command = [sys.executable, "-c", MAIN, "sql", query, "--format", form]
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=theirs, cwd=ran.parent, check=True)
    printed = re.sub(r"\x1b\[[01]m", "", os.read(ours, 10_000).decode())  # bold, in headings
    os.close(ours)
    os.close(theirs)
    assert "\ufffd" * 3 in printed
    assert not {"\x1b", "\x9b", "\u2028", "\u202e"} & set(printed)


def test_sql_in_every_format(ran: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    query = "SELECT sample_id, retrieved_contexts FROM samples ORDER BY sample_id"
    assert main(["sql", query]) == 0
    table = capsysbinary.readouterr().out.decode().split()
    assert table[0] == "sample_id"

    assert main(["sql", query, "--format", "csv"]) == 0
    assert capsysbinary.readouterr().out.decode() == (
        "sample_id,retrieved_contexts\nbirth,[]\n"
        'silence,"[""Paris is large.""]"\n'
        'tower,"[""The Eiffel Tower stands in Paris.""]"\n'
    )

    assert main(["sql", query, "--format", "json"]) == 0
    rows = json.loads(capsysbinary.readouterr().out)
    assert rows[0] == {"sample_id": "birth", "retrieved_contexts": []}

    assert main(["sql", query, "--format", "parquet", "-o", "answer.parquet"]) == 0
    assert pl.read_parquet("answer.parquet").height == 3


def test_an_unreadable_last_store_is_ignored(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = Path(".claimflow/last_store")
    for junk in (b"\xff\xfe", b"", b"x" * 5000, b"/" + b"x" * 300 + b"/s.duckdb", b"a\0b"):
        memory.write_bytes(junk)
        assert main(["runs"]) == 2
        assert capsys.readouterr().err == (
            "claimflow: store: no store was used in this folder yet; "
            "name one by --store or --config\n"
        )


def test_huge_numbers_are_accepted_or_refused_clearly(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = "9" * 30
    assert main(["prune", "--keep-runs", huge, "--dry-run"]) == 0
    assert main(["run", str(ran), "--limit", huge]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["prune", "--keep-days", "36501"])
    assert "argument --keep-days: must be 36500 or less" in capsys.readouterr().err


def test_a_query_that_is_not_utf_8(ran: Path) -> None:
    command = [sys.executable, "-c", MAIN, "sql", "-"]
    done = subprocess.run(command, input=b"SELECT '\xff'", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"claimflow: standard input: is not UTF-8 text at byte 8; write the query as UTF-8\n"
    )


def test_bytes_are_written_in_hexadecimal(
    ran: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    query = r"SELECT '\x00z'::BLOB AS b, NULL::BLOB AS none"
    assert main(["sql", query, "--format", "csv"]) == 0
    assert capsysbinary.readouterr().out == b"b,none\n007a,\n"
    assert main(["sql", query, "--format", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out) == [{"b": "007a", "none": None}]
    assert main(["sql", query, "--format", "parquet", "-o", "answer.parquet"]) == 0
    assert pl.read_parquet("answer.parquet")["b"].to_list() == [b"\0z"]


def test_sql_reads_a_query_from_standard_input(ran: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "sql", "-", "--format", "csv"],
        input="SELECT count(*) AS n FROM samples",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "n\n3\n"
    assert done.stderr == used_here(ran)


def test_a_closed_pipe_is_no_error(ran: Path) -> None:
    with process(ran.parent, "sql", "SELECT * FROM range(500000)", "--format", "csv") as going:
        assert going.stdout is not None
        assert going.stderr is not None
        going.stdout.readline()
        going.stdout.close()
        assert going.stderr.read() == used_here(ran)
    assert going.returncode == 0


@pytest.mark.parametrize(
    ("where", "code", "printed"),
    [
        (">&-", 0, ""),
        (
            "> /dev/full",
            3,
            "claimflow: standard output: cannot be used (No space left on device); "
            "make room and run it again\n",
        ),
    ],
)
def test_output_that_cannot_be_written(ran: Path, where: str, code: int, printed: str) -> None:
    command = f'"$0" -c "{MAIN}" show {where}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable],
        check=False,
        cwd=ran.parent,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, used_here(ran) + printed)


def test_a_terminal_without_utf_8_gets_escapes(ran: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "explain", "tower"],
        cwd=ran.parent,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"sample tower")
    assert done.stdout.isascii()


@pytest.mark.parametrize("where", ["2>&1 | head -n 1", "2>&-", "2> /dev/full", ">&- 2>&-"])
def test_messages_that_cannot_be_written_do_not_fail_a_run(ran: Path, where: str) -> None:
    command = f'set -o pipefail; "$0" -c "{MAIN}" run small.yaml {where}'
    done = subprocess.run(
        ["/bin/bash", "-c", command, sys.executable],
        cwd=ran.parent,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    with Store(ran.with_name("small.duckdb")).reading() as connection:
        runs = connection.execute("SELECT status FROM audit.runs").fetchall()
    assert runs == [("done",)] * 2


def test_a_full_standard_error_leaves_the_exit_code(ran: Path) -> None:
    command = f'"$0" -c "{MAIN}" run none.yaml 2> /dev/full'
    assert subprocess.run(["/bin/sh", "-c", command, sys.executable], check=False).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", b"a\xff.yaml"], r"argument 2: a\udcff.yaml is not UTF-8"),
        (["sql", b"SELECT '\xff'"], r"argument 2: SELECT '\udcff' is not UTF-8"),
        (["tag", b"\xff", "good"], r"argument 2: \udcff is not UTF-8"),
    ],
)
def test_arguments_that_are_not_utf_8(
    ran: Path, arguments: list[str | bytes], message: str
) -> None:
    command = [sys.executable, "-c", MAIN, *arguments]
    done = subprocess.run(command, cwd=ran.parent, capture_output=True, text=True, check=False)
    hint = "rename the file, or write the text as UTF-8"
    assert (done.returncode, done.stderr) == (2, f"claimflow: {message}; {hint}\n")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_store_below_a_file(ran: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(ran), "--store", f"{ran}/s.duckdb"]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {ran}/s.duckdb: is below {ran}, which is no folder; "
        "name a file in a folder as the store\n"
    )


def test_an_argument_with_a_null_character(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "a\0b.yaml"]) == 2
    assert capsys.readouterr().err == (
        "claimflow: argument 2: has a null character; leave it out\n"
    )


def test_a_closed_pipe_hides_no_failed_gate(ran: Path) -> None:
    gated = ran.with_name("gated.yaml")
    gated.write_text(ran.read_text() + "gates: {factual_correctness: {max: 0.0}}\n")
    with process(ran.parent, "run", "gated.yaml") as going:
        assert going.stdout is not None
        assert going.stderr is not None
        going.stdout.close()
        assert "Traceback" not in going.stderr.read()
    assert going.returncode == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "none.yaml"],
            "none.yaml: cannot be read (No such file or directory); name a pipeline's YAML file",
        ),
        (["runs"], "store: no store was used in this folder yet; name one by --store or --config"),
        (
            ["runs", "--store", "none.duckdb"],
            "FOLDER/none.duckdb: there is no store here; run a pipeline first",
        ),
        (
            ["run", QUICKSTART, "--limit", "1", "--store", "."],
            "FOLDER: a folder; name a file in it as the store",
        ),
        (
            ["run", QUICKSTART, "--limit", "1", "--store", LONG],
            f"{LONG}: cannot be used (File name too long); name a DuckDB file",
        ),
        (
            ["run", "\x1b[31m.yaml"],
            "\u241b[31m.yaml: cannot be read (No such file or directory); "
            "name a pipeline's YAML file",
        ),
    ],
)
def test_mistakes_exit_with_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.replace(str(tmp_path), "FOLDER") == f"claimflow: {message}\n"
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "1999"], "STORE: there is no run '1999'; known are RUN"),
        (
            ["export", "claims", "-o", "claims.csv"],
            "-o claims.csv: tables are written as Parquet, into a folder; "
            "add --format csv for a sheet",
        ),
        (["explain", "towr"], "STORE: run RUN has no sample 'towr'; did you mean 'tower'?"),
        (
            ["explain", "xyz"],
            "STORE: run RUN has no sample 'xyz'; see the samples table for its samples",
        ),
        (
            ["sql", "SELECT 1", "-o", "no/such/folder.csv"],
            "no/such/folder.csv: cannot be written (No such file or directory); "
            "name a file in a folder that you can write to",
        ),
    ],
)
def test_mistakes_about_a_store(
    ran: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = duckdb.connect(str(ran.with_name("small.duckdb")), read_only=True)
    (run_id,) = connection.execute("SELECT run_id FROM audit.runs").fetchone() or ("",)
    connection.close()
    assert main(arguments) == 2
    printed = capsys.readouterr().err.removeprefix(used_here(ran))
    printed = printed.replace(str(ran.with_name("small.duckdb")), "STORE").replace(run_id, "RUN")
    assert printed == f"claimflow: {message}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["sql", "SELECT 1", "--format", "csv"],
        ["report", "--format", "html"],
        ["export", "claims", "--format", "csv"],
    ],
)
def test_output_is_never_written_over_a_store(
    ran: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = ran.with_name("small.duckdb")
    before = store.read_bytes()
    assert main([*command, "-o", str(store)]) == 2
    assert store.read_bytes() == before
    assert capsys.readouterr().err.removeprefix(used_here(ran)) == (
        f"claimflow: {store}: is a DuckDB database, which would be lost; name another file\n"
    )


def test_ctrl_c_stops_and_says_so(small: Path) -> None:
    with process(small.parent, "run", "small.yaml") as going:
        assert going.stderr is not None
        while "made" not in (line := going.stderr.readline()):
            assert line
        going.send_signal(signal.SIGINT)
        _, rest = going.communicate()
    assert going.returncode in (130, 0)  # 0 when the signal came after the last step
    if going.returncode:
        assert rest.splitlines()[-1] == (
            "claimflow: stopped; finished work is kept; run again to continue"
        )
    assert "Traceback" not in rest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_stop_a_run_as_ctrl_c_does(small: Path, number: signal.Signals) -> None:
    with process(small.parent, "run", "small.yaml") as going:
        assert going.stderr is not None
        while "made" not in (line := going.stderr.readline()):
            assert line
        going.send_signal(number)
        _, rest = going.communicate()
    assert going.returncode in (130, 0)  # 0 when the signal came after the last step
    if going.returncode:
        assert rest.splitlines()[-1] == (
            "claimflow: stopped; finished work is kept; run again to continue"
        )
        with Store(small.with_name("small.duckdb")).reading() as connection:
            assert connection.execute("SELECT status FROM audit.runs").fetchall() == [("stopped",)]
    assert "Traceback" not in rest


def test_a_run_whose_process_ended_is_listed_as_killed(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    with Store(ran.with_name("small.duckdb")).writing() as connection:
        values = {"host": platform.node(), "process": ended.pid}
        connection.execute(
            "UPDATE audit.runs SET status = 'running', host = $host, process = $process", values
        )
    capsys.readouterr()
    with chdir(ran.parent):
        assert main(["runs", "--live", "--format", "json"]) == 0
    assert [run["status"] for run in json.loads(capsys.readouterr().out)] == ["killed"]


def test_prune_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "typo.duckdb"
    assert main(["prune", "--keep-runs", "5", "--store", str(path)]) == 2
    assert "there is no store here" in capsys.readouterr().err
    assert not path.exists()


SCRIPT = "import sys; from claimflow.__main__ import main; sys.exit(main())"
"""What installers write for the entry point that pyproject.toml names."""


@pytest.mark.parametrize("module", ["argparse", "numpy", "polars"])
@pytest.mark.parametrize("start", [["-m", "claimflow"], ["-c", SCRIPT]], ids=["module", "script"])
def test_ctrl_c_before_the_command_began(tmp_path: Path, start: list[str], module: str) -> None:
    interrupt = tmp_path / f"{module}.py"
    interrupt.write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, *start, "run", "none.yaml"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / '.package'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "claimflow: stopped before anything was done\n")


def test_the_entry_point_handles_ctrl_c() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"claimflow": "claimflow.__main__:main"}


def test_ctrl_c_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", ignoring], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode != 130
    assert b"stopped" not in done.stderr


def test_a_busy_store_exits_with_3(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = (
        "import duckdb, sys; c = duckdb.connect('small.duckdb'); print(1, flush=True); "
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        clock = iter(range(0, 100_000, 50))
        monkeypatch.setattr(time, "monotonic", lambda: next(clock))
        assert main(["runs", "--live"]) == 3
        holder.communicate()
    assert capsys.readouterr().err == used_here(ran) + (
        f"claimflow: {ran.with_name('small.duckdb')}: another process has held the store for "
        "60 s; close it, or try again later\n"
    )


def test_version_and_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"claimflow {__version__}\n"
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"claimflow {__version__}\n"
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "claimflow pipeline"


def test_schema_of_a_store(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--tables"]) == 0
    assert "audit.artifacts" in capsys.readouterr().out


def test_sql_prints_the_path_of_the_read_copy(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ran.with_name("small.duckdb")
    assert main(["sql", "--path", "--store", str(store)]) == 0
    path = capsys.readouterr().out.removesuffix("\n")
    assert path == str(store.with_name("small.read.duckdb"))
    with duckdb.connect(path, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM latest.scores").fetchall() == [(12,)]
    assert main(["sql", "--path", "--live", "--store", str(store)]) == 0
    assert capsys.readouterr().out == f"{store}\n"
    assert main(["sql", "--store", str(store)]) == 2
    assert capsys.readouterr().err == "claimflow: QUERY: is missing; write a SELECT, or --path\n"
    assert main(["sql", "--path", "--store", "none.duckdb"]) == 2


def test_failed_rows_make_the_exit_code_1(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connection = duckdb.connect(str(ran.with_name("small.duckdb")))
    connection.execute("UPDATE audit.artifacts SET failures = 2 WHERE stage = 'verify_claims'")
    connection.close()
    assert main(["show", "--live"]) == 1
    assert "3 samples, 8 steps made, 0 reused, 2 rows failed" in capsys.readouterr().out
    assert main(["run", "small.yaml"]) == 0  # the table with failures is not reused
    assert "3 samples, 1 step made, 7 reused\n" in capsys.readouterr().out
