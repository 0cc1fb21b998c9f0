"""What became of the steps of a run, in words."""

import polars as pl

from claimflow.flows.engine.findings.results import sample_count
from claimflow.flows.engine.steps.runner import Made
from claimflow.flows.pages.words import counted


def made_words(made: Made) -> str:
    """A finished step in one line: rows, whether reused, taken over, failed."""
    failures = f", {made.artifact.failures} failed" if made.artifact.failures else ""
    how = "reused" if made.reused else f"made in {made.seconds:.1f} s"
    taken = f", those of {counted(made.taken_over, 'sample')} taken over" if made.taken_over else ""
    return f"{counted(made.artifact.row_count, 'row')} {how}{taken}{failures}"


def run_counts(steps: pl.DataFrame) -> str:
    """The steps of a run, as `results.run_steps` gives them, counted in one line."""
    reused, failures = int(steps["reused"].sum()), int(steps["failures"].sum())
    failed = f", {counted(failures, 'row')} failed" if failures else ""
    made = f"{counted(steps.height - reused, 'step')} made, {reused} reused{failed}"
    return f"{counted(sample_count(steps), 'sample')}, {made}"
