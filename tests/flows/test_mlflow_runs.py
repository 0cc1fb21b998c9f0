"""Runs that are logged in MLflow, in a database of its own."""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, scores
from tests.flows.traced_runs import put_many, run_embedded


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def logged(uri: str, experiment: str = "p") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(experiment)
    return list(client.search_runs([known.experiment_id])) if known else []


def test_a_run_is_logged_once_with_metrics_parameters_and_tables(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    store, run_id = put_many(tmp_path, 3)
    command = ["send", "--to", "mlflow", "--store", str(store.path)]
    assert main(command) == 0
    assert capsys.readouterr().out == f"mlflow: run {run_id}: 1 run sent\n"
    assert main(command) == 0
    assert "0 runs sent, 1 was sent before" in capsys.readouterr().out
    (run,) = logged(tracking)
    assert run.data.tags["claimflow.run_id"] == run_id
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {
        "faithfulness": 0.5,
        "faithfulness.n_scored": 3,
        "faithfulness.n": 3,
    }
    assert run.data.params["judge_models"] == "openai/strict"
    assert run.data.params["pipeline"] == "p"
    client = MlflowClient(tracking_uri=tracking)
    tables = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert tables == {"scores.parquet", "claims.parquet"}
    path = client.download_artifacts(run.info.run_id, "scores.parquet", str(tmp_path))
    assert pl.read_parquet(path).height == 3


def test_models_that_run_here_are_parameters(tracking: str, tmp_path: Path) -> None:
    store = run_embedded(tmp_path)
    assert main(["send", "--to", "mlflow", "--store", str(store.path)]) == 0
    (run,) = logged(tracking)
    assert run.data.params["judge_models"].startswith("embedded judge@")
    others = run.data.params["other_models"].split(", ")
    assert [one.partition("@")[0] for one in others] == ["all-MiniLM-L6-v2", "embedded parser"]


def test_intervals_are_metrics_and_a_cut_off_run_is_completed(
    tracking: str, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    store = Store(tmp_path / "s.duckdb")
    summary = {"scores": "precision", "metric": "precision", "slice_field": None}
    figures = {"mean": 0.5, "low": 0.25, "high": 0.75, "micro_mean": None, "slice_value": None}
    counts = {"n": 4, "n_scored": 2, "n_undefined": 1, "n_failed": 1}
    spread = {"minimum": 0.0, "median": 0.5, "maximum": 1.0}
    run_id = put_run(
        store,
        {
            "samples": Table("samples", [{"sample_id": "a"}]),
            "precision": scores("precision", {"a": 0.5}),
            "summary": Table("summaries", [summary | figures | counts | spread]),
        },
    )
    client = MlflowClient(tracking_uri=tracking)
    started = client.create_run(client.create_experiment("p"), tags={"claimflow.run_id": run_id})
    assert main(["send", "--to", "mlflow", "--store", str(store.path)]) == 0
    (run,) = logged(tracking)
    assert run.info.run_id == started.info.run_id
    assert run.data.metrics == {
        "precision": 0.5,
        "precision.low": 0.25,
        "precision.high": 0.75,
        "precision.n_scored": 2,
        "precision.n": 4,
    }


def test_without_the_library_the_extra_is_named(
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main(["send", "--to", "mlflow", "--store", str(store.path)]) == 2
    assert 'pip install "claimflow[mlflow]"' in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told_without_its_password(
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = put_many(tmp_path, 1)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush-hush@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["send", "--to", "mlflow", "--store", str(store.path)]) == 2
    error = capsys.readouterr().err
    assert "MLFLOW_TRACKING_URI (http://127.0.0.1:9) fails" in error.replace("):", ")")
    assert "hush-hush" not in error
