"""Sentences that claim nothing, and ambiguous claims, in a whole run: kept, shown, not counted."""

import json
import re
from pathlib import Path

import duckdb
import pytest

import claimflow
from claimflow.flows.quality.claim_audit import audit_claims
from claimflow.flows.quality.correction_sheets import sheet_rows
from claimflow.flows.report.html import html_report
from claimflow.flows.report.json_document import run_json
from claimflow.flows.report.markdown import run_markdown
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.run_text import ambiguity_text
from claimflow.flows.result import SampleTrace
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store

GUIDE = (Path(__file__).parents[2] / "flows/guides/sql.md").read_text("utf-8")

PASSAGES = ["The tower stands in Paris. The capital of France is Paris."]
ANSWERS = [
    {
        "sample_id": "tower",
        "user_input": "Where is the tower?",
        "response": "Hi Zoe\u0308! 😀\n\n👩‍👩‍👧 The tower stands in Paris.\n\n## Cafe\u0301 😀\n\n"
        "Shall I say more?",
        "retrieved_contexts": PASSAGES,
    },
    {
        "sample_id": "chat",
        "user_input": "Hello",
        "response": "Hello there! Let me know if you need more.",
        "retrieved_contexts": PASSAGES,
    },
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run, in which a claim is ambiguous."""
    folder = tmp_path_factory.mktemp("non_claims")
    claimflow.evaluate(ANSWERS, metrics=["faithfulness"], store=folder / "s.duckdb")
    with duckdb.connect(str(folder / "s.duckdb")) as connection:
        connection.execute("UPDATE stored.claims SET ambiguous = 'It' WHERE claim IS NOT NULL")
    return folder


@pytest.fixture
def result(folder: Path) -> claimflow.Result:
    return claimflow.connect(folder / "s.duckdb").result()


@pytest.fixture
def document(folder: Path, result: claimflow.Result) -> RunDocument:
    return RunDocument(Store(folder / "s.duckdb"), result.run_id)


def test_the_view_has_the_words_of_each_sentence(folder: Path) -> None:
    store = Store(folder / "s.duckdb")
    sql = "SELECT kind, text FROM latest.non_claims ORDER BY sample_id DESC, start"
    assert query(store, sql).rows() == [
        ("greeting", "Hi Zoe\u0308! 😀"),
        ("heading", "## Cafe\u0301 😀"),
        ("question", "Shall I say more?"),
        ("greeting", "Hello there!"),
        ("offer", "Let me know if you need more."),
    ]
    section = GUIDE.partition("\n### `non_claims`\n")[2].partition("\n### ")[0]
    (guide,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    assert query(store, guide).rows()[0][:2] == ("greeting", 2)


def test_they_are_not_judged_and_count_as_no_claims(result: claimflow.Result) -> None:
    assert result.claims["status"].to_list() == ["made"]
    assert result.verdicts["sample_id"].unique().to_list() == ["tower"]
    chat = result.scores.filter(sample_id="chat").row(0, named=True)
    assert (chat["status"], chat["reason"]) == ("undefined", "no claims in the response")
    assert result.failures.is_empty()


def test_checks_and_sheets_have_only_claims(folder: Path, result: claimflow.Result) -> None:
    store = Store(folder / "s.duckdb")
    # The ambiguous claim was written by hand; sentences without a claim are no fault.
    assert [fault.table for fault in check_store(store).faults] == ["claims"]
    (step,) = audit_claims(store, result.run_id, examples=1).steps
    assert (step.claims, step.failed) == (1, 0)
    sheet = sheet_rows(store, result.run_id, "claims")
    assert sheet.select("sample_id", "status").rows() == [("chat", "none"), ("tower", "made")]


def test_a_sample_shows_them_with_their_kind(folder: Path, result: claimflow.Result) -> None:
    store = Store(folder / "s.duckdb")
    trace = SampleTrace(store, result.run_id, "tower")
    shown = repr(trace)
    assert "no claim (greeting): Hi Zoe" in shown
    assert "no claim (heading): ## Caf" in shown
    assert "1 claim\n" in shown
    assert "(unclear: It)" in shown
    assert "unclear: It" in trace._repr_html_()
    assert [one["kind"] for one in trace.rows["non_claims"]] == ["greeting", "heading", "question"]
    assert len(trace.rows["claims"]) == 1
    assert "no claim (offer)" in repr(result.sample("chat"))


def test_reports_count_ambiguous_claims(document: RunDocument, folder: Path) -> None:
    line = "1 of 1 claim is ambiguous: FROM latest.claims WHERE ambiguous IS NOT NULL"
    assert document.ambiguity_line == line
    assert line in run_markdown(document)
    assert json.loads(run_json(document))["ambiguous_claims"] == {"count": 1, "of": 1}
    rows = query(Store(folder / "s.duckdb"), line.partition(": ")[2])
    assert rows["ambiguous"].to_list() == ["It"]
    assert line in html_report(document)


def test_the_line_on_ambiguous_claims_fits_a_terminal() -> None:
    assert ambiguity_text(0, 120) is None
    line = ambiguity_text(3, 120)
    assert line is not None
    assert len(line) <= 80
