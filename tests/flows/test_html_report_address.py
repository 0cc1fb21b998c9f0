"""The address of a report says what is shown: links, Back, and keys, in Chromium."""

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from tests.flows.report_runs import EVIL, put_runs
from tests.flows.viewing import watched_page


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of run B against run A."""
    folder = tmp_path_factory.mktemp("pages")
    store, a, b = put_runs(folder)
    path = folder / "against.html"
    path.write_text(html_report(RunDocument(store, b), against=a), "utf-8")
    return path.resolve().as_uri()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in which the browser may complain of nothing."""
    with watched_page(browser) as page:
        yield page


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("#list thead th")
    return page


def told(page: Page) -> dict[str, str]:
    """What the address of a page says."""
    return dict(parse_qsl(urlsplit(page.url).fragment, keep_blank_values=True))


def rows(page: Page) -> list[str]:
    return [text or "" for text in page.locator("#list tbody th.id").all_text_contents()]


def open_sample(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def choose_claim(page: Page, text: str) -> None:
    page.locator("#detail button.claim", has_text=text).last.click()


def test_a_link_leads_to_the_same_list_sample_and_claim(page: Page, address: str) -> None:
    opened(page, address)
    page.locator("#filters [name=metric]").select_option("precision")
    page.locator("#filters [name=from]").fill("0")
    page.locator("#filters [name=text]").fill("größer")
    page.get_by_role("button", name="sort by sample").click()
    page.get_by_role("button", name="sort by sample").click()
    open_sample(page, "tower")
    choose_claim(page, "Der Turm")
    state = told(page)
    assert state.pop("claim").isdigit()
    assert state == {
        "text": "größer", "metric": "precision", "from": "0", "sort": "-sample", "sample": "tower",
    }  # fmt: skip
    again = page.context.new_page()
    opened(again, page.url)
    assert rows(again) == rows(page) == ["tower"]
    assert again.locator("th[aria-sort=descending]").inner_text() == "sample ▼"
    assert again.locator("#detail h3").inner_text() == "Sample tower"
    chosen = again.locator("#detail button.claim[aria-expanded=true]")
    assert "Der Turm wächst größer." in chosen.inner_text()
    assert again.url == page.url
    again.close()


def test_a_claim_of_the_first_run_has_a_link_too(page: Page, address: str) -> None:
    opened(page, f"{address}#sample=tower&claim=A1")
    chosen = page.locator("#detail button.claim[aria-expanded=true]")
    assert chosen.count() == 1
    assert "The tower stands in Paris." in chosen.inner_text()


def test_back_undoes_what_was_opened_and_chosen(page: Page, address: str) -> None:
    opened(page, address)
    page.locator("#filters [name=text]").fill("tower")
    open_sample(page, "tower")
    choose_claim(page, "Der Turm")
    page.go_back()
    expect(page.locator("#detail button.claim[aria-expanded=true]")).to_have_count(0)
    assert page.locator("#detail").is_visible()
    page.go_back()
    expect(page.locator("#detail")).to_be_hidden()
    assert page.locator("#filters [name=text]").input_value() == "tower"
    page.go_forward()
    expect(page.locator("#detail h3")).to_have_text("Sample tower")


def test_a_sample_that_is_not_in_the_page_is_said(page: Page, address: str) -> None:
    opened(page, f"{address}#sample=%3Cb%3Enone")
    trouble = page.locator("#trouble")
    expect(trouble).to_have_text("The sample <b>none is not in this page.")
    opened(page, f"{address}#sample=tower&claim=99&sort=nothing&metric=nothing&from=x&slice=[")
    expect(page.locator("#detail h3")).to_have_text("Sample tower")
    assert page.locator("#detail button.claim[aria-expanded=true]").count() == 0


def test_a_claim_that_a_sample_does_not_have_is_said(page: Page, address: str) -> None:
    opened(page, f"{address}#sample=tower&claim=%3Cb%3E99")
    said = page.locator("#detail").get_by_role("alert")
    expect(said).to_have_text("✗ The sample has no claim <b>99.")
    expect(said).to_be_in_viewport()
    choose_claim(page, "Der Turm")
    expect(said).to_have_count(0)


def test_hostile_names_travel_in_the_address_as_text(page: Page, address: str) -> None:
    opened(page, address)
    name = escape_controls(EVIL)
    open_sample(page, name)
    assert told(page)["sample"] == name
    again = page.context.new_page()
    opened(again, page.url)
    assert again.locator("#detail h3").inner_text() == f"Sample {name}"
    assert again.evaluate("window.hacked ?? null") is None
    again.close()


LINKS = [
    ("metrics", "precision", {"metric": "precision", "sort": "score"}, 5),
    ("comparison", "precision", {"metric": "precision", "sort": "difference"}, 5),
    ("slices", "Paris", {"sort": "score", "slice": '["topic","Paris"]'}, 2),
    ("cost", "timeout", {"failure": "timeout"}, 1),
]


@pytest.mark.parametrize(("section", "link", "state", "count"), LINKS)
def test_a_figure_leads_to_its_samples(
    page: Page, address: str, section: str, link: str, state: dict[str, str], count: int
) -> None:
    opened(page, address)
    place = page.locator(f"section[aria-labelledby={section}]")
    for summary in place.locator("summary").all():
        summary.click()
    place.get_by_role("link", name=link, exact=True).first.click()
    expect(page.locator("#list tbody tr")).to_have_count(count)
    assert told(page) == state
    expect(page.locator("#samples")).to_be_in_viewport()
    page.go_back()
    expect(page.locator("#list tbody tr")).to_have_count(5)


def test_the_cause_of_a_change_leads_to_the_samples_that_changed(page: Page, address: str) -> None:
    opened(page, address)
    place = page.locator("section[aria-labelledby=comparison]")
    place.locator("td a").first.click()
    expect(page.locator("#list tbody tr")).to_have_count(1)
    assert rows(page) == ["tower"]
    page.get_by_role("link", name="precision", exact=True).first.click()
    cells = page.locator("#list tbody tr").first.locator("td")
    expect(cells.last).to_have_text("-0.500")


def test_a_bar_of_a_distribution_leads_to_its_samples(page: Page, address: str) -> None:
    opened(page, address)
    metrics = page.locator("section[aria-labelledby=metrics]")
    bars = metrics.locator("svg a")
    expect(bars).to_have_count(3)
    metrics.get_by_role("link", name="precision: 0.25 – 0.3; samples: 1").press("Enter")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    assert rows(page) == ["long"]
    bounds = {"metric": "precision", "from": "0.25", "to": "0.25", "sort": "score"}
    assert told(page) == bounds
    # A bar of one sample is low; the whole column above it is hit.
    bars.last.click(position={"x": 3, "y": 2})
    expect(page.locator("#list tbody th.id")).to_have_text(["برج"])


def test_keys_go_on_and_explain_themselves(page: Page, address: str) -> None:
    opened(page, address)
    names = rows(page)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#detail h3")).to_have_text(f"Sample {names[1]}")
    page.keyboard.press("j")
    expect(page.locator("#detail h3")).to_have_text(f"Sample {names[2]}")
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(page.locator("#detail h3")).to_have_text(f"Sample {names[0]}")
    page.keyboard.press("?")
    help_box = page.get_by_role("dialog", name="Keys")
    expect(help_box).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_box).to_be_hidden()
    # Escape closed the help alone.
    expect(page.locator("#detail")).to_be_visible()
    page.get_by_role("button", name="Keys").click()
    help_box.get_by_role("button", name="Close").click()
    expect(help_box).to_be_hidden()


def test_the_link_of_a_sample_is_copied(page: Page, address: str) -> None:
    opened(page, f"{address}#sample=tower&claim=1")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#told")).to_have_text("Copied.")
    page.locator("#filters [name=text]").focus()
    page.keyboard.press("Control+v")
    assert page.locator("#filters [name=text]").input_value().endswith("#sample=tower&claim=1")
