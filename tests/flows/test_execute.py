import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.errors import InputError, StoppedError
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import all_runs, run_steps, summaries
from claimflow.flows.store.store import Store

CLI = "import sys; from claimflow.flows.cli.main import main; sys.exit(main(sys.argv[1:]))"
CONFIGS = Path(__file__).parents[2] / "configs"

STEPS = [
    "samples",
    "response_claims",
    "reference_claims",
    "context_matches",
    "response_in_reference",
    "deterministic_faithfulness",
    "precision",
    "summary",
]


class Seen(RunObserver):
    """Records the events of a run."""

    def __init__(self) -> None:
        self.killed: Sequence[str] = ()
        self.made: list[StepResult] = []

    def run_started(self, run_id: str, steps: Sequence[str], killed: Sequence[str]) -> None:
        self.killed = killed

    def step_progress(self, step: str, done: int, total: int) -> None:
        assert 0 < done <= total

    def questions_answered(self, step: str, done: int, total: int) -> None:
        assert 0 < done <= total

    def step_finished(self, result: StepResult) -> None:
        self.made.append(result)

    def names(self, *, reused: bool) -> set[str]:
        return {made.step for made in self.made if made.reused == reused}


def run(path: Path, *again: str) -> Seen:
    return rerun(path, Rerun(again=again))


def rerun(path: Path, wanted: Rerun) -> Seen:
    seen = Seen()
    run_pipeline(prepare(path, rerun=wanted), rerun=wanted, observer=seen)
    return seen


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def rows(path: Path, query: str) -> pl.DataFrame:
    with Store(path.with_name("small.duckdb")).reading() as connection:
        return read_table(connection, query)


def actions(path: Path) -> dict[str, str]:
    prepared = prepare(path)
    return {p.step: p.action for p in plan(prepared, prepared.store)}


