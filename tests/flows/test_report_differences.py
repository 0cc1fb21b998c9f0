"""A sample of a report beside the same sample of another run: texts, contexts and claims."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, claim_id, claims, put_run
from tests.flows.viewing import watched_page


def wide(letter: str) -> str:
    """Many lines of many words, of which the last is the same for every letter."""
    words = [" ".join(f"{letter}{n}.{word}" for word in range(8)) for n in range(300)]
    return "\n".join([*words, "The last line."])


TEXTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "words": (
        {
            "user_input": "Where is the tower?",
            "response": "The tower stands in Paris. <b>It</b> is 300 m high. 東京は大きい。",
            "reference": "It is in Paris.",
            "retrieved_contexts": ["Same.", "Old text here.", "Moved.", "Gone."],
        },
        {
            "user_input": "Where was the tower?",
            "response": "The tower stood in Paris. <i>It</i> is 330 m high. 東京は小さい。",
            "reference": "It is in Paris, France.",
            "retrieved_contexts": ["Same.", "New text here.", "Brand new.", "Moved."],
        },
    ),
    "lines": (
        {"response": wide("a")},
        {"response": wide("c")},
    ),
    "long": ({"response": "old " * 60_000}, {"response": "new " * 60_000}),
}
CLAIMS = (["It is high.", "It is old.", "It stays."], ["It is high.", "It is new.", "It stays."])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("differences")
    store = Store(folder / "s.duckdb")
    runs = [put_run(store, steps(number)) for number in (0, 1)]
    path = folder / "page.html"
    path.write_text(html_report(RunDocument(store, runs[1]), against=runs[0]), "utf-8")
    return path.resolve().as_uri()


def steps(number: int) -> dict[str, Table]:
    said = {"It is high.": ("entailed", "contradicted")[number], "It stays.": "neutral"}
    verdicts = [
        {"claim_id": claim_id("words", claim), "against": "reference", "verdict": verdict}
        for claim, verdict in said.items()
    ]
    return {
        "samples": Table(
            "samples", [{"sample_id": name} | texts[number] for name, texts in TEXTS.items()]
        ),
        "claims": claims({"words": CLAIMS[number]}),
        "verdicts": Table("verdicts", [one | {"passage": None} for one in verdicts]),
    }


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as page:
        yield page


def opened(page: Page, address: str, name: str) -> Locator:
    page.goto(f"{address}#sample={name}")
    expect(page.locator("#detail h3")).to_have_text(f"Sample {name}")
    return page.locator("#detail")


def differing(text: Locator) -> list[str]:
    """What is marked as different in a text, with its sign."""
    return [one or "" for one in text.locator("ins, del").all_text_contents()]


def block(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name, exact=True)


def test_words_that_differ_are_marked_in_both_texts(page: Page, address: str) -> None:
    opened(page, address, "words")
    old, new = block(page, "Response in A"), block(page, "Response in B")
    assert differing(old) == ["−stands", "−b", "−b", "−300", "−大き"]
    assert differing(new) == ["+stood", "+i", "+i", "+330", "+小さ"]
    assert old.locator("ins").count() == new.locator("del").count() == 0
    assert differing(block(page, "Question in A")) == ["−is"]
    assert differing(block(page, "Question in B")) == ["+was"]
    assert differing(block(page, "Reference in B")) == ["+, France"]
    expect(page.locator("#detail .note").first).to_have_text("− only in A, + only in B")
    assert old.locator("b").count() == new.locator("i").count() == 0


def test_the_sign_of_a_verdict_stands_behind_its_claim(page: Page, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    runs = []
    for text in ("Saturn was seen. So.", "Saturn was never seen by us. So."):
        claim = {"claim_id": claim_id("s", "It."), "sample_id": "s", "of": "response"}
        claim |= {"claim": "It.", "start": 0, "end": text.index(".") + 1}
        said = {"claim_id": claim_id("s", "It."), "against": "reference", "passage": None}
        tables = {
            "samples": Table("samples", [{"sample_id": "s", "response": text}]),
            "claims": Table("claims", [claim]),
            "verdicts": Table("verdicts", [said | {"verdict": "contradicted"}]),
        }
        runs.append(put_run(store, tables))
    path = tmp_path / "page.html"
    path.write_text(html_report(RunDocument(store, runs[1]), against=runs[0]), "utf-8")
    opened(page, path.resolve().as_uri(), "s")
    assert block(page, "Response in A").inner_text() == "Saturn was seen.✗ So."
    response = block(page, "Response in B")
    assert response.inner_text() == "Saturn was +never seen+ by us.✗ So."


def test_each_context_says_what_became_of_it(page: Page, address: str) -> None:
    detail = opened(page, address, "words")
    contexts = detail.locator("details.context")
    expect(contexts.locator("summary")).to_have_text(
        [
            "[0] Same.", "[1] changed New text here.", "[2] only in B Brand new.",
            "[3] [2] in A Moved.", "[3] only in A Gone.",
        ]
    )  # fmt: skip
    contexts.nth(1).locator("summary").click()
    assert differing(block(page, "Context 1 in A")) == ["−Old"]
    assert differing(block(page, "Context 1 in B")) == ["+New"]


def test_claims_of_both_runs_stand_on_one_line_flips_first(page: Page, address: str) -> None:
    opened(page, address, "words")
    rows = block(page, "Claims that changed").locator("tbody tr")
    expect(rows.locator("td:nth-child(-n + 4)")).to_have_text(
        [
            "verdict flipped", "It is high.", "✓ entailed", "✗ contradicted",
            "only in A", "It is old.", "– not judged", "-",
            "only in B", "It is new.", "-", "– not judged",
        ]
    )  # fmt: skip
    page.locator("summary", has_text="Claims that are the same in both runs: 1").click()
    cells = block(page, "Claims that are the same").locator("td")
    expect(cells).to_have_text(["It stays.", "? neutral", "? neutral"])
    rows.nth(1).get_by_role("button").click()
    chosen = page.locator("section[aria-label='Response in A'] [aria-expanded=true]")
    expect(chosen).to_contain_text("It is old.")


def test_lines_are_marked_where_too_many_words_differ(page: Page, address: str) -> None:
    detail = opened(page, address, "lines")
    expect(detail.locator(".note")).to_contain_text("too many words differ")
    [lines] = differing(block(page, "Response in B"))
    assert lines == f"+{wide('c').removesuffix('The last line.')}"


def test_texts_that_are_too_long_are_not_compared(page: Page, address: str) -> None:
    detail = opened(page, address, "long")
    expect(detail.locator(".note")).to_contain_text("too long or too different")
    assert detail.locator("ins, del").count() == 0


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_both_texts_fit_into_the_window(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, address, "words")
    assert page.evaluate("document.documentElement.scrollWidth") == width
