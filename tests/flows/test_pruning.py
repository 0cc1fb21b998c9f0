"""What is removed, what stays with what is kept, and that the store is in order afterwards."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.errors import StoreBusyError
from claimflow.flows.store.connection import BLOCK_SIZE
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.pruning import Retention, compact, prune
from claimflow.flows.store.read_copy import is_current, write_read_copy
from claimflow.flows.store.store import Store, now
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import Judged

STRUCTURE = (
    "SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
    "WHERE NOT internal ORDER BY schema_name, table_name, column_index",
    # DuckDB writes the names behind EXCLUDE in any order.
    "SELECT schema_name, view_name, comment, regexp_replace(sql, 'EXCLUDE \\([^)]*\\)', '', 'g') "
    "FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT schema_name, table_name, comment, sql FROM duckdb_tables() ORDER BY ALL",
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> Path:
    """Three runs: of samples a and b, then twice of a and c."""
    folder = tmp_path_factory.mktemp("finished")
    judged = Judged(folder, endpoint)
    judged.write(["a", "b"])
    judged.run()
    judged.write(["a", "c"])
    judged.run()
    judged.run()
    return folder


@pytest.fixture
def judged(finished: Path, tmp_path: Path, endpoint: Endpoint) -> Judged:
    """The pipeline of those three runs, in a copy of their folder."""
    folder = Path(shutil.copytree(finished, tmp_path / "judged"))
    return Judged(folder, endpoint)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.duckdb")
    with store.writing():
        pass
    return store


def add(store: Store, run_id: str, *, days: float = 0.0, **columns: Any) -> None:
    """Record a run that started so many days ago."""
    usual = {
        "run_id": run_id,
        "pipeline": "p",
        "config_path": "p.yaml",
        "config": "",
        "status": "done",
        "started_at": now() - timedelta(days=days),
        "host": platform.node(),
        "process": os.getpid(),
        "made_by": "test",
    } | columns
    with store.writing() as connection:
        names = ", ".join(usual)
        values = ", ".join(f"${name}" for name in usual)
        connection.execute(f"INSERT INTO audit.runs ({names}) VALUES ({values})", usual)


def execute(store: Store, statement: str) -> list[tuple[Any, ...]]:
    with store.writing() as connection:
        return connection.execute(statement).fetchall()


def kept(store: Store, keeping: Retention) -> list[str]:
    prune(store, keeping)
    runs = execute(store, "SELECT run_id FROM audit.runs ORDER BY started_at")
    return [run_id for (run_id,) in runs]


def test_the_newest_runs_of_each_pipeline_are_kept(store: Store) -> None:
    for number in range(1, 5):
        add(store, f"p{number}", days=-number)
    add(store, "q1", pipeline="q")
    assert kept(store, Retention(runs=2)) == ["q1", "p3", "p4"]


def test_failed_runs_do_not_count_as_kept_runs(store: Store) -> None:
    add(store, "old", days=9)
    add(store, "broken", days=8, status="failed")
    add(store, "good", days=7)
    add(store, "stopped", days=6, status="stopped")
    add(store, "killed", days=5, status="killed")
    assert kept(store, Retention(runs=1)) == ["good", "stopped", "killed"]


def test_the_runs_of_the_last_days_are_kept(store: Store) -> None:
    add(store, "old", days=3.1)
    add(store, "young", days=2.9)
    assert kept(store, Retention(days=3)) == ["young"]


def test_a_run_is_kept_that_one_of_two_rules_keeps(store: Store) -> None:
    for days in (1, 2, 8, 9):
        add(store, f"p{days}", days=days)
        add(store, f"q{days}", days=days, pipeline="q")
    # Of q fewer than three are left that are not of yesterday.
    execute(store, "DELETE FROM audit.runs WHERE run_id IN ('q1', 'q2')")
    assert kept(store, Retention(runs=3, days=1)) == ["q9", "p8", "q8", "p2", "p1"]
    assert kept(store, Retention(runs=1, days=5)) == ["q8", "p2", "p1"]


def test_runs_of_other_pipelines_are_kept(store: Store) -> None:
    for days in (1, 2):
        add(store, f"p{days}", days=days)
        add(store, f"q{days}", days=days, pipeline="q")
    assert kept(store, Retention(runs=1, pipeline="p")) == ["q2", "p1", "q1"]


def test_tagged_runs_and_their_baselines_are_kept(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for days, run_id in enumerate(["new", "labelled", "baseline", "once labelled", "old"]):
        add(store, run_id, days=days)
    for days, run_id in ((5, "once labelled"), (4, "labelled")):
        execute(
            store,
            f"INSERT INTO audit.tags (tag, run_id, tagged_at) "
            f"SELECT 'main', '{run_id}', now()::TIMESTAMP - INTERVAL {days} DAY",
        )
    execute(
        store,
        "INSERT INTO audit.gates (run_id, metric, rule, baseline, line, outcome, reason) "
        "VALUES ('labelled', 'm', 'r', 'baseline', 0, 'pass', ''), "
        "('old', 'm', 'r', 'once labelled', 0, 'pass', '')",
    )
    would = prune(store, Retention(runs=1), dry_run=True)
    assert would.exempt == {"baseline": None, "labelled": "main"}
    assert prune(store, Retention(runs=2), dry_run=True).exempt == {"baseline": None}
    assert main(["prune", "--keep-runs", "1", "--dry-run", "--store", str(store.path)]) == 0
    said = capsys.readouterr().out
    assert "  labelled is kept for its tag main\n" in said
    assert "  baseline is kept for a kept run, whose gate compared with it\n" in said
    assert kept(store, Retention(runs=1)) == ["baseline", "labelled", "new"]
    assert execute(store, "SELECT run_id FROM audit.tags") == [("labelled",)]
    assert execute(store, "SELECT run_id FROM audit.gates") == [("labelled",)]


def test_nothing_is_removed_while_a_run_is_in_progress(store: Store) -> None:
    add(store, "old")
    add(store, "going", status="running", process=os.getppid())
    with pytest.raises(StoreBusyError) as caught:
        prune(store, Retention(runs=1))
    assert str(caught.value) == (
        f"{store.path}: run going is in progress (process {os.getppid()} on {platform.node()}); "
        "wait for it"
    )


def test_a_killed_run_does_not_prevent_pruning(store: Store) -> None:
    add(store, "dead", days=3, status="running", process=4_000_000)
    add(store, "dead elsewhere", days=2, status="running", host="elsewhere")
    add(store, "new")
    assert kept(store, Retention(runs=1)) == ["new"]
    add(store, "alive elsewhere", days=0.5, status="running", host="elsewhere")
    with pytest.raises(StoreBusyError):
        prune(store, Retention(runs=1))


CALLS = (
    "SELECT regexp_extract(coalesce(prompt, 'Case none.'), 'Case (\\w+)\\.', 1), count(*) "
    "FROM audit.calls GROUP BY ALL ORDER BY ALL"
)


def test_tables_of_kept_runs_stay_and_others_are_removed(judged: Judged) -> None:
    newest = "(SELECT arg_max(run_id, started_at) FROM audit.runs)"
    before = judged.ask(f"SELECT * FROM verdicts WHERE run_id = {newest} ORDER BY ALL")
    pruned = prune(judged.store, Retention(runs=1))
    assert (len(pruned.removed), pruned.kept, pruned.calls, pruned.emptied) == (2, 1, 0, 1)
    # Of samples, claims, verdicts and scores those of the first run; the rows of a are kept.
    assert (pruned.tables, pruned.rows) == (4, 1 + 3 + 3 + 1)
    assert judged.ask("SELECT * FROM verdicts ORDER BY ALL") == before
    # The judge's words about a stay, for a row that is kept names them; those about b go.
    assert judged.ask(CALLS) == [("a", 1), ("c", 1), ("none", 1)]
    assert check_store(judged.store).faults == []


def test_calls_that_gave_a_vote_of_a_kept_row_stay(store: Store) -> None:
    add(store, "old", days=1)
    add(store, "new")
    ids = {name: str(UUID(int=number)) for number, name in enumerate(["row", "vote", "none"], 1)}
    for call in ids.values():
        execute(
            store,
            "INSERT INTO audit.calls (call_id, run_id, step, judge, model, request, outcome, "
            f"seconds, attempts, asked_at, open, prompt) VALUES ('{call}', 'old', 's', 'judge', "
            "'m', uuid(), 'ok', 1, 1, now()::TIMESTAMP, false, 'words')",
        )
    made = f"'{ids['none']}'"
    execute(
        store,
        "INSERT INTO audit.run_steps (run_id, step, position, artifact_id, reused, seconds, "
        f"ended_at) VALUES ('new', 's', 0, {made}, false, 0, now()::TIMESTAMP)",
    )
    execute(
        store,
        "INSERT INTO stored.verdicts (segment, claim_id, call_id, ballot) VALUES "
        f"(1, uuid(), '{ids['row']}', '[{{\"call_id\": \"{ids['vote']}\"}}]')",
    )
    execute(store, f"INSERT INTO audit.artifact_parts VALUES ({made}, 'verdicts', 0, 1, uuid())")
    execute(store, "INSERT INTO audit.parts VALUES (1, 0, 1, 1)")
    prune(store, Retention(runs=1))
    left = execute(store, "SELECT call_id::VARCHAR, prompt FROM audit.calls ORDER BY 1")
    assert left == [(ids["row"], "words"), (ids["vote"], "words")]


def test_replies_of_removed_runs_are_kept(judged: Judged, endpoint: Endpoint) -> None:
    prune(judged.store, Retention(runs=1))
    judged.write(["a", "b"])
    judged.run()
    assert len(endpoint.requests) == 0
    assert check_store(judged.store).faults == []


def test_replies_are_removed_on_request(judged: Judged, endpoint: Endpoint) -> None:
    pruned = prune(judged.store, Retention(runs=1, replies=False))
    # Three verdicts and a call on b; what the embedded models said costs nothing.
    assert (pruned.calls, pruned.emptied, pruned.replies) == (1, 0, 3)
    assert judged.ask(CALLS) == [("a", 1), ("c", 1)]
    judged.write(["a", "b"])
    judged.run()
    assert len(endpoint.requests) == 1
    assert check_store(judged.store).faults == []


def test_calls_of_a_store_without_runs_keep_their_texts_as_long_as_their_replies(
    judged: Judged, tmp_path: Path
) -> None:
    store = Store(tmp_path / "shared.duckdb")
    with store.writing():
        pass
    Ledger(store).take_over(judged.store)
    every = sorted(judged.ask("SELECT call_id::VARCHAR, prompt FROM audit.calls"))
    query = "SELECT call_id::VARCHAR, prompt FROM audit.calls"
    for retention in (Retention(runs=1), Retention(days=1), Retention(runs=1, replies=False)):
        pruned = prune(store, retention)
        assert (pruned.calls, pruned.emptied, pruned.replies) == (0, 0, 0)
        assert sorted(execute(store, query)) == every
    old, *others = every
    of_call = f"WHERE contains(decode(reply), '{old[0]}')"
    execute(store, f"UPDATE audit.replies SET made_at = '2026-01-01' {of_call}")
    pruned = prune(store, Retention(days=1, replies=False))
    assert (pruned.calls, pruned.emptied, pruned.replies) == (1, 0, 3)
    assert sorted(execute(store, query)) == others
    assert check_store(store).faults == []


@pytest.mark.parametrize("replies", [True, False])
def test_embeddings_of_an_endpoint_are_not_read_as_replies_of_a_judge(
    tmp_path: Path, replies: bool
) -> None:
    samples = [
        {"sample_id": "a", "response": "Rome is old.", "reference": "Rome is young."},
        {"sample_id": "b", "response": "Oslo is cold.", "reference": "Oslo is warm."},
    ]
    steps = {
        "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"}
    }
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        embedder = judged.judge(provider="litellm")
        for some in (samples, samples[:1]):
            judged.write(some, steps=steps, more={"judge": None, "embedder": embedder})
            judged.run()
        pruned = prune(judged.store, Retention(runs=1, replies=replies))
        assert (pruned.calls, pruned.replies) == (1, 0 if replies else 4)
        assert len(judged.ask("FROM audit.replies")) == (4 if replies else 0)


def test_the_file_shrinks_and_holds_the_same_tables_and_views(store: Store) -> None:
    add(store, "new")
    execute(
        store,
        "INSERT INTO stored.samples (segment, sample_id, response) "
        "SELECT i, i, md5(i::VARCHAR) || uuid() FROM range(100_000) t(i)",
    )
    store.path.chmod(0o640)
    before = [execute(store, query) for query in STRUCTURE]
    would = prune(store, Retention(runs=1), dry_run=True)
    pruned = prune(store, Retention(runs=1))
    assert pruned.rows == 100_000
    assert would.saving is not None
    assert pruned.after is not None
    # DuckDB's own data about row groups fills whole blocks: one more or less.
    assert would.before - sum(would.saving) == pytest.approx(pruned.after, abs=BLOCK_SIZE)
    assert pruned.after == store.path.stat().st_size
    assert pruned.after < pruned.before / 1.4
    assert store.path.stat().st_mode & 0o777 == 0o640
    assert [execute(store, query) for query in STRUCTURE] == before
    assert [path.name for path in store.path.parent.iterdir()] == ["s.duckdb"]


def test_tables_of_the_owner_of_a_store_are_kept(store: Store) -> None:
    add(store, "new")
    execute(store, "CREATE TABLE teams (name VARCHAR PRIMARY KEY)")
    execute(
        store,
        "CREATE TABLE people (team VARCHAR REFERENCES teams, pay INTEGER, "
        "twice INTEGER GENERATED ALWAYS AS (2 * pay))",
    )
    execute(store, "INSERT INTO teams VALUES ('a')")
    execute(store, "INSERT INTO people (team, pay) VALUES ('a', 4)")
    assert prune(store, Retention(runs=1)).kept == 1
    assert execute(store, "FROM people") == [("a", 4, 8)]


MEASURED = """
import sys
from pathlib import Path
from claimflow.flows.store.pruning import Retention, compact, prune
from claimflow.flows.store.read_copy import write_read_copy
from claimflow.flows.store.store import Store

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024

