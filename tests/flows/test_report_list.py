"""The list of samples in a report: its columns, its CSV and saved filters."""

import csv
import io
import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.quality.csv_sheets import escape_formula
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.recorded_runs import Table, claims, put_run, scores
from tests.flows.viewing import serving, watched_page

FORMULAS = {
    "=1+1": '=HYPERLINK("https://evil.example")',
    "@x": " +1",
    "b": "'=1",
    "c": "＝1",
    "d": 'plain, with "quotes"\nand a line',
}
"""Responses by sample: what a spreadsheet would take for a formula."""


def steps(base: float) -> dict[str, Table]:
    values = {name: base + number / 10 for number, name in enumerate(FORMULAS)}
    rows = [
        {
            "sample_id": name,
            "user_input": f"Question {name}?",
            "response": text,
            "metadata": json.dumps({"level": number, "<b>": text, "span-id": f"7f{number}e"}),
        }
        for number, (name, text) in enumerate(FORMULAS.items())
    ]
    return {
        "samples": Table("samples", rows),
        "claims": claims({"b": ["It is."]}),
        "recall": scores("recall", values),
        "precision": scores("precision", {name: 1 - value for name, value in values.items()}),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("list") / "s.duckdb")
    for base in (0.2, 0.1):
        put_run(store, steps(base))
    return store


