"""This process, local workers and a Dask cluster make the same rows."""

import importlib
import os
import pickle
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import run_command
from claimflow.flows.errors import InputError, StoppedError, WorkersError
from claimflow.flows.models.sentence_encoder import MINILM_FOLDER
from claimflow.flows.runner import embedded_models, table_builder, tools
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.runner.workers import dask, local
from claimflow.flows.runner.workers.dask import DaskWorkers
from claimflow.flows.store.arrow import read_table
from tests.flows.dask_cluster import PATH, ROOT, dask_cluster, dask_workers

DEMO = Path(__file__).parents[2] / "configs" / "demo.jsonl"
PIPELINE = """
name: scale
samples: {path: demo.jsonl}
store: s.duckdb
read_copy: false
workers: {WORKERS}
steps:
  response_claims: {use: decompose_claims, of: response}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  context_matches: {use: lexical_match, against: retrieved_contexts}
  similarity: {use: embedding_similarity, left: response, right: reference}
  precision: {use: factual_correctness, mode: precision}
  deterministic_faithfulness: {use: deterministic_faithfulness}
  summary: {use: summarize_scores}
"""
SAMPLES = 6


class StepWatch(RunObserver):
    """Records which steps were reused; calls `once` after the first part of one step."""

    def __init__(self, once: object = None) -> None:
        self.reused: dict[str, bool] = {}
        self._once = once

    def step_progress(self, step: str, done: int, total: int) -> None:
        if callable(self._once) and step == "context_matches" and done == 1:
            self._once()

    def step_finished(self, result: StepResult) -> None:
        self.reused[result.step] = result.reused


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from distributed import Client

    with dask_cluster(tmp_path_factory.mktemp("dask")) as address:
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def cluster(address: str, stop: threading.Event) -> Iterator[DaskWorkers]:
    workers = DaskWorkers(address, stop)
    yield workers
    workers.close()


@pytest.fixture(scope="module", autouse=True)
def _small_thresholds() -> Iterator[None]:
    """Tables have three parts and many batches, and all of them are worth a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_builder, "SHARD", 2)
        patch.setattr(tools, "_BATCH", 5)
        patch.setattr(tools, "_WORTH", 1)
        patch.setattr(local, "WORTH", 1)
        yield


def digests(folder: Path, workers: str, watch: StepWatch | None = None) -> dict[str, str]:
    """The digest of every step's table, as a run with these workers makes it."""
    shutil.copy(DEMO, folder / "demo.jsonl")
    config = folder / "scale.yaml"
    config.write_text(PIPELINE.replace("WORKERS", workers), "utf-8")
    run = run_pipeline(prepare(config, limit=SAMPLES), observer=watch)
    with run.store.reading() as connection:
        query = (
            "SELECT step, digest::VARCHAR FROM audit.run_steps "
            "JOIN audit.artifacts USING (artifact_id) WHERE audit.run_steps.run_id = $id"
        )
        return dict(read_table(connection, query, id=run.run_id).rows())


class Reference(NamedTuple):
    """The folder and the digests of a run in one process."""

    folder: Path
    digests: dict[str, str]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("alone")
    return Reference(folder, digests(folder, "count: 1"))


@pytest.mark.parametrize(
    "workers",
    [
        "count: 1, shards: 3",
        "count: 2, shards: 7",
        "engine: dask, address: 'ADDRESS', shards: 1",
        "engine: dask, address: 'ADDRESS', shards: 3",
        "count: 2, shards: 1, folder: .",
        "count: 2, shards: 7, folder: .",
        "engine: dask, address: 'ADDRESS', shards: 1, folder: .",
        "engine: dask, address: 'ADDRESS', shards: 7, folder: .",
    ],
)
def test_rows_do_not_depend_on_the_workers(
    tmp_path: Path, address: str, alone: Reference, workers: str
) -> None:
    assert len(alone.digests) == 8
    assert digests(tmp_path, workers.replace("ADDRESS", address)) == alone.digests
    assert not list(tmp_path.glob("claimflow-workers-*"))


def test_tables_are_reused_across_engines(address: str, alone: Reference) -> None:
    watch = StepWatch()
    digests(alone.folder, f"engine: dask, address: '{address}', shards: 3", watch)
    assert watch.reused == dict.fromkeys(alone.digests, True)


