"""axe-core finds nothing to complain of in any page, light or dark, wide or narrow."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from claimflow.flows.viewer.server import ViewServer
from tests.flows.browser import PATIENCE
from tests.flows.report_runs import put_runs
from tests.flows.viewing import serving

SCHEMES = ("light", "dark")
WIDTHS = (1440, 1024, 390)
SHEET = "run=latest&of=verdicts&step=in_reference&who=ann"
PAGES = {
    "runs": "/",
    "trend": "/trend?pipeline=%3Cb%3Ep%3C%2Fb%3E&scores=precision&metric=precision",
    "trends": "/trend?pipeline=%3Cb%3Ep%3C%2Fb%3E",
    "claim": "/claim?run=latest&sample=tower&claim=The+tower+stands+in+Paris.",
    "report": "/run/latest",
    "comparison": "/run/latest?against=previous#sample=tower&claim=1",
    "sql": "/sql",
    "tags": "/tags?run=latest",
    "label": "/label",
    "sheet": f"/label/sheet?{SHEET}",
    "labels": f"/label/results?{SHEET}",
    "error": "/nothing",
}


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    store, _, _ = put_runs(tmp_path_factory.mktemp("view"))
    with serving(store) as view:
        yield view


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_violation(browser: Browser, view: ViewServer, name: str) -> None:
    address = f"http://127.0.0.1:{view.server_port}{PAGES[name]}"
    found = {}
    for scheme in SCHEMES:
        # The policy of the pages forbids what axe puts into them.
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(view.url)
        page.goto(address)
        if "/run/" in address:
            page.wait_for_selector("#list thead th")
        page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
        # Charts are drawn when they are seen, and all of them before a page is printed.
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        expect(page.locator(".chart > p")).to_have_count(0)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for violation in Axe().run(page).response["violations"]:
                places = [node["html"][:200] for node in violation["nodes"][:3]]
                found[f"{scheme} {width} {violation['id']}"] = places
        context.close()
    assert found == {}
