"""The Prefect flow: one run of a pipeline, with a task run per step."""

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException
from prefect.runtime import deployment, flow_run
from prefect.states import Completed, Scheduled

from claimflow.flows.api import RunResult, run_pipeline
from claimflow.flows.errors import InputError, PendingError
from claimflow.flows.orchestration.artifacts import (
    create_run_artifacts,
    final_state,
    idle_state,
    remove_old_runs,
    send_scores,
    write_report,
)
from claimflow.flows.orchestration.recovery import label_with_process
from claimflow.flows.orchestration.shared_limits import shared_limits_of
from claimflow.flows.orchestration.task_runs import AWAITING, TaskRunObserver
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.times import Duration, Wait, to_timedelta
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.process import collect_less_garbage, silence_stderr_at_exit
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.runner.prepare import in_batches, prepare
from claimflow.flows.runner.run import process_time_limit
from claimflow.flows.store.export import check_place, publish_run
from claimflow.flows.store.pruning import Retention
from claimflow.stages.rows import content_key

FINISHED: ContextVar[list[RunResult | PendingError] | None] = ContextVar("FINISHED", default=None)
"""A list that receives the result of a finished run, or why it is pending.

A caller of the flow that gets an exception, because a gate failed or the server was lost, finds it
there."""

_BATCH_WAIT: Final = timedelta(minutes=10)
"""How long a run of a deployment waits for batches before it leaves them to a later run."""

_COLLECT_AFTER: Final = timedelta(minutes=15)
"""When that later run starts."""


def run_name() -> str:
    """The name of a flow run: its deployment or its pipeline, and the scheduled time in UTC."""
    config = flow_run.parameters["config"]
    due: datetime = flow_run.scheduled_start_time or datetime.now(UTC)
    name = _deployment_name() or _pipeline_name(Path(config)) or Path(config).stem
    return f"{name} {due.astimezone(UTC):%Y-%m-%d %H:%M}"


def _deployment_name() -> str | None:
    """The name of the deployment; None without one, or if the server cannot be reached."""
    try:
        return str(deployment.name) if deployment.name else None
    except (httpx.HTTPError, PrefectException):
        return None


def _deployment_id() -> UUID | None:
    """The id of the deployment; None without one, or if the server cannot be reached."""
    try:
        return UUID(str(deployment.id)) if deployment.id else None
    except (httpx.HTTPError, PrefectException):
        return None


def _prepare_process() -> UUID | None:
    """Label this process with its flow run; returns the id of the deployment, as above."""
    silence_stderr_at_exit()
    label_with_process(flow_run.id)
    deployed = _deployment_id()
    if deployed is not None:
        # Prefect has started the process for this run alone.
        collect_less_garbage()
    return deployed


def _pipeline_name(config: Path) -> str | None:
    try:
        written = load_yaml(config).value
    except InputError:
        return None
    name = written.get("name") if isinstance(written, dict) else None
    return None if name is None else str(name)


