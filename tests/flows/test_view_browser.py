"""`claimflow view` as a reader has it: in a real Chromium, beside a tab of another site."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.recorded_runs import put_run, samples, scores
from tests.flows.viewing import serving, watched_page

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
ROLES: tuple[tuple[Literal["button", "link"], str], ...] = (("button", "Win"), ("link", "SQL"))
EVIL = "http://evil.example/"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    store = Store(tmp_path_factory.mktemp("view") / "s.duckdb")
    steps = {
        "samples": samples(["x", HOSTILE], response=HOSTILE),
        "recall": scores("recall", {"x": 0.5, HOSTILE: 0.25}),
    }
    put_run(store, steps, pipeline=HOSTILE)
    put_run(store, steps, pipeline=HOSTILE)
    with serving(store) as view:
        yield view


@pytest.fixture
def page(browser: Browser, view: ViewServer) -> Iterator[Page]:
    """The first page, come to as from a terminal; nothing may be complained of until its end."""
    with watched_page(browser) as page:
        page.goto(view.url)
        yield page


def test_reports_open_work_and_lead_back(page: Page, view: ViewServer) -> None:
    assert page.url == f"http://127.0.0.1:{view.server_port}/"
    page.get_by_role("link", name="what changed").click()
    page.wait_for_selector("#list tbody tr")
    assert page.locator("#list tbody tr").count() == 2
    assert page.evaluate("window.hacked ?? null") is None
    page.get_by_role("button", name="x", exact=True).click()
    expect(page.locator("#detail h3")).to_have_text("Sample x")
    assert page.url.endswith("#sample=x")
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator("#told")).to_have_text("Copied.")
    page.reload()
    expect(page.locator("#detail h3")).to_have_text("Sample x")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_a_query_is_run_and_its_answer_is_text(page: Page) -> None:
    page.get_by_role("link", name="SQL").click()
    # A browser that finds the focus taken before it has given it complains of that.
    page.wait_for_selector("textarea:focus")
    page.fill("textarea", "SELECT sample_id, score FROM latest.scores ORDER BY score")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("table")
    assert page.locator("td").all_inner_texts() == [HOSTILE, "0.25", "x", "0.5"]
    assert page.locator("main script, img, td [style]").count() == 0
    # A style that the policy shut out would leave the browser's own.
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"
    assert page.evaluate("window.hacked ?? null") is None


def test_another_site_can_neither_read_nor_ask(page: Page, view: ViewServer) -> None:
    mine = f"http://127.0.0.1:{view.server_port}"
    form = f"""
        <form method="post" action="{mine}/sql">
        <input name="token" value="{view.token}"><input name="sql" value="SELECT 42">
        <button>Win</button></form><a href="{mine}/sql">SQL</a>
    """
    for role, name in ROLES:
        other = page.context.new_page()
        other.route(EVIL, lambda route: route.fulfill(body=form, content_type="text/html"))
        other.goto(EVIL)
        reading = f"fetch('{mine}/sql').then(() => 'read', () => 'refused')"
        assert other.evaluate(reading) == "refused"
        with other.expect_response(f"{mine}/sql") as answer:
            other.get_by_role(role, name=name).click()
        assert answer.value.status == 403
        assert view.token not in answer.value.text()
        other.close()