@pytest.mark.parametrize("more", ["", ", folder: ."])
def test_a_killed_worker_loses_no_row(
    tmp_path: Path, address: str, alone: Reference, more: str
) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        pid = next(iter(client.run(os.getpid).values()))
        watch = StepWatch(once=lambda: os.kill(pid, signal.SIGKILL))
        made = digests(tmp_path, f"engine: dask, address: '{address}', shards: 7{more}", watch)
        assert pid not in client.run(os.getpid).values()
        # The next test counts on the one that takes its place.
        client.wait_for_workers(2, timeout=60)
    assert made == alone.digests


def test_few_chunks_are_in_flight_and_results_come_in_order(cluster: DaskWorkers) -> None:
    taken = 0

    def chunks() -> Iterator[tuple[float]]:
        nonlocal taken
        for number in range(7):
            taken += 1
            yield (number / 10,)

    made = [(found, taken) for found in cluster.each(_late, chunks(), what="x")]
    assert [found for found, _ in made] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert [taken for _, taken in made] == [4, 5, 6, 7, 7, 7, 7]


def _late(number: float) -> float:
    """Later chunks finish earlier."""
    time.sleep(0.3 - number / 2)
    return number


def _until_there(path: str) -> None:
    deadline = time.monotonic() + 60
    while not Path(path).exists():
        assert time.monotonic() < deadline, "nobody went on"
        time.sleep(0.02)