@pytest.fixture
def ran(small_store: Store, tmp_path: Path) -> Path:
    """The path of the small pipeline in a copy of a folder where it was run."""
    shutil.copytree(small_store.path.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "small.yaml"


def test_the_first_run_makes_every_table_and_the_second_none(small: Path) -> None:
    assert run(small).names(reused=False) == set(STEPS)
    assert run(small).names(reused=True) == set(STEPS)
    store = Store(small.with_name("small.duckdb"))
    assert all_runs(store)["status"].to_list() == ["done", "done"]
    assert set(run_steps(store, all_runs(store)["run_id"][0])["step"]) == set(STEPS)


@pytest.mark.parametrize(
    "config",
    sorted({*CONFIGS.glob("*.yaml")} - {CONFIGS / "schedules.yaml"}),
    ids=lambda path: path.stem,
)
def test_the_pipelines_we_ship_run(config: Path, tmp_path: Path) -> None:
    prepared = prepare(config, limit=2)
    store = Store(tmp_path / "s.duckdb")
    going = run_pipeline(prepared, store, observer=Seen())
    steps = run_steps(store, going.run_id)
    assert steps.height == len(prepared.pipeline.steps) + 1
    assert steps["failures"].sum() == 0
    assert summaries(store, going.run_id).filter(n=2).height > 0


@pytest.mark.parametrize("stores", [1, 4])
def test_threads_run_pipelines_at_once(
    stores: int, tmp_path: Path, write_small: Callable[[Path], Path]
) -> None:
    folders = [tmp_path / str(number) for number in range(stores)]
    for folder in folders:
        folder.mkdir()
    paths = [write_small(folder) for folder in folders]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, paths * (4 // stores)))
    for path in paths:
        store = Store(path.with_name("small.duckdb"))
        assert all_runs(store)["status"].to_list() == ["done"] * (4 // stores)


def test_the_rows_of_a_run_are_found_in_sql(ran: Path) -> None:
    scores = rows(
        ran,
        "SELECT sample_id, score, status, reason FROM scores WHERE step = 'precision' "
        "ORDER BY sample_id",
    )
    assert scores.rows() == [
        ("birth", 0.0, "scored", None),
        (
            "silence",
            None,
            "undefined",
            "no claims in the response; the response is empty (policy: formula)",
        ),
        ("tower", 1.0, "scored", None),
    ]
    verdicts = rows(
        ran,
        "SELECT sample_id, claim, verdict FROM claims JOIN verdicts USING (run_id, claim_id) "
        "ORDER BY verdict",
    )
    assert verdicts["claim"].to_list() == [
        "Einstein was born in 1879.",
        "The Eiffel Tower is located in Paris.",
    ]
    assert verdicts["verdict"].to_list() == ["contradicted", "entailed"]


def test_the_latest_run_has_views_of_its_own(ran: Path) -> None:
    edit(ran, "mode: precision", "mode: precision, beta: 2.0")
    run(ran)
    counts = "SELECT (SELECT count(*) FROM scores), (SELECT count(*) FROM latest.scores)"
    assert rows(ran, counts).row(0) == (24, 12)


def test_means_have_counts(ran: Path) -> None:
    summary = rows(
        ran,
        "SELECT slice_value, n, n_scored, n_undefined, n_failed, mean FROM summaries "
        "WHERE metric = 'factual_correctness' ORDER BY slice_value NULLS FIRST",
    )
    assert summary.rows() == [
        (None, 3, 2, 1, 0, 0.5),
        ("Einstein", 1, 1, 0, 0, 0.0),
        ("Paris", 2, 1, 1, 0, 1.0),
    ]


def test_a_changed_setting_remakes_its_step_and_dependents_with_new_content(ran: Path) -> None:
    edit(
        ran,
        "use: deterministic_faithfulness",
        "use: deterministic_faithfulness, rouge_threshold: 0.9",
    )
    assert actions(ran)["deterministic_faithfulness"] == "make"
    assert actions(ran)["summary"] == "wait"
    assert run(ran).names(reused=False) == {"deterministic_faithfulness", "summary"}


def test_a_remade_table_of_the_same_content_leaves_the_scores_reused(ran: Path) -> None:
    edit(ran, "against: reference}", "against: reference, threshold: 0.51}")
    assert run(ran).names(reused=False) == {"response_in_reference"}


def test_again_makes_a_step_once_more(ran: Path) -> None:
    assert run(ran, "precision").names(reused=False) == {"precision"}


def test_again_of_no_step_is_a_mistake(small: Path) -> None:
    with pytest.raises(InputError) as caught:
        prepare(small, rerun=Rerun(again=("precison",)))
    assert str(caught.value) == ("--again: there is no step 'precison'; did you mean 'precision'?")


def test_only_changed_samples_are_judged_again(ran: Path) -> None:
    before = rows(ran, "SELECT count(*) FROM audit.replies").item()
    more = '{"sample_id": "new", "response": "Rome is old.", "reference": "Rome is very old."}\n'
    samples = ran.with_name("samples.jsonl")
    samples.write_text(samples.read_text("utf-8") + more, "utf-8")
    assert "response_in_reference" in run(ran).names(reused=False)
    assert rows(ran, "SELECT count(*) FROM audit.replies").item() == before + 1


def test_steps_that_compute_the_same_share_one_table(small: Path) -> None:
    edit(
        small,
        "  precision:",
        "  twin: {use: verify_claims, claims: response_claims, against: reference}\n  precision:",
    )
    run(small)
    shared = rows(
        small,
        "SELECT count(DISTINCT artifact_id) FROM audit.run_steps "
        "WHERE step IN ('twin', 'response_in_reference')",
    )
    assert shared.item() == 1
    assert rows(small, "SELECT count(*) FROM stored.verdicts").item() == 2
    assert rows(small, "SELECT count(*) FROM verdicts").item() == 4


def test_the_plan_is_what_the_run_does(small: Path) -> None:
    assert actions(small) == {
        "response_claims": "make",
        "reference_claims": "make",
        "context_matches": "make",
        "response_in_reference": "wait",
        "deterministic_faithfulness": "wait",
        "precision": "wait",
        "summary": "wait",
    }
    assert not small.with_name("small.duckdb").exists()
    run(small)
    assert set(actions(small).values()) == {"reuse"}


def test_a_stopped_run_keeps_its_tables_and_is_recorded_as_stopped(small: Path) -> None:
    prepared = prepare(small)
    store = prepared.store

    stop = threading.Event()

    class StopAfterClaims(RunObserver):
        def step_finished(self, result: StepResult) -> None:
            if result.step == "response_claims":
                stop.set()

    with pytest.raises(StoppedError):
        run_pipeline(prepared, store, observer=StopAfterClaims(), stop=stop)
    assert all_runs(store).select("status", "reason").rows() == [("stopped", "asked to stop")]
    assert "response_claims" in run(small).names(reused=True)


def test_a_run_that_raises_is_recorded_as_failed(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(small)
    store = prepared.store

    class Breaking(RunObserver):
        def step_finished(self, result: StepResult) -> None:
            if result.step == "precision":
                raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        run_pipeline(prepared, store, observer=Breaking())
    assert all_runs(store).select("status", "reason").rows() == [
        ("failed", "RuntimeError: the disk is full")
    ]


@pytest.mark.parametrize("seconds", [0.02, 0.2, 0.4])
def test_a_killed_run_loses_nothing_that_was_finished(small: Path, seconds: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, "run", str(small)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=small.parent,
    )
    assert process.stderr is not None
    while "made" not in (line := process.stderr.readline()):
        assert line, "the run ended before it made anything"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    store = Store(small.with_name("small.duckdb"))
    finished = set(run_steps(store, all_runs(store)["run_id"][0])["step"])
    seen = run(small)
    assert finished <= seen.names(reused=True)
    runs = all_runs(store)
    if runs["status"][1] != "done":  # the kill may come just after the end
        assert seen.killed == [runs["run_id"][1]]
        assert runs["status"].to_list() == ["done", "killed"]
    unfinished = rows(
        small,
        "SELECT count(*) FROM audit.artifact_parts WHERE artifact_id NOT IN "
        "(SELECT artifact_id FROM audit.artifacts WHERE digest IS NOT NULL)",
    )
    assert unfinished.item() == 0
