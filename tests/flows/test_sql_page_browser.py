"""The script of the SQL page in Chromium: completion, running and cancelling, the last queries."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.recorded_runs import put_run, samples, scores
from tests.flows.viewing import serving, watched_page

HOSTILE = "</script><img src=x onerror='window.hacked = 1'>"
SLOW = "SELECT count(*) FROM range(100000000) AS a, range(100000) AS b"
SCORES = "SELECT sample_id, score FROM latest.scores ORDER BY score"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    store = Store(tmp_path_factory.mktemp("view") / "s.duckdb")
    recall = scores("recall", {"x": 0.5, HOSTILE: 0.25})
    put_run(store, {"samples": samples(["x", HOSTILE]), "recall": recall})
    with serving(store) as view:
        yield view


@pytest.fixture
def page(browser: Browser, view: ViewServer) -> Iterator[Page]:
    """The SQL page; the browser complains of a wrong query alone."""
    wrong = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
    with watched_page(browser, forgiven=[wrong]) as page:
        open_page(page, view)
        yield page


def open_page(page: Page, view: ViewServer) -> None:
    page.goto(view.url)
    page.goto(f"http://127.0.0.1:{view.server_port}/sql")
    # A browser that finds the focus taken before it has given it complains of that.
    page.wait_for_selector("textarea:focus")


def write(page: Page, text: str) -> None:
    """Type a text in place of the query."""
    page.locator("#query").fill("")
    page.locator("#query").press_sequentially(text)


def names(page: Page) -> list[str]:
    return page.locator("#names [role=option] span:first-child").all_inner_texts()


def sql(page: Page) -> str:
    return page.locator("#query").input_value()


def answered(page: Page, text: str) -> None:
    page.fill("#query", text)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")


def test_tables_are_completed_after_from(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    write(page, "SELECT 1 FROM l")
    expect(page.locator("#names")).to_be_hidden()
    page.keyboard.type("a")
    expect(page.locator("#names")).to_be_visible()
    assert all(name.startswith("latest.") for name in names(page))
    editor = page.locator("#query")
    expect(editor).to_have_attribute("aria-activedescendant", "name-0")
    page.keyboard.press("ArrowDown")
    expect(editor).to_have_attribute("aria-activedescendant", "name-1")
    expect(page.locator("#name-1")).to_have_attribute("aria-selected", "true")
    second = names(page)[1]
    page.keyboard.press("Enter")
    assert sql(page) == f"SELECT 1 FROM {second}"
    expect(page.locator("#names")).to_be_hidden()
    assert asked == []


def test_columns_are_completed_after_a_table_and_its_alias(page: Page) -> None:
    for table in ("scores", "s"):
        write(page, f"SELECT 1 FROM latest.scores AS s WHERE {table}.sa")
        expect(page.locator("#names")).to_be_visible()
        assert names(page) == ["sample_id"]
        page.keyboard.press("Tab")
        assert sql(page).endswith(f"WHERE {table}.sample_id")
        expect(page.locator("#query")).to_be_focused()


def test_keys_open_and_close_the_names(page: Page) -> None:
    write(page, "SELECT 1 FROM latest.scores ORD")
    expect(page.locator("#names")).to_be_hidden()
    page.keyboard.press("Control+Space")
    assert names(page) == ["ORDER"]
    page.keyboard.press("Escape")
    expect(page.locator("#names")).to_be_hidden()
    assert sql(page).endswith("ORD")
    page.keyboard.press("Control+Space")
    page.locator("#name-0").click()
    assert sql(page).endswith("ORDER")
    # Tab leaves the editor where no names are shown.
    page.keyboard.press("Tab")
    expect(page.locator("#query")).not_to_be_focused()


def test_an_answer_takes_the_place_of_the_one_before(page: Page) -> None:
    answered(page, SCORES)
    assert page.locator("#result td").all_inner_texts() == [HOSTILE, "0.25", "x", "0.5"]
    assert page.evaluate("window.hacked ?? null") is None
    assert parse_qs(urlsplit(page.url).query) == {"sql": [SCORES]}
    answered(page, "SELECT nothing")
    expect(page.locator("#result [role=alert]")).to_contain_text("nothing")
    expect(page.locator("#result td")).to_have_count(0)
    page.go_back()
    expect(page.locator("#query")).to_have_value(SCORES)
    expect(page.locator("#result td")).to_have_count(0)


def test_a_chart_is_chosen_and_stays_in_the_address(page: Page) -> None:
    answered(page, SCORES)
    page.locator("summary", has_text="Chart").click()
    answered(page, SCORES)
    marks = page.get_by_role("group", name="Chart").locator("path[role=graphics-symbol]")
    expect(marks).to_have_count(2)
    expect(page.get_by_role("group", name="Chart")).to_be_visible()
    page.get_by_label("Kind").select_option("points")
    page.get_by_role("button", name="Draw").click()
    expect(page.locator("#result [aria-roledescription=circle]")).to_have_count(2)
    expect(page.locator("figcaption", has_text="score by sample_id: 2 rows")).to_be_visible()
    assert parse_qs(urlsplit(page.url).query) == {"sql": [SCORES], "kind": ["points"]}
    page.reload()
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result [aria-roledescription=circle]")).to_have_count(2)


SERIES = """
SELECT run_id, sample_id, DATE '2026-11-01' + i::INTEGER AS day, score + i AS value, 'a' AS other
FROM latest.scores, range(3) AS t(i) ORDER BY sample_id, day
"""


def test_each_text_has_a_line_with_a_shape_and_a_mark_leads_to_its_sample(page: Page) -> None:
    answered(page, SERIES)
    page.locator("summary", has_text="Chart").click()
    marks = page.get_by_role("group", name="Chart").locator("a")
    expect(marks).to_have_count(6)
    chart = page.locator("#result .chart")
    expect(chart).to_contain_text(HOSTILE[:20])
    expect(chart.locator("[role=graphics-symbol][aria-roledescription=legend]")).to_have_count(1)
    labels = [mark.get_attribute("aria-label") or "" for mark in marks.all()]
    assert "x, day 2026-11-02: value 1.5" in labels
    marks.and_(page.get_by_label("x, day 2026-11-02: value 1.5")).press("Enter")
    expect(page.locator("#detail h3")).to_have_text("Sample x")
    assert page.evaluate("window.hacked ?? null") is None


def test_the_text_of_the_lines_is_chosen_and_stays_in_the_address(page: Page) -> None:
    answered(page, SERIES)
    page.locator("summary", has_text="Chart").click()
    page.get_by_label("series").select_option("other")
    page.get_by_role("button", name="Draw").click()
    note = page.locator("figcaption", has_text="points, not a line")
    expect(note).to_be_visible()
    assert parse_qs(urlsplit(page.url).query)["series"] == ["other"]


def test_a_running_query_is_cancelled(page: Page) -> None:
    page.fill("#query", SLOW)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#going")).to_be_visible()
    expect(page.locator("#seconds")).to_have_text("1")
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#result [role=alert]")).to_contain_text(re.compile(r"cancelled after \d"))
    expect(page.locator("#going")).to_be_hidden()
    answered(page, "SELECT 42")
    assert page.locator("#result td").all_inner_texts() == ["42"]


def test_the_last_queries_are_kept_in_this_browser(page: Page) -> None:
    expect(page.locator("#past")).to_be_hidden()
    for text in ("SELECT 1", f"SELECT '{HOSTILE.replace(chr(39), '')}'", "SELECT 1"):
        answered(page, text)
    kept = page.locator("#past li button")
    expect(kept).to_have_count(2)
    expect(kept.first).to_have_text("SELECT 1")
    page.reload()
    kept.nth(1).click()
    assert HOSTILE.replace("'", "") in sql(page)
    assert page.locator("#past img").count() == 0
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#past")).to_be_hidden()
    assert page.evaluate("localStorage.length") == 0


def test_only_fifty_queries_are_kept_and_nonsense_is_no_query(page: Page) -> None:
    for nonsense in ("{", "null", '[{"sql": 1}, null]'):
        page.evaluate("text => localStorage.setItem('claimflow-queries', text)", nonsense)
        page.reload()
        expect(page.locator("#past")).to_be_hidden()
    many = "Array.from({length: 60}, (_, at) => ({sql: `SELECT ${at}`, at}))"
    page.evaluate(f"localStorage.setItem('claimflow-queries', JSON.stringify({many}))")
    page.reload()
    answered(page, "SELECT 'new'")
    expect(page.locator("#past li")).to_have_count(50)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_answer_and_the_names_have_no_violation(
    browser: Browser, view: ViewServer, scheme: str
) -> None:
    # The policy of the page forbids what axe puts into it, and the icon that a browser looks for.
    icon = "Failed to load resource: the server responded with a status of 404 (Not Found)"
    with watched_page(browser, forgiven=[icon], bypass_csp=True, color_scheme=scheme) as page:
        open_page(page, view)
        answered(page, SERIES)
        page.locator("summary", has_text="Chart").click()
        expect(page.locator("#result .chart svg")).to_have_count(1)
        write(page, "SELECT 1 FROM la")
        expect(page.locator("#names")).to_be_visible()
        for width in (1440, 1024, 390):
            page.set_viewport_size({"width": width, "height": 900})
            found = Axe().run(page).response["violations"]
            places = {(one["id"], node["html"][:15]) for one in found for node in one["nodes"]}
            # The arrow keys of the editor scroll the names, which axe knows of comboboxes alone.
            assert places <= {("scrollable-region-focusable", '<ul id="names" ')}


def test_without_a_script_the_form_works(browser: Browser, view: ViewServer) -> None:
    with watched_page(browser, java_script_enabled=False) as page:
        open_page(page, view)
        page.fill("#query", SCORES)
        page.get_by_role("button", name="Run").click()
        assert page.locator("#result td").all_inner_texts() == [HOSTILE, "0.25", "x", "0.5"]
        page.locator("summary", has_text="Chart").click()
        page.get_by_label("Kind").select_option("line")
        page.get_by_role("button", name="Draw").click()
        expect(page.locator("#result figure")).to_contain_text("score by sample_id; points: 2")
