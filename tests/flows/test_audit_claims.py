"""The claim audit: each check, the counts of a run, and its reports."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.quality.claim_audit import (
    CHECKS,
    ClaimAudit,
    Example,
    Finding,
    RecordedClaim,
    audit_claims,
    audit_text,
)
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key
from tests.flows.recorded_runs import Table, put_run

README = (Path(__file__).parents[2] / "flows/guides/quality.md").read_text("utf-8")
TOWER = "The tower stands in Paris. It was built in 1889 by Eiffel."
STANDS = "The tower stands in Paris."
BUILT = "The tower was built in 1889 by Eiffel."


@pytest.mark.parametrize(
    ("claims", "findings"),
    [
        ([STANDS, BUILT], []),
        ([STANDS, "It was built in 1889 by Eiffel."], [("open_pronoun", 1, ["It"])]),
        ([STANDS, "The tower was built in 1887 by Eiffel."], [("new_words", 1, ["1887"])]),
        (
            [STANDS, "Der Turm wurde 1889 von Eiffel und der Stadt gebaut."],
            [
                ("new_words", 1, ["der", "turm", "wurde", "von", "und", "stadt", "gebaut"]),
                ("other_language", 1, ["German"]),
            ],
        ),
        ([BUILT], [("uncovered", STANDS, ["stands", "paris"])]),
    ],
)
def test_the_claims_of_a_text(claims: list[str], findings: list[Any]) -> None:
    looked = audit_text(TOWER, [RecordedClaim(claim) for claim in claims])
    printed = [
        (check, claims[claim_text] if claim_text == 1 else claim_text, words)
        for check, claim_text, words in findings
    ]
    assert looked.findings == [Finding(*one) for one in printed]


def test_each_check_counts_what_it_covers() -> None:
    claims = [STANDS, BUILT, "Paris 1889."]
    assert audit_text(TOWER, [RecordedClaim(claim) for claim in claims]).covered == {
        "repeated": 3,
        "unplaced": 3,
        "new_words": 3,
        "open_pronoun": 3,
        "other_language": 1,
        "uncovered": 2,
    }
    assert audit_text(None, [RecordedClaim(STANDS)]).covered == {"repeated": 1, "open_pronoun": 1}


def test_a_claim_may_be_in_any_language_of_its_text() -> None:
    text = f"{TOWER} Der Turm ist nicht in der Stadt, die auch am Fluss liegt."
    german = RecordedClaim("Der Turm ist nicht in der Stadt, die auch am Fluss liegt.")
    assert audit_text(text, [RecordedClaim(TOWER), german]).findings == []
    assert (
        audit_text("Der Turm.", [RecordedClaim("It is the tower of the city.")]).covered[
            "other_language"
        ]
        == 0
    )


def test_pronouns_are_checked_in_english_only() -> None:
    text = "Das Haus ist alt, und der Turm steht nicht in der Stadt."
    assert audit_text(text, [RecordedClaim("Her mit dem Haus.")]).covered["open_pronoun"] == 0


def claim(
    sample: str, claim_text: str | None, start: int | None = 0, **more: Any
) -> dict[str, Any]:
    key = content_key("claim", sample, "response", claim_text)
    row = {
        "claim_id": key,
        "sample_id": sample,
        "of": "response",
        "claim": claim_text,
        "start": start,
    }
    return row | {"end": start if start is None else start + 1} | more


ROWS = [
    claim("a", STANDS),
    claim("a", "the tower  stands in “Paris”", 5),
    claim("a", BUILT, None),
    claim("b", STANDS),
    claim("c", None, None, status="failed", failure="timeout"),
    claim("e", "He left. \x1b[31m", None),
]
SAMPLES = [
    {"sample_id": "a", "response": TOWER},
    {"sample_id": "b", "response": TOWER + " <b>The lift has 7 doors.</b>"},
    {"sample_id": "c", "response": TOWER},
    {"sample_id": "d", "response": "Cheese is milk."},
    {"sample_id": "e", "response": None},
    {"sample_id": "f", "response": " "},
]
CLAIMS_RUN = {"samples": Table("samples", SAMPLES), "response_claims": Table("claims", ROWS)}
NO_CLAIMS_RUN = {"samples": Table("samples", [{"sample_id": "a"}])}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("audit") / "claims.duckdb")
    put_run(store, CLAIMS_RUN)
    put_run(store, NO_CLAIMS_RUN, pipeline="none")
    return store


def test_the_query_of_the_readme(tmp_path: Path) -> None:
    """It shows the claims without a place of the latest run of each pipeline."""
    chapter = README.partition("\n## Claim audit\n")[2].partition("\n## ")[0]
    sql = chapter.partition("```sql\n")[2].partition("```")[0]
    store = Store(tmp_path / "claims.duckdb")
    put_run(store, CLAIMS_RUN)
    put_run(store, NO_CLAIMS_RUN, pipeline="none")
    unplaced = [BUILT, "He left. \x1b[31m"]
    assert query(store, sql, seconds=9)["claim"].to_list() == unplaced
    put_run(store, NO_CLAIMS_RUN)
    assert query(store, sql, seconds=9).height == 0
    everywhere = query(store, sql.replace("latest.", ""), seconds=9)
    assert everywhere["claim"].to_list() == unplaced


def test_the_readme_lists_every_check() -> None:
    chapter = README.partition("\n## Claim audit\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", chapter, re.MULTILINE) == list(CHECKS)


@pytest.fixture(scope="module")
def run_id(store: Store) -> str:
    found: str = query(
        store, "SELECT run_id FROM audit.runs WHERE pipeline = 'p'", seconds=9
    ).item()
    return found


def counts(found: ClaimAudit) -> Mapping[str, tuple[int, int]]:
    (step,) = found.steps
    assert [one.check for one in step.checks] == list(CHECKS)
    return {one.check: (one.found, one.of) for one in step.checks}


def test_the_claims_of_a_run(store: Store, run_id: str) -> None:
    found = audit_claims(store, run_id, examples=1)
    (step,) = found.steps
    assert (found.samples, found.every) == (6, 6)
    assert step[:5] == ("response_claims", "response", 5, 5, 1)
    assert counts(found) == {
        "repeated": (1, 5),
        "unplaced": (1, 4),
        "new_words": (0, 4),
        "open_pronoun": (1, 5),
        "other_language": (0, 1),
        "uncovered": (3, 6),
    }
    by_check = {one.check: one.examples for one in step.checks}
    assert by_check["repeated"] == [Example("a", "the tower  stands in “Paris”", [STANDS])]
    assert by_check["unplaced"] == [Example("a", BUILT, [])]
    # Numbers weigh most, then the count of words: it is no matter which sentence was first.
    assert by_check["uncovered"] == [
        Example("b", "<b>The lift has 7 doors.</b>", ["b", "lift", "7", "doors"])
    ]


def test_some_samples_are_chosen_by_a_hash(store: Store, run_id: str) -> None:
    some = audit_claims(store, run_id, examples=1, samples=2)
    assert (some.samples, some.every, some.steps[0].texts) == (2, 6, 2)
    assert some == audit_claims(store, run_id, examples=1, samples=2)


def test_a_run_without_claims(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--store", str(store.path), "--live"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["none of its steps makes claims"]


def test_the_command_prints_the_findings(
    store: Store, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", run_id, "--store", str(store.path), "--live", "--limit", "2"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"run {run_id}: all 6 samples",
        "",
        "response_claims: 5 claims of 5 responses, 1 of which failed",
        "  1 of 5 claims repeat another claim of the text",
        f"    a: the tower  stands in “Paris” (as: {STANDS})",
        "  1 of 4 claims cannot be located in the text",
        f"    a: {BUILT}",
        "  0 of 4 claims have words that are not in the text",
        "  1 of 5 claims have a pronoun without the noun it stands for",
        "    e: He left. ␛[31m (He)",
        "  0 of 1 claims are in another language than the text",
        "  3 of 6 sentences of the texts are covered by no claim",
        "    b: <b>The lift has 7 doors.</b> (b, lift, 7, doors)",
        "    b: It was built in 1889 by Eiffel. (built, 1889, eiffel)",
        "    and 1 more",
    ]


def test_the_document_keeps_its_keys(
    store: Store, run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", run_id, "--store", str(store.path), "--live", "--format", "json"]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["run_id", "samples", "every", "steps"]
    (step,) = document["steps"]
    assert list(step) == ["step", "side", "claims", "texts", "failed", "checks"]
    assert step["checks"][0] == {
        "check": "repeated",
        "found": 1,
        "of": 5,
        "examples": [{"sample_id": "a", "said": "the tower  stands in “Paris”", "words": [STANDS]}],
    }


def test_the_report_lists_findings_as_text(store: Store, run_id: str) -> None:
    page = html_report(RunDocument(store, run_id))
    assert "Faults of the claims themselves, found without the judges. Read: all 6 samples." in page
    assert "3 of 6 sentences of the texts are covered by no claim" in page
    assert "&lt;b&gt;The lift has 7 doors.&lt;/b&gt;" in page


PAIRS = [
    ("Paris is large.", "paris is large", True),
    ("Paris, Rome, and Bern.", "Paris, Rome and Bern.", True),
    ("ПАРИЖ большой.", "париж большой", True),
    ("Cafe\u0301s are open.", "Cafés are open.", True),
    ("It’s *large*.", "it's large!", True),
    ("C# is fast.", "C is fast.", False),
    ("It has 3.14 m.", "It has 314 m.", False),
    ("It is -5 degrees.", "It is 5 degrees.", False),
    ("Paris is large.", "Paris is not large.", False),
]


def test_which_claims_count_as_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path / "same.duckdb")
    rows = [
        row
        for number, (first, second, _) in enumerate(PAIRS)
        for row in (
            claim(str(number), first, 0),
            claim(str(number), second, 1),
            claim(f"{number} elsewhere", second),
        )
    ]
    put_run(store, {"claims": Table("claims", rows)})
    sql = "SELECT sample_id, claim, repeats FROM repeated_claims ORDER BY sample_id"
    assert query(store, sql, seconds=9).rows() == [
        (str(number), second, first) for number, (first, second, same) in enumerate(PAIRS) if same
    ]