def test_a_stopped_run_cancels_its_chunks(
    cluster: DaskWorkers, stop: threading.Event, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    made = cluster.each(_until_there, [(str(go_on),)] * 4, what="x")
    threading.Timer(0.2, stop.set).start()
    # Whoever waited for what is being made would get no further.
    with pytest.raises(StoppedError):
        next(made)
    go_on.touch()
    stop.clear()
    assert list(cluster.each(len, [("ab",), ("abc",)], what="x")) == [2, 3]


def test_an_error_on_a_worker_is_raised_here(cluster: DaskWorkers) -> None:
    with pytest.raises(ZeroDivisionError):
        list(cluster.each(divmod, [(1, 1), (1, 0)], what="x"))


def test_other_versions_are_refused_before_the_run(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "versions", lambda: (("Python", "3.9"),))
    with pytest.raises(InputError) as caught:
        digests(tmp_path, f"engine: dask, address: '{address}'")
    (fault,) = caught.value.faults
    python = sys.version.split()[0]
    assert fault.place == f"{tmp_path / 'scale.yaml'}:6 workers.address"
    assert fault.what.startswith("the worker tcp://127.0.0.1:")
    assert fault.what.endswith(f" has Python {python}, and here is 3.9")
    assert (
        fault.hint
        == "start its scheduler and workers, all with the claimflow that is installed here"
    )
    assert not (tmp_path / "s.duckdb").exists()


def test_every_worker_compares_its_versions(cluster: DaskWorkers) -> None:
    """It may have joined after the others were compared."""
    here = dict(dask.versions())
    other = tuple((here | {"claimflow": "0.0.1"}).items())
    with pytest.raises(WorkersError) as caught:
        packed = pickle.dumps((len, ("ab",)))
        list(cluster.each(dask.call_same_code, [(other, {}, packed)], what="x"))
    message = str(caught.value)
    assert re.fullmatch(
        rf"the worker tcp://127.0.0.1:\d+ has claimflow {here['claimflow']}, and here is 0.0.1",
        message,
    )


def edited_copy(folder: Path) -> str:
    """A copy of the package with another threshold; returns its PYTHONPATH."""
    ignored = shutil.ignore_patterns("weights", "__pycache__")
    shutil.copytree(ROOT / ".package" / "claimflow", folder / "claimflow", ignore=ignored)
    models = folder / "claimflow" / "flows" / "models"
    (models / "weights").symlink_to(ROOT / "flows" / "models" / "weights")
    lexical = folder / "claimflow" / "stages" / "verify.py"
    text = lexical.read_text("utf-8")
    lexical.write_text(text.replace("Field(default=0.4,", "Field(default=0.3,"), "utf-8")
    assert lexical.read_text("utf-8") != text
    return str(folder)


OTHER_SOURCES = (
    r"the worker tcp://127.0.0.1:\d+ has other sources of {0} "
    r"\([0-9a-f]{{12}}\) than here \([0-9a-f]{{12}}\)"
)


def test_a_worker_with_one_edited_line_is_refused_before_the_run(tmp_path: Path) -> None:
    path = edited_copy(tmp_path / "other")
    with (
        dask_cluster(tmp_path, path=path, workers=1) as address,
        pytest.raises(InputError) as caught,
    ):
        digests(tmp_path, f"engine: dask, address: '{address}'")
    (fault,) = caught.value.faults
    assert re.fullmatch(OTHER_SOURCES.format("claimflow"), fault.what)
    assert not (tmp_path / "s.duckdb").exists()


def test_a_worker_with_one_edited_line_that_joins_ends_the_run(
    tmp_path: Path, stop: threading.Event
) -> None:
    path = edited_copy(tmp_path / "other")
    with dask_cluster(tmp_path, workers=1) as address:
        workers = DaskWorkers(address, stop)
        try:
            with dask_workers(tmp_path, path=path):
                workers._client.wait_for_workers(2, timeout=60)
                with pytest.raises(WorkersError) as caught:
                    list(workers.each(time.sleep, [(0.2,)] * 8, what="x"))
        finally:
            workers.close()
    assert re.fullmatch(OTHER_SOURCES.format("claimflow"), str(caught.value))


STAGE = """
from claimflow.stages.lexical import LexicalMatch

class TeamMatch(LexicalMatch):
    use = "team_match"
"""


def test_other_sources_of_a_package_with_stages_are_refused(
    tmp_path: Path, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, more in (("here", ""), ("there", "    version = 2\n")):
        package = tmp_path / name / "team_stages"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("", "utf-8")
        (package / "match.py").write_text(STAGE + more, "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "here")
    stage = importlib.import_module("team_stages.match").TeamMatch(against="reference")
    path = os.pathsep.join([PATH, str(tmp_path / "there")])
    with dask_cluster(tmp_path, path=path, workers=1) as address:
        DaskWorkers(address, stop).close()
        with pytest.raises(ValueError, match=OTHER_SOURCES.format("team_stages")):
            DaskWorkers(address, stop, stages=[stage])
    shutil.copytree(tmp_path / "here", tmp_path / "there", dirs_exist_ok=True)
    (tmp_path / "scheduler.json").unlink()
    with dask_cluster(tmp_path, path=path, workers=1) as address:
        DaskWorkers(address, stop, stages=[stage]).close()


def test_a_hash_of_sources_covers_names_and_bytes_of_python_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hashed(folder: str, **files: str) -> str:
        package = tmp_path / folder / "hashed"
        for name, text in files.items():
            path = package / name.replace("__", ".").replace("_", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / folder)
            dask.source_hash.cache_clear()
            return dask.source_hash("hashed")

    first = hashed("one", a__py="x = 1\n", sub_b__py="y = 1\n")
    assert hashed("two", sub_b__py="y = 1\n", a__py="x = 1\n", notes__txt="read me") == first
    others = [
        hashed("three", a__py="x = 1\n", sub_b__py="y = 2\n"),
        hashed("four", a__py="x = 1\n", sub_c__py="y = 1\n"),
        hashed("five", a__py="x = 1\ny = 1\n", sub_b__py=""),
        hashed("none"),
    ]
    assert len({first, *others}) == 5
    assert others[-1] == ""


def test_a_missing_scheduler_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        digests(tmp_path, "engine: dask, address: 'tcp://127.0.0.1:9'")
    assert str(caught.value) == (
        f"{tmp_path / 'scale.yaml'}:6 workers.address: no Dask scheduler answers at "
        "tcp://127.0.0.1:9; start its scheduler and workers, "
        "all with the claimflow that is installed here"
    )


def test_without_dask_the_message_says_what_to_install(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "claimflow.flows.runner.workers.dask")
    with pytest.raises(InputError) as caught:
        digests(tmp_path, f"engine: dask, address: '{address}'")
    assert str(caught.value) == (
        f"{tmp_path / 'scale.yaml'}:6 workers.engine: Dask is not installed; "
        "run: pip install 'claimflow[dask]'"
    )


def test_lost_workers_are_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def command(_: object) -> int:
        raise WorkersError("the Dask scheduler at tcp://10.0.0.5:8786 was lost")

    assert run_command(command, None) == 7  # type: ignore[arg-type]
    printed = "claimflow: the Dask scheduler at tcp://10.0.0.5:8786 was lost\n"
    assert capsys.readouterr().err == printed


def test_another_encoder_on_a_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkersError) as missing:
        embedded_models.worker_vectors(tmp_path, {}, ["a"])
    assert str(missing.value).startswith(
        f"a worker does not have the encoder of this run: {tmp_path / 'model.onnx'}: no such file"
    )
    with pytest.raises(WorkersError) as other:
        embedded_models.worker_vectors(MINILM_FOLDER, {"name": "other"}, ["a"])
    assert str(other.value) == f"a worker has another encoder in {MINILM_FOLDER} than there is here"
