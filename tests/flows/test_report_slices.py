"""The tables of slices in a report: a row per value, a column per metric."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.slice_tables import SliceMetric, slice_tables
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, scores
from tests.flows.report_runs import EVIL
from tests.flows.viewing import watched_page

MEANS = {
    None: (0.6, 0.3),
    "Rome": (0.61, 0.3),
    "Oslo": (0.55, 0.5),
    EVIL: (0.2, 0.2),
    "Bonn": (None, None),
}
"""By topic: faithfulness, and noise sensitivity, of which a lower one is better."""


def summary(metric: str, value: str | None, mean: float | None) -> dict[str, Any]:
    low, high = (None, None) if mean is None else (mean - 0.1, mean + 0.1)
    around = {"low": low, "high": high}
    scored = 0 if mean is None else 3
    counts = {"n": 5, "n_scored": scored, "n_undefined": 4 - scored, "n_failed": 1}
    spread = dict.fromkeys(("micro_mean", "minimum", "median", "maximum"), mean)
    of = {"slice_field": None if value is None else "topic", "slice_value": value}
    return {"scores": metric, "metric": metric, "mean": mean, **of, **around, **counts, **spread}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("slices")
    topics = [topic for topic in MEANS if topic]
    rows = [
        summary(metric, value, means[number])
        for value, means in MEANS.items()
        for number, metric in enumerate(("faithfulness", "noise_sensitivity"))
    ]
    names = [f"s{number}" for number, _ in enumerate(topics)]
    steps = {
        "samples": Table(
            "samples",
            [
                {"sample_id": name, "response": name, "metadata": json.dumps({"topic": topic})}
                for name, topic in zip(names, topics, strict=True)
            ],
        ),
        "faithfulness": scores("faithfulness", dict.fromkeys(names, 0.5)),
        "noise_sensitivity": scores("noise_sensitivity", dict.fromkeys(names, 0.5)),
        "summary": Table("summaries", rows),
    }
    store = Store(folder / "s.duckdb")
    path = folder / "page.html"
    path.write_text(html_report(RunDocument(store, put_run(store, steps))), "utf-8")
    return path.resolve().as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with watched_page(browser) as page:
        page.goto(address)
        page.wait_for_selector("#list thead th")
        page.locator("summary", has_text="By topic").click()
        yield page


def lines(page: Page) -> list[str]:
    """The values of the topic in their order, each by its first four letters."""
    names: list[str] = page.locator("table.slices tbody th").all_inner_texts()
    return [name[:4] for name in names]


def cell(page: Page, value: str, number: int) -> Locator:
    row = page.locator("table.slices tbody tr", has=page.get_by_role("link", name=value)).first
    return row.locator("td").nth(number)


def test_the_worst_value_comes_first(page: Page) -> None:
    # Noise of Oslo is far more than over all; the hostile one has less, but is far less faithful.
    assert lines(page) == ["all ", "</sc", "Oslo", "Rome", "Bonn"]


def test_the_line_above_says_how_a_line_is_read_and_how_lines_are_sorted(page: Page) -> None:
    note = page.locator("section[aria-labelledby=slices] > p").inner_text()
    assert "A line is one value of the field." in note
    assert "sorted by the mean of these distances over all metrics" in note


def test_a_mean_has_a_sign_beside_its_colour(page: Page) -> None:
    shown = {
        (value, number): (cell(page, value, number).get_attribute("class") or "").split()[1:]
        for value in ("Rome", "Oslo", "Bonn")
        for number in (0, 1)
    }
    assert shown == {
        ("Rome", 0): ["same"],
        ("Rome", 1): ["same"],
        ("Oslo", 0): ["worse"],
        ("Oslo", 1): ["far-worse"],
        ("Bonn", 0): [],
        ("Bonn", 1): [],
    }
    expect(cell(page, "Oslo", 1)).to_have_text("0.500 ▼▼ far worse3 of 5")
    expect(cell(page, "Bonn", 0)).to_have_text("-0 of 5")


def test_any_column_sorts_the_worst_first_and_turns_round(page: Page) -> None:
    table = page.locator("table.slices")
    table.get_by_role("button", name="sort by faithfulness").click()
    assert lines(page) == ["all ", "</sc", "Oslo", "Rome", "Bonn"]
    expect(table.locator("th[aria-sort=ascending]")).to_have_text("faithfulness ▲")
    table.get_by_role("button", name="sort by noise_sensitivity").click()
    assert lines(page) == ["all ", "Oslo", "Rome", "</sc", "Bonn"]
    expect(table.locator("th[aria-sort=descending]")).to_have_text("noise_sensitivity ↓ ▼")
    page.keyboard.press("Enter")
    assert lines(page) == ["all ", "</sc", "Rome", "Oslo", "Bonn"]
    table.get_by_role("button", name="sort by topic").click()
    assert lines(page)[-1] == "Rome"


def test_a_cell_leads_to_its_samples_and_the_value_to_all_of_them(page: Page) -> None:
    cell(page, "Oslo", 1).get_by_role("link").click()
    expect(page.locator("#list tbody tr")).to_have_count(1)
    metric = page.locator("#filters [name=metric]")
    assert metric.input_value() == "noise_sensitivity"
    expect(page.locator("#list th[aria-sort=descending]")).to_have_text("noise_sensitivity ▼")
    page.locator("table.slices").get_by_role("link", name="Rome", exact=True).click()
    expect(metric).to_have_value("")
    expect(page.locator("#list tbody tr")).to_have_count(1)


def test_the_distribution_is_that_of_the_samples_that_match(page: Page, address: str) -> None:
    page.goto(f"{address}#metric=faithfulness")
    page.reload()
    page.locator("#spread summary").click()
    bars = page.locator("#spread path[role=graphics-symbol]")
    expect(bars).to_have_count(20)
    expect(page.locator("#spread > p")).to_have_text(
        re.compile("^Distribution of faithfulness over 4 samples; ")
    )
    slice_of = json.dumps(["topic", "Rome"], separators=(",", ":"))
    page.goto(f"{address}#metric=faithfulness&slice={slice_of}")
    page.reload()
    page.locator("#spread summary").click()
    expect(page.locator("#spread [role=graphics-document]")).to_have_attribute(
        "aria-label",
        "Distribution of faithfulness over 1 sample; the highest bar has 1",
    )
    heights = bars.evaluate_all("all => all.map(one => one.getBBox().height)")
    assert [place for place, height in enumerate(heights) if height > 0] == [10]


@pytest.mark.parametrize(
    "told", [{"failure": "reply_invalid"}, {"cause": "the prompt"}, {"slice": '["topic","Paris"]'}]
)
def test_a_link_to_what_no_sample_has_says_so(
    page: Page, address: str, told: dict[str, str]
) -> None:
    page.goto(f"{address}#{urlencode(told)}")
    [(name, value)] = told.items()
    expect(page.get_by_role("alert")).to_have_text(
        f"No sample of this page has {name}={value}: shown without this filter."
    )
    expect(page.locator("#list tbody tr")).to_have_count(4)
    page.locator("table.slices").get_by_role("link", name="Rome", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("")


def test_intervals_and_failed_rows_stand_below(page: Page) -> None:
    page.locator("summary", has_text="Intervals").click()
    rows = page.get_by_role("group", name="Means, by slice and metric").inner_text()
    assert "Oslo\tnoise_sensitivity\t0.500\t0.400 to 0.600\t3 of 5\t1\t1" in rows


def test_the_table_needs_no_script(browser: Browser, address: str) -> None:
    with watched_page(browser, java_script_enabled=False) as page:
        page.goto(address)
        page.locator("summary", has_text="By topic").click()
        assert lines(page) == ["all ", "</sc", "Oslo", "Rome", "Bonn"]
        assert page.locator("table.slices thead").inner_text().strip() == (
            "topic\tfaithfulness\tnoise_sensitivity ↓"
        )


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_page_is_not_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_a_metric_beyond_one_is_compared_on_its_own_scale() -> None:
    def row(value: str | None, mean: float) -> dict[str, Any]:
        return summary("length", value, mean) | {"name": "length"}

    [table] = slice_tables([row("a", 195.0), row("b", 100.0)], [row(None, 200.0)], frozenset())
    assert table.metrics == [SliceMetric("length", 200.0, lower=False)]
    levels = [(value, cells[0].level) for value, cells in table.lines if cells[0]]
    assert levels == [("b", "far-worse"), ("a", "worse")]


def test_a_comparison_says_how_far_each_slice_moved() -> None:
    def row(value: str | None, mean: float | None) -> dict[str, Any]:
        return summary("recall", value, mean) | {"name": "recall"}

    now = [row("a", 0.25), row("b", 0.5), row("new", 0.5)]
    earlier = [row("a", 0.5), row("b", None)]
    [table] = slice_tables(now, [row(None, 0.5)], frozenset(), earlier)
    assert {value: cells[0].change for value, cells in table.lines if cells[0]} == {
        "a": -0.25,
        "b": None,
        "new": None,
    }
