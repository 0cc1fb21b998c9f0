"""Prefect artifacts that show a run, and the final state of its flow run."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from claimflow.flows.api import RunResult
from claimflow.flows.errors import InputError, StoreError
from claimflow.flows.report.formatting import format_count
from claimflow.flows.report.markdown import code_span, run_markdown, worst_samples
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import gate_line
from claimflow.flows.store.export import remove_published
from claimflow.flows.store.pruning import Retention, prune
from claimflow.flows.store.read_copy import refresh_read_copy
from claimflow.flows.store.store import Store

STILL_FAILED: Final = "NothingNewAfterFailure"
"""The name of the completed state where there is nothing to do after a run that failed."""

PROGRESS_SECONDS: Final = 5.0
"""Seconds between two updates of a progress artifact. A step that is made in less has none."""


class ProgressArtifacts:
    """A progress artifact for each step of a run, updated as parts of its table are stored.

    The methods are called in the task run of the step, whose artifact it becomes. After an error,
    which is logged, the run goes on without them: each try may take as long as Prefect waits for
    its server.
    """

    def __init__(self, pipeline: str, run_id: str, *, every: float = PROGRESS_SECONDS) -> None:
        self._pipeline = pipeline
        self._run_id = run_id
        self._every = every
        self._updated: dict[str, float] = {}
        self._ids: dict[str, UUID] = {}
        self._broken = False

    def begin(self, step: str) -> None:
        """Note when a step begins, or is tried again."""
        self._updated[step] = time.monotonic()

    def update(self, step: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts are stored, unless the last update is too recent.

        The last part is shown where there is an artifact.
        """
        known = self._ids.get(step)
        late = time.monotonic() - self._updated[step] >= self._every
        if self._broken or not (known if done == total else late):
            return
        about = f"{code_span(step)} of {code_span(self._pipeline)}, run {code_span(self._run_id)}: "
        about += f"{done:,} of {format_count(total, 'part')} stored"
        share = 100 * done / total

        def post() -> None:
            if known is None:
                key = artifact_key(f"{self._pipeline}-{step}", "progress")
                made = create_progress_artifact(share, key=key, description=about)
                # A coroutine only where an event loop runs in this thread.
                self._ids[step] = cast(UUID, made)
            else:
                update_progress_artifact(known, share, description=about)

        self._broken = not _logging_errors("the progress of steps could not be posted", post)
        self._updated[step] = time.monotonic()


def create_run_artifacts(run: RunDocument) -> None:
    """Create the page of a run and the table of its worst samples as artifacts.

    An error is logged and does not fail the run.
    """
    pipeline = run.head.pipeline

    def page() -> Any:
        return create_markdown_artifact(run_markdown(run), key=artifact_key(pipeline, "summary"))

    def worst() -> Any:
        about = f"The worst samples of {code_span(pipeline)}, run {code_span(run.run_id)}"
        about += f", {run.head.partial}" if run.head.partial else ""
        key = artifact_key(pipeline, "worst")
        return create_table_artifact(worst_samples(run), key=key, description=about)

    if _logging_errors("the summary could not be posted", page):
        _logging_errors("the worst samples could not be posted", worst)


def write_report(run: RunDocument, folder: Path) -> None:
    """Write the report of a run into a folder; an error is logged and does not fail the run."""

    def page() -> Any:
        # Jinja2 and the plots take a second to import.
        from claimflow.flows.report import html

        get_run_logger().info("report: %s", html.write_report(run, folder))

    _logging_errors("the report could not be written", page)


def send_scores(
    store: Store, pipeline: str, run_id: str | None, targets: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Send the scores of a run, and of earlier ones that were not sent; returns what failed.

    Without a run only what is missing of earlier ones of the pipeline is sent. `targets` are those
    of a schedules file. An error of one of them is logged, and the others go on.
    """
    from claimflow.flows.sending.delivery import send, send_missing

    unsent = []
    for one in targets:

        def deliver(to: str = one["to"], metrics: Sequence[str] = one.get("metrics", ())) -> None:
            if run_id is None:
                sending = send_missing(store, pipeline, to)
            else:
                sending = send(store, run_id, to, metrics, earlier=True)
            for done in sending:
                for line in done.lines:
                    level = logging.WARNING if done.skipped else logging.INFO
                    get_run_logger().log(level, "%s", line)

        what = f"the scores could not be sent to {one['to']}"
        if not _logging_errors(what, deliver):
            unsent.append(what)
    if targets:
        refresh_read_copy(store)
    return unsent


def remove_old_runs(
    store: Store, retention: Retention, publish: str | None, report: str | None
) -> None:
    """Remove what `retention` does not keep: published tables, reports, and then the runs.

    An error is logged and does not fail the run. In that order a removal that was cut off is
    completed by the next one.
    """

    def remove() -> None:
        from claimflow.flows.report.html import remove_report

        old = prune(store, retention, dry_run=True).removed
        for run_id in old:
            if publish is not None:
                remove_published(run_id, publish)
            if report is not None:
                remove_report(run_id, Path(report))
        if old:
            prune(store, retention)
            refresh_read_copy(store)
        get_run_logger().info("%s removed, as keep says", format_count(len(old), "old run"))

    _logging_errors("old runs could not be removed", remove)


def artifact_key(pipeline: str, what: str) -> str:
    """The key of an artifact, the same for every run, in the characters that Prefect allows."""
    name = re.sub("[^a-z0-9]+", "-", pipeline.lower()).strip("-")
    return f"{name or 'pipeline'}-{what}"


def final_state(run: RunDocument, unsent: Sequence[str] = ()) -> State[str]:
    """Failed if the run, a gate or a sending failed, else completed with counts and warnings.

    The message of a failed state is why the run failed, the first gate, or what is `unsent`.
    Inconclusive gates do not fail the flow run.
    """
    failed = run.failed or gate_line(run.gates, "fail")
    if failed is None and unsent:
        failed = f"{'; '.join(unsent)}; run {run.run_id} is stored, and the next one sends them"
    if failed is not None:
        return Failed(message=failed)
    unclear = [gate_line(run.gates, "inconclusive"), gate_line(run.gates, "skipped")]
    lines = [f"run {run.run_id}: {run.counts}", *filter(None, unclear), *run.warnings]
    return Completed(message="; ".join(lines), data=run.run_id)


def idle_state(result: RunResult, unsent: Sequence[str]) -> State[str]:
    """The state where there was nothing to do; failed if a sending failed.

    Where the last run failed, or one of its gates did, the state is named after it, and completed:
    the failure was told once, and a schedule may find nothing new each minute.
    """
    last = RunDocument(result.store, result.run_id) if result.run_id else None
    why = "; ".join(filter(None, [result.nothing_to_do, last.standing if last else None]))
    if unsent:
        return Failed(message=f"{'; '.join(unsent)}; {why}; the next run sends what is missing")
    stands = last is not None and (last.failed or gate_line(last.gates, "fail"))
    return Completed(name=STILL_FAILED if stands else None, message=why, data=result.run_id)


def _logging_errors(what: str, action: Callable[[], Any]) -> bool:
    try:
        action()
    except Exception as error:
        plain = isinstance(error, StoreError | InputError)
        get_run_logger().warning("%s: %s", what, error if plain else repr(error))
        return False
    return True
