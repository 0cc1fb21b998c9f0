"""Artifacts and final states of Prefect flow runs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from claimflow.flows.quality.gates import recorded_outcomes
from claimflow.flows.report.markdown import code_span, run_markdown, worst_samples
from claimflow.flows.report.run_text import gate_line, judge_lines, run_counts_text
from claimflow.flows.store.results import run_steps
from claimflow.flows.store.store import Store


def create_run_artifacts(store: Store, run_id: str, pipeline: str) -> None:
    """Post the page of a run and the table of its worst samples.

    They are told of the run and are not the run: what goes wrong is logged and costs nothing.
    """
    about = f"{code_span(pipeline)}, run {code_span(run_id)}"

    def page() -> Any:
        text = run_markdown(store, run_id)
        return create_markdown_artifact(text, key=artifact_key(pipeline, "summary"))

    def worst() -> Any:
        rows = worst_samples(store, run_id)
        key = artifact_key(pipeline, "worst")
        return create_table_artifact(rows, key=key, description=f"The worst samples of {about}")

    if _told("summary", page):
        _told("worst samples", worst)


def write_report(store: Store, run_id: str, folder: Path) -> None:
    """Put the report of a run into a folder; what goes wrong is logged and costs nothing."""

    def page() -> Any:
        # Jinja2 and the plots take a second to import.
        from claimflow.flows.report.html import write_report

        get_run_logger().info("report: %s", write_report(store, run_id, folder))

    _told("report", page)


def artifact_key(pipeline: str, what: str) -> str:
    """The key of an artifact: of the letters that Prefect allows, the same for every run."""
    name = re.sub("[^a-z0-9]+", "-", pipeline.lower()).strip("-")
    return f"{name or 'pipeline'}-{what}"


def final_state(store: Store, run_id: str) -> State[str]:
    """Failed where a gate failed, with the reason in one line; else what the run came to.

    What nobody can tell and rows that failed are told and do not fail a night.
    """
    outcomes = recorded_outcomes(store, run_id)
    failed = gate_line(outcomes, "fail")
    if failed is not None:
        return Failed(message=failed)
    words = [f"run {run_id}: {run_counts_text(run_steps(store, run_id))}"]
    unclear = gate_line(outcomes, "inconclusive")
    warnings = [line.words for line in judge_lines(store, run_id, []) if line.warning]
    told = [*words, *([unclear] if unclear else []), *warnings]
    return Completed(message="; ".join(told), data=run_id)


def _told(what: str, tell: Callable[[], Any]) -> bool:
    try:
        tell()
    except Exception as error:
        get_run_logger().warning("the %s could not be posted: %r", what, error)
        return False
    return True
