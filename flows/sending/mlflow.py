"""MLflow: a run with the metrics, parameters and tables of a run, by the library `mlflow`."""

import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.environment_secrets import without_secrets
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.sending.endpoint import shown_address
from claimflow.flows.sending.evaluations import clipped, run_judging
from claimflow.flows.store import results
from claimflow.flows.store.export import export_tables
from claimflow.flows.store.store import Store

_SERVER: Final = "MLFLOW_TRACKING_URI"
_RUN_TAG: Final = "claimflow.run_id"
_WHOLE_TAG: Final = "claimflow.complete"
_TABLES: Final = ("scores", "claims")

_METRICS_AT_ONCE: Final = 500
_LONGEST: Final = 500
"""Metrics of a request, and letters of a parameter, that every version of MLflow takes."""

_LIMITS: Final = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}
"""MLflow would wait two minutes for a reply and ask seven times again."""


class Mlflow:
    """A tracking server of MLflow, or its database."""

    def __init__(self) -> None:
        try:
            self._library = importlib.import_module("mlflow")
        except ImportError as error:
            what = f"needs mlflow, which is not installed ({error})"
            hint = 'run: pip install "claimflow[mlflow]"'
            raise InputError([Fault("--to mlflow", what, hint)]) from None

    def address(self) -> str:
        """The tracking server without user and key."""
        parts = urlsplit(_uri())
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

    def send_run(
        self, store: Store, run_id: str, metrics: Sequence[str], *, again: bool = False
    ) -> bool:
        """Log a run once: one of MLflow with its tag is completed, or left alone if complete."""
        with self._faults(), _limits():
            client = self._library.MlflowClient(tracking_uri=_uri())
            head = _head(store, run_id)
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or head["pipeline"]
            known = client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else client.create_experiment(name)
            query = f"tags.`{_RUN_TAG}` = '{run_id}'"
            found = client.search_runs([experiment], filter_string=query, max_results=1)
            if found and found[0].data.tags.get(_WHOLE_TAG) == "true" and not again:
                return False
            if found:
                logged = found[0].info.run_id
            else:
                tags = {_RUN_TAG: run_id, "mlflow.runName": run_id}
                began = int(head["started_at"].timestamp() * 1_000)
                logged = client.create_run(experiment, began, tags).info.run_id
            _log(client, logged, store, run_id, head, metrics)
            client.set_tag(logged, _WHOLE_TAG, "true")
            client.set_terminated(logged, "FAILED" if head["status"] == "failed" else "FINISHED")
        return True

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise `InputError` for errors of the library, without keys."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            parts = urlsplit(_uri())
            shown = shown_address(_uri()) if parts.netloc else self.address()
            keys = [parts.username, parts.password, parts.query]
            keys += [parts.path.strip("/")] if parts.netloc else []
            text = without_secrets(str(error).replace(_uri(), shown), filter(None, keys))
            text = escape_controls(" ".join(text.split()))
            place = f"{_SERVER} ({shown})"
            hint = "send again later: a run is logged once"
            raise InputError([Fault(place, f"fails: {clipped(text, 300)}", hint)]) from error


def _log(
    client: Any,
    logged: str,
    store: Store,
    run_id: str,
    head: dict[str, Any],
    metrics: Sequence[str],
) -> None:
    """Log parameters, metrics and tables. What was logged before is replaced by the same."""
    entities = importlib.import_module("mlflow.entities")
    provenance = run_judging(store, run_id).provenance
    parameters = {
        "pipeline": head["pipeline"],
        "claimflow_version": head["made_by"],
        **{name: ", ".join(values) for name, values in provenance.items()},
    }
    parts = [
        entities.Param(name, clipped(value, _LONGEST))
        for name, value in parameters.items()
        if value
    ]
    client.log_batch(logged, params=parts)
    at = int(head["ended_at"].timestamp() * 1_000)
    values = [
        entities.Metric(name, value, at, 0) for name, value in _metrics(store, run_id, metrics)
    ]
    for start in range(0, len(values), _METRICS_AT_ONCE):
        client.log_batch(logged, metrics=values[start : start + _METRICS_AT_ONCE])
    with TemporaryDirectory(prefix="claimflow-") as folder:
        # All of them first: the store is open while they are written.
        for table in [*export_tables(store, Path(folder), tables=_TABLES, run_id=run_id)]:
            client.log_artifact(logged, table.place)


def _metrics(store: Store, run_id: str, wanted: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Means over all samples with interval, and how many of how many were scored."""
    rows = [
        row
        for row in results.summaries(store, run_id).rows(named=True)
        if row["slice_field"] is None
    ] or results.score_means(store, run_id).rows(named=True)
    steps = {
        metric: {row["scores"] for row in rows if row["metric"] == metric}
        for metric in {row["metric"] for row in rows}
    }
    for row in rows:
        full = f"{row['scores']}.{row['metric']}"
        name = row["metric"] if len(steps[row["metric"]]) == 1 else full
        if wanted and not {name, full} & set(wanted):
            continue
        shown = re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)[:200]
        for suffix, column in (
            ("", "mean"),
            *((f".{column}", column) for column in ("low", "high", "n_scored", "n")),
        ):
            if row[column] is not None:
                yield f"{shown}{suffix}", float(row[column])


def _head(store: Store, run_id: str) -> dict[str, Any]:
    """The row of a run, with times in UTC."""
    with store.reading() as connection:
        (row,) = connection.execute(
            "SELECT pipeline, status, made_by, started_at, coalesce(ended_at, started_at) "
            "FROM audit.runs WHERE run_id = $run",
            {"run": run_id},
        ).fetchall()
    if row[1] == "running":
        what = f"run {run_id} is in progress"
        raise InputError([Fault("send", what, "send it when it has ended")])
    began, ended = (time.replace(tzinfo=UTC) for time in row[3:])
    names = ("pipeline", "status", "made_by")
    return dict(zip(names, row[:3], strict=True)) | {"started_at": began, "ended_at": ended}


def _uri() -> str:
    if uri := os.environ.get(_SERVER):
        return uri
    hint = "set it as in http://localhost:5000 or sqlite:///mlflow.db"
    raise InputError([Fault(_SERVER, "is not set", hint)])


@contextmanager
def _limits() -> Iterator[None]:
    """Limits of time for MLflow's requests, unless the environment has its own."""
    given = {name: value for name, value in _LIMITS.items() if name not in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
