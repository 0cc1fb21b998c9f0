"""The first part of a comparison: answers beside each other, and charts that lead to samples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.quality.comparison import compare
from claimflow.flows.report import answers
from claimflow.flows.report.answers import changed_answers
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, scores
from tests.flows.report_runs import EVIL
from tests.flows.viewing import watched_page

SAME = "This is in both answers. " * 40
ANSWERS = {
    "long": (f"{SAME}It was red.", f"{SAME}It is blue. {SAME}"),
    "short": ("Red.", EVIL),
    "silent": (None, "Blue."),
    "alike": ("Green.", "Green."),
}
SCORES = {
    "long": (0.25, 0.75),
    "short": (1.0, 0.5),
    "silent": ("failed", 0.5),
    "alike": (0.5, 0.5),
}


def steps(side: int) -> dict[str, Table]:
    """The tables of run A (0) or B (1); each has a sample of its own."""
    texts = {name: pair[side] for name, pair in ANSWERS.items()} | {f"only {side}": "White."}
    rows = [
        {"sample_id": name, "user_input": f"{name}? {EVIL}", "response": text}
        for name, text in texts.items()
    ]
    values: dict[str, Any] = {name: pair[side] for name, pair in SCORES.items()}
    return {"samples": Table("samples", rows), "recall": scores("recall", values)}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, str]:
    store = Store(tmp_path_factory.mktemp("compared") / "s.duckdb")
    return store, put_run(store, steps(0)), put_run(store, steps(1))


@pytest.fixture
def page(browser: Browser, compared: tuple[Store, str, str], tmp_path: Path) -> Iterator[Page]:
    store, a, b = compared
    path = tmp_path / "page.html"
    path.write_text(html_report(RunDocument(store, b), against=a), "utf-8")
    with watched_page(browser) as page:
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("#list thead th")
        yield page
        assert page.evaluate("window.hacked ?? null") is None


def state(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).fragment))


def test_answers_that_differ_stand_beside_each_other(page: Page) -> None:
    page.locator("summary", has_text="Answers that differ").click()
    told = page.get_by_text("3 of 4 samples of both runs have another answer in B.")
    expect(told).to_be_visible()
    table = page.locator("table.answers")
    cells = {
        name: row.locator("td").all_inner_texts()
        for row in table.locator("tbody tr").all()
        if (name := row.locator("th").inner_text())
    }
    assert set(cells) == {"long", "short", "silent"}
    assert cells["silent"][:2] == ["no answer", "Blue."]
    assert cells["short"][0] == "Red."
    assert cells["short"][1].startswith("</script><script>window.hacked = 1</script>")
    before, after = cells["long"][:2]
    # Both begin shortly before the first difference.
    assert before.startswith("…")
    assert before.endswith("in both answers. It was red.")
    assert "in both answers. It is blue. This is" in after
    assert after.endswith("…")
    assert len(after) < 310
    assert cells["long"][2].startswith("long? </script>")


@pytest.mark.parametrize("width", [1440, 390])
def test_an_answer_leads_to_its_sample(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("summary", has_text="Answers that differ").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Both answers are seen at once.
    answer = page.locator("table.answers td.text").nth(1).bounding_box()
    assert answer is not None
    assert answer["x"] + answer["width"] <= width
    page.get_by_role("link", name="silent", exact=True).click()
    expect(page.locator("#detail h3")).to_have_text("Sample silent")
    expect(page.get_by_role("region", name="Sample silent")).to_contain_text("A to B")


def test_a_difference_leads_to_the_samples_of_its_metric(page: Page) -> None:
    point = page.locator("[aria-labelledby=comparison] .chart a").first
    assert (point.get_attribute("aria-label") or "").startswith("recall: ")
    point.press("Enter")
    expect(page.locator("#list th[aria-sort=ascending]")).to_have_text("B - A ▲")
    assert state(page) == {"metric": "recall", "sort": "difference"}


def test_a_point_of_the_scores_leads_to_its_sample(page: Page) -> None:
    page.locator("summary", has_text="Scores in A and B, by sample").click()
    points = page.locator("details", has_text="Scores in A and B").locator(".chart a")
    # What has not moved, and what only one run has a score of, has no point.
    expect(points).to_have_count(2)
    labels = {point.get_attribute("aria-label") for point in points.all()}
    assert labels == {"long: A 0.25, B 0.75", "short: A 1, B 0.5"}
    page.get_by_label("short: A 1, B 0.5").click()
    expect(page.locator("#detail h3")).to_have_text("Sample short")
    assert state(page) == {"metric": "recall", "sort": "difference", "sample": "short"}
    page.get_by_label("long: A 0.25, B 0.75").press("Enter")
    expect(page.locator("#detail h3")).to_have_text("Sample long")


def test_only_the_first_answers_are_in_the_table(
    compared: tuple[Store, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, a, b = compared
    monkeypatch.setattr(answers, "MOST", 2)
    found = changed_answers(store, compare(store, a, b), ["silent", "only 1", "long", "short"])
    assert found is not None
    assert [one.sample_id for one in found.pairs] == ["silent", "long"]
    assert "3 of 4 samples" in found.told
    assert "here are 2, those whose scores moved most first." in found.told


def test_a_page_without_claims_says_nothing_of_claims(page: Page) -> None:
    shown = page.locator("#list thead th").all_inner_texts()
    assert shown == ["sample", "question", "mean"]
    assert page.locator("#filters [name=verdict]").count() == 0
    words = page.locator("body").inner_text()
    assert "entailed" not in words
    assert "claim changed" not in words
    page.locator("summary", has_text="Answers that differ").click()
    columns = page.locator("table.answers thead th").all_inner_texts()
    assert columns == ["sample", "answer, A", "answer, B", "question"]


def test_equal_answers_are_said(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    a, b = (put_run(store, steps(0)) for _ in range(2))
    found = html_report(RunDocument(store, b), against=a)
    assert "The samples that both runs have are answered alike." in found
    assert 'class="answers"' not in found
    assert "Scores in A and B, by sample" not in found
