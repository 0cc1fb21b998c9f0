"""A run as Markdown: what failed, what it cost, and what changed since the run before."""

from pathlib import Path

import pytest

from claimflow.flows.report.markdown import run_markdown, worst_samples
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import vote_text
from claimflow.flows.store.results import chosen_run
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import STEPS, Judged, about


def test_failures_calls_and_changes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(fault=faults.where(about("two"), faults.status(400))) as endpoint:
        judged = Judged(tmp_path, endpoint)
        steps = STEPS | {"summary": {"use": "summarize_scores"}}
        judged.write(["one", "two"], steps=steps)
        judged.run()
        first = chosen_run(judged.store, "latest")
        page = run_markdown(RunDocument(judged.store, first))
        assert "2 samples, 5 steps made, 0 reused, 4 rows failed; store `" in page
        assert "| `factual_correctness` | 0.333 | - to - | 1 | 0 | 1 | 2 |" in page
        assert "- `response_in_reference`: 3 failed bad_request: `" in page
        assert "- `judge hosted_vllm/fake: 2 calls, " in page
        assert "No whole run of its pipeline is older" in page
        assert [row["sample"] for row in worst_samples(RunDocument(judged.store, first))] == [
            "`one`"
        ]

        endpoint.behaviour.fault = None
        judged.run()
    second = chosen_run(judged.store, "latest")
    page = run_markdown(RunDocument(judged.store, second))
    assert "### What changed from A to B" in page
    assert f"- A: `{first}`" in page
    monkeypatch.setattr("claimflow.flows.report.markdown.MAX_COMPARED", 1)
    assert f"What changed: `claimflow diff {first} {second}`" in run_markdown(
        RunDocument(judged.store, second)
    )


def test_votes_are_reported_if_there_are_any() -> None:
    assert vote_text(0, 0) is None
    assert vote_text(0, 1) == "0 of 1 verdict unstable"
    see = 'see `claimflow sql "SELECT * FROM unstable"`'
    assert vote_text(2, 3) == f"2 of 3 verdicts unstable: {see}"