task, path = sys.argv[1:]
store = Store(Path(path))
with store.reading():
    before = peak()
match task:
    case "prune": prune(store, Retention(runs=1), memory="64MB")
    case "compact": compact(store, memory="64MB")
    case "copy": write_read_copy(store, memory="64MB")
print(peak() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs, each with 1,500,000 claims; those of the runs lie side by side."""
    store = Store(tmp_path_factory.mktemp("large") / "s.duckdb")
    with store.writing():
        pass
    for number in range(2):
        add(store, f"r{number}", days=-number)
    execute(
        store,
        """
        INSERT INTO stored.claims BY NAME
        SELECT i // 10 AS segment, uuid() AS claim_id, i::VARCHAR AS sample_id, i AS start,
               md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS claim
        FROM range(3_000_000) t(i)
        """,
    )
    execute(
        store,
        "INSERT INTO audit.segments SELECT 'claims', i, uuid() FROM range(300_000) t(i)",
    )
    execute(store, "INSERT INTO audit.parts SELECT i % 2, i // 2, i, 1 FROM range(300_000) t(i)")
    execute(
        store,
        "INSERT INTO audit.artifact_parts SELECT lpad(i::VARCHAR, 32, '0')::UUID, 'claims', 0, i, "
        "uuid() FROM range(2) t(i)",
    )
    execute(
        store,
        "INSERT INTO audit.run_steps SELECT 'r' || i, 'claims', 0, "
        "lpad(i::VARCHAR, 32, '0')::UUID, false, 0, now()::TIMESTAMP FROM range(2) t(i)",
    )
    return store.path


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much memory a process took")
@pytest.mark.parametrize(("task", "claims"), [("prune", 1), ("compact", 2), ("copy", 2)])
def test_a_large_store_is_copied_in_little_memory(
    large: Path, tmp_path: Path, task: str, claims: int
) -> None:
    store = Store(Path(shutil.copy(large, tmp_path)))
    measure = [sys.executable, "-c", MEASURED, task, str(store.path)]
    done = subprocess.run(measure, capture_output=True, text=True, check=True)
    # Without a limit it takes 250 to 350 MB more.
    assert int(done.stdout) < 150
    found = execute(
        store,
        "SELECT count(*), count(DISTINCT start), bool_and(start > before) FROM "
        "(SELECT start, lag(start, 1, -1) OVER (ORDER BY rowid) AS before FROM stored.claims)",
    )
    assert found == [(claims * 1_500_000, claims * 1_500_000, True)]
    kinds = {path.name for path in tmp_path.iterdir()} - {"s.read.duckdb"}
    assert kinds == {"s.duckdb"}


def test_a_dry_run_counts_and_removes_nothing(judged: Judged) -> None:
    content = judged.store.path.read_bytes()
    would = prune(judged.store, Retention(runs=1), dry_run=True)
    assert judged.store.path.read_bytes() == content
    assert would.after is None
    done = prune(judged.store, Retention(runs=1))
    assert done._replace(after=None, saving=would.saving) == would


def test_a_compaction_that_fails_leaves_the_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Path, target: Path) -> None:
        raise RuntimeError

    add(store, "new")
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(RuntimeError):
        prune(store, Retention(runs=1))
    monkeypatch.undo()
    assert execute(store, "SELECT run_id FROM audit.runs") == [("new",)]
    assert [path.name for path in store.path.parent.iterdir()] == ["s.duckdb"]


def test_prune_wants_to_know_what_to_keep(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    add(store, "old", days=9)
    asked = ["prune", "--store", str(store.path)]
    assert main(asked) == 2
    assert "add --keep-runs or --keep-days" in capsys.readouterr().err
    add(store, "new")
    assert main([*asked, "--keep-runs", "1", "--keep-days", "10"]) == 0
    assert "0 runs removed, 2 kept" in capsys.readouterr().out


def test_prune_prints_what_it_removed_and_renews_the_read_copy(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    add(store, "old", days=1)
    add(store, "new")
    write_read_copy(store)
    before = store.path.stat().st_size
    asked = ["prune", "--keep-runs", "1", "--store", str(store.path)]
    assert main([*asked, "--dry-run"]) == 0
    begun = f"  old\n1 run would be removed, 1 kept\nthe file has {before:,} bytes"
    begun += " and would have about "
    out = capsys.readouterr().out
    assert out.startswith(begun)
    about = int(out.removeprefix(begun).partition("\n")[0].replace(",", ""))
    assert main(asked) == 0
    assert capsys.readouterr().out == (
        "  old\n1 run removed, 1 kept\n"
        f"the file had {before:,} bytes and has {store.path.stat().st_size:,}\n"
    )
    assert about == pytest.approx(store.path.stat().st_size, rel=0.3)
    assert is_current(store.path)


def test_prune_says_why_a_file_would_shrink_without_a_run_removed(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    add(store, "only")
    asked = ["prune", "--keep-runs", "9", "--dry-run", "--store", str(store.path)]
    for query in ("CREATE TABLE large AS SELECT uuid() FROM range(300_000)", "DROP TABLE large"):
        with store.writing() as connection:
            connection.execute(query)
    assert main(asked) == 0
    begun, _, about = capsys.readouterr().out.rpartition("of it about ")
    assert begun.startswith("0 runs would be removed, 1 kept\nthe file has ")
    size, _, words = about.partition(" ")
    assert words == "bytes are free already\n"
    assert int(size.replace(",", "")) > 300_000 * 16 * 0.9


def test_prune_names_what_goes_with_a_run(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["prune", "--keep-runs", "1", "--dry-run", "--store", str(judged.store.path)]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "with them: 4 tables, 8 rows, 1 call's texts\n" in out
    assert " bytes are of rows that no kept run uses\n" in out
    assert main([*asked, "--replies"]) == 0
    assert "8 rows, 1 call, 3 replies\n" in capsys.readouterr().out
    Ledger(judged.store).remember("entailment", {str(UUID(int=1)): b"1", str(UUID(int=2)): b"2"})
    judged.run()
    assert main([*asked, "--replies"]) == 0
    assert "3 replies, 2 results of local models\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ['a" TO memory; --', "compact", "main", "a'b"])
def test_a_store_of_any_name_is_compacted(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path / f"{name}.duckdb")
    with store.writing():
        pass
    compact(store)
    assert check_store(store).faults == []
