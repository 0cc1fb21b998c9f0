"""A report in `claimflow view`, whose server has the samples, shows what its file shows."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.recorded_runs import claims, put_run, samples, verdicts
from tests.flows.report_runs import EVIL, put_runs
from tests.flows.viewing import Client, serving, watched_page

STATES: list[Mapping[str, str]] = [
    {"sort": "sample"},
    {"sort": "-contradicted"},
    {"sort": "-failed"},
    {"sort": "changed"},
    {"verdict": "neutral"},
    {"verdict": "failed"},
    {"status": "undefined"},
    {"metric": "precision", "status": "scored", "sort": "-score"},
    {"slice": '["topic","Paris"]'},
    {"metric": "precision", "from": "0.2", "to": "0.9"},
    {"metric": "precision", "sort": "difference"},
    {"failure": "timeout"},
    {"changed": "flipped"},
    {"changed": "same"},
    {"cause": "chance"},
    {"text": "Größer"},
    {"text": "GRÖSSER"},
    {"text": "باريس"},
    {"text": "{{ 7 * 7 }}"},
    {"text": "Nothing here."},
]


class Pages:
    """The same comparison in a file and in the viewer."""

    def __init__(self, folder: Path, view: ViewServer, a: str, b: str) -> None:
        self.view, self.a, self.b = view, a, b
        path = folder / "report.html"
        path.write_text(html_report(RunDocument(view.store, b), against=a), "utf-8")
        self.file = path.resolve().as_uri()
        self.served = f"http://127.0.0.1:{view.server_port}/run/{b}?against={a}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    store, a, b = put_runs(folder)
    with serving(store) as view:
        yield Pages(folder, view, a, b)


@pytest.fixture(scope="module")
def page(browser: Browser, pages: Pages) -> Iterator[Page]:
    """A page of a browser that has the key; it may complain of nothing."""
    # The request that a test aborts.
    forgiven = ["Failed to load resource: net::ERR_FAILED"]
    with watched_page(browser, forgiven=forgiven) as page:
        page.goto(pages.view.url)
        yield page
        assert page.evaluate("window.hacked ?? null") is None


def opened(page: Page, address: str) -> Page:
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#matches")).to_contain_text("samples in this page match")
    return page


def listed(page: Page) -> list[list[str]]:
    script = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    found: list[list[str]] = page.locator("#list tr").evaluate_all(script)
    return found


@pytest.mark.parametrize("state", STATES, ids=urlencode)
def test_the_list_is_the_same(page: Page, pages: Pages, state: Mapping[str, str]) -> None:
    fragment = f"#{urlencode(state)}"
    expected = listed(opened(page, pages.file + fragment))
    assert listed(opened(page, pages.served + fragment)) == expected


@pytest.mark.parametrize("name", ["tower", "برج", EVIL, "long", "silent"])
def test_a_sample_is_the_same(page: Page, pages: Pages, name: str) -> None:
    fragment = f"#{urlencode({'sample': escape_controls(name), 'claim': '1'})}"
    found = []
    for address in (pages.file, pages.served):
        opened(page, address + fragment)
        expect(page.locator("#detail h3")).to_have_text(f"Sample {escape_controls(name)}")
        # `innerText` lacks the claims that the browser has not yet drawn.
        shown = page.locator("#detail").text_content() or ""
        found.append(shown.replace("This claim over the runs", "").split())
    assert found[0] == found[1]


def test_the_reader_searches_opens_and_goes_on(page: Page, pages: Pages) -> None:
    opened(page, pages.served)
    expect(page.locator("#list tbody tr")).to_have_count(5)
    page.locator("#filters [name=text]").fill("tower")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    page.locator("#filters [name=text]").fill("")
    expect(page.locator("#list tbody tr")).to_have_count(5)
    page.keyboard.press("Tab")
    page.locator("#list button.open").first.click()
    first = page.locator("#detail h3").inner_text()
    page.keyboard.press("j")
    expect(page.locator("#detail h3")).not_to_have_text(first)
    page.go_back()
    expect(page.locator("#detail h3")).to_have_text(first)


def test_a_sample_that_is_gone_is_said(page: Page, pages: Pages) -> None:
    opened(page, pages.served)
    page.route("**/sample?*", lambda route: route.abort())
    page.locator("#list button.open").first.click()
    expect(page.locator("#trouble")).to_contain_text("The sample cannot be read")
    page.unroute("**/sample?*")


def test_the_server_gives_samples_and_searches(pages: Pages) -> None:
    client = Client(pages.view)
    status, text, headers = client.ask(f"/run/{pages.b}/sample?id=tower&against={pages.a}")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(text)["changes"]["claims"]
    status, text, _ = client.ask(f"/run/latest/sample?id={quote(escape_controls(EVIL))}")
    assert (status, json.loads(text)["sample_id"]) == (200, escape_controls(EVIL))
    assert "changes" not in json.loads(text)
    for path in ("/run/latest/sample?id=none", "/run/none/sample?id=tower", "/run/latest/other"):
        assert client.ask(path)[0] == 404
    assert json.loads(client.ask("/run/latest/search?text=GR%C3%96%C3%9FER")[1]) == ["tower"]
    everything = json.loads(client.ask("/run/latest/search")[1])
    assert len(everything) == 5
    for path in ("/run/latest/sample?id=tower", "/run/latest/search?text=a"):
        assert client.ask(path, Cookie=None)[0] == 403


def test_thousands_of_claims_are_shown_in_parts(browser: Browser, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    texts = [f"Claim number {number}." for number in range(700)]
    made = [
        put_run(
            store,
            {
                "samples": samples(["many"], response=text),
                "response_claims": claims({"many": texts}),
                "judged": verdicts({("many", one): verdict for one in texts}),
            },
        )
        for text, verdict in (("before", "entailed"), ("after", "neutral"))
    ]
    path = tmp_path / "report.html"
    path.write_text(html_report(RunDocument(store, made[1]), against=made[0]), "utf-8")
    with watched_page(browser) as page:
        opened(page, f"{path.as_uri()}#sample=many&claim=650")
        response = page.get_by_role("region", name="Response in B")
        expect(response.locator("p.parts")).to_contain_text("of 700")
        # Wherever the chosen one is, it is shown.
        expect(response.locator("button.claim[aria-expanded=true]")).to_have_count(1)
        while response.get_by_role("button", name="previous claims").is_enabled():
            response.get_by_role("button", name="previous claims").click()
        expect(response.locator("p.parts")).to_contain_text("Claims 1 to 300 of 700")
        response.get_by_role("button", name="next claims").click()
        expect(response.locator("button.claim")).to_have_count(300)
        expect(response.locator("ol.claims")).to_have_attribute("start", "301")
        changed = page.get_by_role("group", name="Claims that changed")
        expect(changed.locator("tbody tr")).to_have_count(300)
        expect(page.locator("#detail")).to_contain_text("The first 300 of 700, flips first.")


def test_the_verdicts_shown_are_those_of_the_metric(browser: Browser, tmp_path: Path) -> None:
    store, _, run_id = put_runs(tmp_path)
    path = tmp_path / "report.html"
    path.write_text(html_report(RunDocument(store, run_id)), "utf-8")
    with watched_page(browser) as page:
        opened(page, f"{path.as_uri()}#sample=tower")
        steps = page.locator("#detail select").first
        names = steps.locator("option").all_inner_texts()
        assert len(names) == 2
        steps.select_option(names[1])
        assert f"step={names[1]}" in page.url
        page.reload()
        expect(page.locator("#detail select").first).to_have_value(names[1])