@flow(name="evaluate", flow_run_name=run_name, persist_result=False)
def evaluate(
    config: str,
    *,
    store: str | None = None,
    limit: int | None = None,
    again: list[str] | None = None,
    fresh: bool = False,
    only: list[str] | None = None,
    from_step: str | None = None,
    failed: bool = False,
    samples: str | None = None,
    skip_unusable: bool = False,
    part: str | None = None,
    redact: bool = False,
    timeout: Duration | None = None,
    call_timeout: Duration | None = None,
    batch: bool = False,
    batch_wait: Wait | None = None,
    publish: str | None = None,
    report: str | None = None,
    send: list[dict[str, Any]] | None = None,
    keep_runs: int | None = None,
    keep_days: int | None = None,
) -> State[str]:
    """Run a pipeline file, reusing the tables that are in its store; returns the id of the run.

    Fails if too many rows or a gate failed, or the run cannot continue or takes longer than
    `timeout`; `InputError` lists every mistake in the pipeline or its samples. If `failed` finds
    nothing that failed, no step is run and the id is that of the run that was looked at.

    Args:
        config: The pipeline's YAML file.
        store: A DuckDB file instead of the pipeline's.
        limit: Use this many samples only, the first ones.
        again: Make these steps even though their tables are on file.
        fresh: Ask models anew, for the steps of `again` or for all that the run has.
        only: Just these steps; what they need must be on file.
        from_step: Just this step and what depends on it; what they need must be on file.
        failed: Just steps whose newest table has failed rows and what depends on them.
        samples: Just these samples, by a file of their ids or a SELECT that answers a sample_id.
        skip_unusable: Leave out samples that cannot be used; the run is of some samples then.
        part: Just this part of the samples, as in 2/4, for one of several machines.
        redact: Keep only hashes of the texts in the record of calls.
        timeout: End the run after this time, in seconds or as in 2h; finished work is kept.
        call_timeout: Give up a model call, with its retries, after this time.
        batch: Send the calls of judges in batches, at half the price, answered within a day.
        batch_wait: Wait for batches so long, with 0 not at all; then the run ends as pending, and
            a later one collects their replies. By default 26 hours, for a run of a deployment 10
            minutes: it schedules the later run, a quarter of an hour on.
        publish: A folder, or an address as s3://bucket/tables, to write the run's tables to.
        report: A folder to write the HTML report of the run to.
        send: Send the scores of the run to these targets, as in [{"to": "otlp"}]; a failure fails
            the flow run, and the next run sends what is missing, also where it has nothing to do.
        keep_runs: Keep the newest runs of this pipeline, so many, and those of `keep_days`.
        keep_days: Keep the runs of the last days, so many, and those of `keep_runs`. Runs that
            neither keeps are removed after this one, with their published tables and reports.
    """
    deployed = _prepare_process()
    rerun = Rerun(
        again=again or (),
        fresh=fresh,
        only=only or (),
        from_step=from_step,
        failed=failed,
        samples=samples,
        skip_unusable=skip_unusable,
        part=part,
    )
    prepared = prepare(Path(config), limit=limit, rerun=rerun, store=Path(store) if store else None)
    if batch:
        prepared = in_batches(prepared)
    if publish is not None:
        check_place(publish)
    longest = None if timeout is None else to_timedelta(timeout)
    finished = FINISHED.get()
    try:
        with process_time_limit(longest):
            result = run_pipeline(
                prepared,
                rerun=rerun,
                redact=redact,
                timeout=longest,
                call_timeout=None if call_timeout is None else to_timedelta(call_timeout),
                observer=TaskRunObserver(prepared.store),
                open_shared_limiter=shared_limits_of(prepared.pipeline),
                batch_wait=_batch_wait(batch_wait, deployed),
            )
    except PendingError as error:
        if finished is not None:
            finished.append(error)
        return Completed(name=AWAITING, message=f"{error}{_collect_later(deployed)}")
    if result.nothing_to_do:
        unsent = send_scores(result.store, prepared.pipeline.name, None, send or [])
        return idle_state(result, unsent)
    if finished is not None:
        finished.append(result)
    run = RunDocument(result.store, result.run_id)
    create_run_artifacts(run)
    if publish is not None:
        get_run_logger().info("published: %s", publish_run(result.store, result.run_id, publish))
    if report is not None:
        write_report(run, Path(report))
    unsent = send_scores(result.store, run.head.pipeline, result.run_id, send or [])
    if keep_runs is not None or keep_days is not None:
        retention = Retention(keep_runs, keep_days, pipeline=run.head.pipeline)
        remove_old_runs(result.store, retention, publish, report)
    return final_state(run, unsent)


def _batch_wait(given: Wait | None, deployed: UUID | None) -> timedelta | None:
    if given is None:
        return None if deployed is None else _BATCH_WAIT
    return to_timedelta(given)


def _collect_later(deployed: UUID | None) -> str:
    """Schedule a run of the deployment that collects the batches; returns when it starts."""
    if deployed is None:
        return ""
    due = datetime.now(UTC) + _COLLECT_AFTER
    # Runs with the same parameters that end within the same period share one.
    period = int(due.timestamp() // _COLLECT_AFTER.total_seconds())
    try:
        with get_client(sync_client=True) as client:
            parameters = client.read_flow_run(UUID(str(flow_run.id))).parameters
            asked = content_key("parameters", period, parameters)
            later = client.create_flow_run_from_deployment(
                deployed,
                parameters=parameters,
                state=Scheduled(scheduled_time=due),
                idempotency_key=f"claimflow batches {deployed} {asked}",
            )
    except (httpx.HTTPError, PrefectException) as error:
        get_run_logger().warning("no later run is scheduled, the next one collects: %s", error)
        return ""
    start = later.expected_start_time or due
    return f"; a run that collects them is scheduled for {start:%Y-%m-%d %H:%M} UTC"
