"""Rows of the list of samples: metadata that JavaScript would read otherwise than Python."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, scores
from tests.flows.viewing import watched_page

WIDE = 1_790_000_000_000_000_001
METADATA: dict[str, dict[str, object]] = {
    "a": {"constructor": 10, "__proto__": "x", "tweet": WIDE},
    "b": {"constructor": 9, "tweet": WIDE + 1},
    "c": {"tweet": 7},
}


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    store = Store(tmp_path / "s.duckdb")
    rows = [
        {"sample_id": name, "response": "It is.", "metadata": json.dumps(found)}
        for name, found in METADATA.items()
    ]
    tables = {
        "samples": Table("samples", rows),
        "recall": scores("recall", dict.fromkeys(METADATA, 0.5)),
    }
    run_id = put_run(store, tables)
    path = tmp_path / "page.html"
    path.write_text(html_report(RunDocument(store, run_id)), "utf-8")
    with watched_page(browser) as page:
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("#list thead th")
        yield page


def column(page: Page, name: str) -> dict[str, str]:
    """The column of a metadata field by sample, in the order of the rows."""
    page.evaluate(
        "address => { location.hash = address; }", f"columns={json.dumps([f'field {name}'])}"
    )
    expect(page.locator("#list thead th").nth(1)).to_contain_text(name)
    return values(page)


def values(page: Page) -> dict[str, str]:
    rows = page.locator("#list tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").inner_text() for row in rows}


def test_fields_with_the_names_of_members_of_every_object(page: Page) -> None:
    assert column(page, "__proto__") == {"a": "x", "b": "-", "c": "-"}
    assert column(page, "constructor") == {"a": "10", "b": "9", "c": "-"}
    page.get_by_role("button", name="sort by constructor").click()
    assert list(values(page).items()) == [("b", "9"), ("a", "10"), ("c", "-")]


def test_integers_that_no_browser_can_hold_are_shown_and_found(page: Page) -> None:
    assert column(page, "tweet") == {"a": str(WIDE), "b": str(WIDE + 1), "c": "7"}
    page.locator("#filters [name=text]").fill(str(WIDE + 1))
    expect(page.locator("#matches")).to_have_text("1 of 3 samples in this page match")
