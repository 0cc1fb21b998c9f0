"""The reports of nights: a folder with a page for each run."""

from pathlib import Path

from claimflow.flows.engine.findings.results import run_steps, sample_count
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.tags import PREVIOUS, find_run
from claimflow.flows.pages.run import COMPARED_UP_TO
from claimflow.flows.report.page import html_report


def put_report(store: Store, run_id: str, folder: Path) -> Path:
    """Write the report of a run as `folder`/RUN.html, whole or not at all; returns where.

    It is held against the run before of its pipeline, where there is one. Raises `OSError`
    where the folder cannot be written.
    """
    before = find_run(store, PREVIOUS, before=run_id)
    if sample_count(run_steps(store, run_id)) > COMPARED_UP_TO:
        before = None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_id}.html"
    part = path.with_suffix(".part")
    part.write_text(html_report(store, run_id, against=before), "utf-8")
    part.replace(path)
    return path