@pytest.fixture(scope="module")
def address(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    with store.reading() as connection:
        query = "SELECT run_id FROM audit.runs ORDER BY started_at, run_id"
        (a,), (b,) = connection.execute(query).fetchall()
    path.write_text(html_report(RunDocument(store, b), against=a), "utf-8")
    return path.resolve().as_uri()


@pytest.fixture(scope="module")
def view(store: Store) -> Iterator[ViewServer]:
    with serving(store) as view:
        yield view


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as page:
        yield page


@pytest.fixture(params=["file", "viewer"])
def anywhere(request: pytest.FixtureRequest, page: Page, address: str, view: ViewServer) -> str:
    """The address of the report as a file, and in the viewer."""
    if request.param == "file":
        return address
    page.goto(view.url)
    return f"http://127.0.0.1:{view.server_port}/run/latest"


def opened(page: Page, address: str) -> Page:
    page.goto(address)
    page.wait_for_selector("#list tbody tr")
    return page


def titles(page: Page) -> list[str]:
    return page.locator("#list thead th").all_inner_texts()


def downloaded(page: Page) -> tuple[bytes, list[list[str]]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    content = download.value.path().read_bytes()
    return content, list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_columns_are_chosen_and_are_in_the_address(page: Page, address: str) -> None:
    opened(page, address)
    at_first = ["sample", "question", "mean", "✓", "✗", "?", "!", "changed claims"]
    assert titles(page) == at_first
    expect(page.get_by_text("No claim changed.")).to_be_visible()
    page.locator("summary", has_text="Columns").click()
    for name in ("question", "verdicts entailed", "failed rows"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    for name in ("answer", "recall", "recall, B - A", "level", "<b>"):
        page.get_by_role("checkbox", name=name, exact=True).check()
    chosen = [
        "sample", "answer", "mean", "✗", "?", "changed claims", "recall",
        "recall, B - A", "level", "<b>",
    ]  # fmt: skip
    assert titles(page) == chosen
    page.get_by_role("button", name="sort by level").click()
    page.get_by_role("button", name="sort by level").click()
    first = page.locator("#list tbody tr").first.locator("th, td").all_inner_texts()
    assert first[0] == "d"
    assert first[6:9] == ["0.500", "-0.100", "4"]
    again = page.context.new_page()
    opened(again, page.url)
    assert titles(again) == [*chosen[:8], "level ▼", "<b>"]
    assert again.url == page.url
    again.close()
    page.go_back()
    opened(page, f"{address}#columns=[1,{{}}]&sort=nothing")
    assert titles(page) == ["sample"]
    opened(page, f"{address}#text=Question&columns=x")
    assert titles(page) == at_first


def test_the_difference_is_shown_where_a_metric_is_chosen(page: Page, address: str) -> None:
    opened(page, address)
    assert "B - A" not in titles(page)
    page.locator("#filters [name=metric]").select_option("recall")
    assert titles(page)[-1] == "B - A"
    assert set(page.locator("#list tbody td:last-child").all_inner_texts()) == {"-0.100"}
    # It is one of the usual columns: the address does not name columns.
    page.get_by_role("button", name="sort by difference of the chosen metric, B - A").click()
    assert parse_qs(urlsplit(page.url).fragment) == {"metric": ["recall"], "sort": ["difference"]}
    page.locator("#filters [name=metric]").select_option("")
    assert "B - A" not in titles(page)
    assert urlsplit(page.url).fragment == ""
    expect(page.get_by_text("All 5 samples, those that changed first.")).to_be_visible()


def test_the_third_click_and_clear_bring_back_the_first_order(page: Page, address: str) -> None:
    opened(page, address)
    names = page.locator("#list button.open")
    at_first = names.all_inner_texts()
    header = page.get_by_role("button", name="sort by mean")
    for order, arrow in (("score", "mean ▲"), ("-score", "mean ▼")):
        header.click()
        assert titles(page)[2] == arrow
        assert parse_qs(urlsplit(page.url).fragment) == {"sort": [order]}
    header.click()
    assert titles(page)[2] == "mean"
    assert names.all_inner_texts() == at_first
    assert urlsplit(page.url).fragment == ""
    expect(header).to_be_focused()
    for _ in range(2):
        page.get_by_role("button", name="sort by sample").click()
    assert names.all_inner_texts() == ["d", "c", "b", "=1+1", "@x"] != at_first
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#list th[aria-sort=none]")).to_have_count(len(titles(page)))
    assert names.all_inner_texts() == at_first
    assert urlsplit(page.url).fragment == ""


def test_another_metric_sorts_the_list_again(page: Page, address: str) -> None:
    opened(page, f"{address}#metric=recall&sort=score")
    names = page.locator("#list button.open")
    assert names.all_inner_texts() == list(FORMULAS)
    # The samples with a high recall have a low precision.
    page.locator("#filters [name=metric]").select_option("precision")
    assert names.all_inner_texts() == list(FORMULAS)[::-1]
    assert page.locator("#list th[aria-sort=ascending]").inner_text() == "precision ▲"


def test_a_column_with_a_hyphen_is_sorted_by_its_address(page: Page, address: str) -> None:
    columns = json.dumps(["field span-id"])
    for order, arrow in (("", "▲"), ("-", "▼")):
        opened(page, address)
        opened(page, f"{address}#columns={columns}&sort={order}field span-id")
        assert titles(page) == ["sample", f"span-id {arrow}"]


def test_the_csv_has_the_rows_and_columns_of_the_list(page: Page, address: str) -> None:
    columns = json.dumps(["answer", "metric recall", "field level"])
    opened(page, f"{address}#metric=recall&from=0.15&sort=-metric recall&columns={columns}")
    content, rows = downloaded(page)
    assert content.startswith(b"\xef\xbb\xbf")
    names = list(FORMULAS)[:0:-1]
    assert rows[0] == ["sample", "answer", "recall", "level"]
    assert [row[0] for row in rows[1:]] == [escape_formula(name) for name in names]
    assert [row[1] for row in rows[1:]] == [escape_formula(FORMULAS[name]) for name in names]
    assert [row[2:] for row in rows[1:]] == [
        ["0.5", "4"], ["0.4", "3"], ["0.3", "2"], ["0.2", "1"],
    ]  # fmt: skip


def test_a_formula_is_a_text_and_a_negative_number_a_number(page: Page, address: str) -> None:
    columns = json.dumps(["answer", "difference recall"])
    opened(page, f"{address}#columns={columns}")
    _, rows = downloaded(page)
    assert {tuple(row) for row in rows[1:]} == {
        (escape_formula(name), escape_formula(text), "-0.1") for name, text in FORMULAS.items()
    }
    assert rows[0] == ["sample", "answer", "recall, B - A"]


def test_the_viewer_has_the_columns_and_the_csv_too(page: Page, view: ViewServer) -> None:
    page.goto(view.url)
    columns = json.dumps(["answer", "field level"])
    opened(page, f"http://127.0.0.1:{view.server_port}/run/latest#columns={columns}&sort=sample")
    _, rows = downloaded(page)
    found = {row[0]: row[1] for row in rows[1:]}
    assert found == {escape_formula(name): escape_formula(text) for name, text in FORMULAS.items()}


def test_the_menu_of_columns_is_searched_and_shows_only_these(page: Page, address: str) -> None:
    opened(page, address)
    at_first = titles(page)
    menu = page.locator("#columns")
    menu.locator("summary").click()
    shown = menu.get_by_role("checkbox")
    assert menu.locator("legend:visible").all_inner_texts() == [
        "Usual", "Metrics", "Differences, B - A", "Metadata",
    ]  # fmt: skip
    menu.get_by_label("Name of a column").fill(" RECALL")
    values = shown.evaluate_all("boxes => boxes.map(one => one.value)")
    assert values == ["metric recall", "difference recall"]
    expect(menu.get_by_role("status")).to_have_text("2 of 16 columns")
    assert menu.locator("legend:visible").all_inner_texts() == ["Metrics", "Differences, B - A"]
    menu.get_by_role("button", name="Only these").click()
    assert titles(page) == ["sample", "recall", "recall, B - A"]
    assert json.loads(parse_qs(urlsplit(page.url).fragment)["columns"][0]) == [
        "metric recall", "difference recall",
    ]  # fmt: skip
    menu.get_by_role("button", name="Reset").click()
    assert titles(page) == at_first
    menu.get_by_label("Name of a column").fill("")
    assert shown.count() == 16


def test_the_line_on_all_samples_goes_while_others_are_shown(page: Page, address: str) -> None:
    opened(page, address)
    line = page.get_by_text("All 5 samples, those that changed first.")
    expect(line).to_be_visible()
    page.locator("#filters [name=text]").fill("=1+1")
    expect(line).to_be_hidden()
    expect(page.locator("#matches")).to_have_text("1 of 5 samples in this page match")
    page.get_by_role("button", name="Clear").click()
    expect(line).to_be_visible()
    page.get_by_role("button", name="sort by sample").click()
    expect(line).to_be_hidden()


CUT = """() => [...document.querySelectorAll("#list thead th, #list td.number")].filter((one) => {
  const text = document.createRange();
  text.selectNodeContents(one);
  const [own, words] = [one.getBoundingClientRect(), text.getBoundingClientRect()];
  return words.left < own.left - 1 || words.right > own.right + 1;
}).map((one) => one.innerText)"""
"""The headers and numbers of which a part is outside of their cell."""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_header_and_no_number_of_the_list_is_cut(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f"{address}#metric=recall")
    assert page.evaluate(CUT) == []
    page.locator("#columns summary").click()
    # All columns, which is more than the box has room for.
    page.locator("#columns").get_by_role("button", name="Only these").click()
    assert len(titles(page)) == 17
    page.locator("#list").get_by_role("button", name="sort by precision, B - A").click()
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    box = page.locator("#scroller")
    assert box.evaluate("(one) => one.scrollWidth > one.clientWidth")
    box.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
    expect(page.locator("#list thead th").last).to_be_in_viewport(ratio=0.9)
    # The names of the samples stay, and leave room for the others.
    name, place = page.locator("#list tbody th").first.bounding_box(), box.bounding_box()
    assert name is not None
    assert place is not None
    assert name["x"] == place["x"]
    assert name["width"] < width / 3


@pytest.mark.parametrize("metric", ["", "precision"])
def test_the_score_is_in_sight_on_a_narrow_screen(page: Page, address: str, metric: str) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    opened(page, f"{address}#metric={metric}")
    header = page.locator("#list thead th", has_text=metric or "mean").first
    place, box = header.bounding_box(), page.locator("#scroller").bounding_box()
    assert place is not None
    assert box is not None
    assert place["x"] + place["width"] <= box["x"] + box["width"]


BRIGHTEST = """async ([picture, x, height]) => {
  const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  return Math.max(...canvas.getImageData(x, 0, 1, height).data.filter((_, at) => at % 4 !== 3));
}"""
"""The brightest colour of a column of pixels."""


@pytest.mark.parametrize("width", [390, 1440])
def test_a_shade_shows_that_the_list_goes_on(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    every = json.dumps(
        [f"{kind} {name}" for kind in ("metric", "difference") for name in ("recall", "precision")]
        + [
            "question",
            "answer",
            "score",
            "entailed",
            "contradicted",
            "neutral",
            "failed",
            "changed",
            "field level",
            "field <b>",
        ]
    )
    opened(page, f"{address}#columns={every}")
    box, row = page.locator("#scroller"), page.locator("#list tbody tr").first
    edge = box.evaluate("(one) => one.clientWidth") - 1

    def at_the_edge() -> int:
        place, top = row.bounding_box(), box.bounding_box()
        assert place is not None
        assert top is not None
        # Between the lines that rows end with.
        clip = {"x": top["x"], "y": place["y"] + 2, "width": top["width"], "height": 26}
        picture = b64encode(page.screenshot(clip=clip)).decode()
        found: int = page.evaluate(BRIGHTEST, [picture, edge, 26])
        return found

    box.scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    assert at_the_edge() < 220
    box.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
    assert at_the_edge() == 255


def test_a_sample_is_found_by_its_span(page: Page, anywhere: str) -> None:
    opened(page, anywhere)
    page.locator("#filters [name=text]").fill("7F3E")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator("#list button.open")).to_have_text("c")
    # No two samples share a span: there is nothing to slice by.
    assert page.locator("#filters [name=slice]").count() == 0


def test_a_filter_is_saved_chosen_and_deleted(page: Page, anywhere: str) -> None:
    opened(page, f"{anywhere}#metric=recall&from=0.25&sort=sample&sample=b")
    form = page.get_by_role("form", name="Saved filters")
    form.get_by_role("button", name="Save this filter").click()
    expect(form.get_by_role("status")).to_have_text("A filter needs a name.")
    form.get_by_label("Name of this filter").fill("<b>high</b>")
    page.keyboard.press("Enter")
    expect(form.get_by_role("status")).to_have_text("Saved: <b>high</b>")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#list tbody tr")).to_have_count(5)
    page.reload()
    opened(page, f"{anywhere}#sort=-score")
    form.get_by_label("Saved filters").select_option("<b>high</b>")
    expect(page.locator("#list tbody tr")).to_have_count(3)
    assert parse_qs(urlsplit(page.url).fragment) == {
        "metric": ["recall"], "from": ["0.25"], "sort": ["sample"],
    }  # fmt: skip
    form.get_by_role("button", name="Delete").click()
    assert form.get_by_label("Saved filters").locator("option").all_inner_texts() == ["none"]
    assert form.get_by_role("button", name="Delete").is_disabled()


def test_a_browser_that_keeps_nothing_has_no_saved_filters(browser: Browser, address: str) -> None:
    with watched_page(browser) as page:
        refuses = "Object.defineProperty(window, 'localStorage', {get() { throw new Error(); }})"
        page.add_init_script(refuses)
        opened(page, address)
        assert page.get_by_role("form", name="Saved filters").count() == 0
        assert page.get_by_role("button", name="Download CSV").is_visible()


def test_saved_data_of_another_page_does_no_harm(browser: Browser, address: str) -> None:
    with watched_page(browser) as page:
        hostile = json.dumps([["<img src=x onerror=x()>", "sort=sample"], 1, ["x"], [{}, {}]])
        page.add_init_script(f"localStorage.setItem('claimflow filters', {json.dumps(hostile)})")
        opened(page, address)
        saved = page.get_by_label("Saved filters", exact=True).locator("option")
        assert saved.all_inner_texts() == ["choose one", "<img src=x onerror=x()>"]


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_tools_fit_into_the_window(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, address)
    page.locator("summary", has_text="Columns").click()
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.fixture(scope="module")
def long_list(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("long")
    store = Store(folder / "s.duckdb")
    # Scripts of which a browser takes the letters from several fonts, which differ in height.
    texts = ("a", "ระบบ ि ﷽ 漢字 \U0001f600", "a\n\nb", "long " * 100, "<h1>high</h1>")
    rows = [
        {"sample_id": f"s{number:04}", "response": texts[number % len(texts)]}
        for number in range(3000)
    ]
    recall = scores("recall", {row["sample_id"]: 0.5 for row in rows})
    run_id = put_run(store, {"samples": Table("samples", rows), "recall": recall})
    path = folder / "page.html"
    path.write_text(html_report(RunDocument(store, run_id), samples=3000), "utf-8")
    return path.as_uri()


def seen(page: Page) -> list[int]:
    """The places of the rows that the list shows."""
    return page.evaluate("""() => {
      const box = document.getElementById("scroller").getBoundingClientRect();
      const top = box.top + document.querySelector("#list thead").offsetHeight;
      return [...document.querySelectorAll("#list tbody tr")].filter((row) => {
        const own = row.getBoundingClientRect();
        return own.bottom > top + 1 && own.top < box.bottom - 1;
      }).map((row) => Number(row.getAttribute("aria-rowindex")) - 2);
    }""")


@pytest.mark.parametrize("width", [390, 1440])
def test_a_long_list_holds_the_rows_that_are_seen(page: Page, long_list: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f"{long_list}#sort=sample")
    shown = page.locator("#list tbody tr")
    assert page.locator("#list").get_attribute("aria-rowcount") == "3001"
    scroller = page.locator("#scroller")
    most = scroller.evaluate("(box) => box.scrollHeight - box.clientHeight")
    for share in (0.0, 0.31, 0.33, 0.8, 1.0, 0.5):
        scroller.evaluate("(box, top) => { box.scrollTop = top; }", share * most)
        page.wait_for_function("() => document.getElementById('scroller').scrollTop >= 0")
        expect(
            page.locator(f"#list tr[aria-rowindex='{round(share * 2980) + 8}']")
        ).to_be_attached()
        found = seen(page)
        assert found == list(range(found[0], found[0] + len(found)))
        # As many as the box has room for: none is missing at its ends.
        height = shown.first.evaluate("(row) => row.getBoundingClientRect().height")
        room = scroller.evaluate("(box) => box.clientHeight") / height
        assert room - 3 <= len(found) <= room + 1
        assert shown.count() < 120
        names = page.locator("#list button.open").all_inner_texts()
        first = int(shown.first.get_attribute("aria-rowindex") or "") - 2
        assert names == [f"s{first + place:04}" for place in range(len(names))]
    heights = shown.evaluate_all("(rows) => rows.map((row) => row.getBoundingClientRect().height)")
    assert len(set(heights)) == 1


def test_print_has_no_pages_for_rows_that_are_not_drawn(page: Page, long_list: str) -> None:
    opened(page, long_list)
    page.locator("#scroller").evaluate("(box) => { box.scrollTop = 40000; }")
    expect(page.locator("#list tr[aria-rowindex='1220']")).to_be_attached()
    pages = page.pdf().count(b"/Type /Page\n")
    assert 1 <= pages < 10


def test_the_keys_walk_through_a_long_list(page: Page, long_list: str) -> None:
    opened(page, f"{long_list}#sort=sample")
    page.keyboard.press("j")
    for _ in range(150):
        page.keyboard.press("ArrowDown")
    focused = page.locator("#list button.open:focus")
    expect(focused).to_have_text("s0150")
    assert 150 in seen(page)
    for _ in range(150):
        page.keyboard.press("k")
    expect(focused).to_have_text("s0000")
    # The reader scrolls away with the wheel: the keys go on in the list that is seen.
    page.locator("#scroller").evaluate("(box) => { box.scrollTop = 40000; }")
    expect(page.locator("#scroller")).to_be_focused()
    page.keyboard.press("j")
    expect(focused).to_have_count(1)
    assert int(focused.inner_text()[1:]) in seen(page)
    assert int(focused.inner_text()[1:]) > 1000


def test_the_row_of_an_open_sample_is_in_sight(page: Page, long_list: str) -> None:
    opened(page, f"{long_list}#sort=-sample&sample=s0999")
    expect(page.locator("#detail h3")).to_have_text("Sample s0999")
    assert 2000 in seen(page)
    top = page.locator("#detail").evaluate("(detail) => detail.offsetTop")
    for _ in range(40):
        page.locator("#detail button.next").click()
    expect(page.locator("#detail h3")).to_have_text("Sample s0959")
    assert 2040 in seen(page)
    expect(page.locator("#list tr.current button.open")).to_have_text("s0959")
    # The list scrolls in its own box: what is open stays where it is.
    assert page.locator("#detail").evaluate("(detail) => detail.offsetTop") == top
    page.keyboard.press("Escape")
    expect(page.locator("#list button.open:focus")).to_have_text("s0959")
    # A filter that only few samples pass begins at its first one.
    page.locator("#filters [name=text]").fill("s000")
    expect(page.locator("#list tbody tr")).to_have_count(10)
    assert seen(page) == list(range(10))


def test_the_tables_of_a_report_are_taken_along(page: Page, address: str) -> None:
    opened(page, address)
    with page.expect_download() as download:
        page.get_by_role("button", name="What changed, by metric as CSV").click()
    assert download.value.suggested_filename == "what-changed-by-metric.csv"
    text = download.value.path().read_bytes().decode("utf-8-sig")
    titles, *rows = csv.reader(io.StringIO(text))
    shown = page.get_by_role("group", name="What changed, by metric").locator("thead th")
    assert titles == shown.all_inner_texts()
    assert {row[0]: row[titles.index("B - A")] for row in rows} == {
        "recall": "-0.1",
        "precision": "0.1",
    }
