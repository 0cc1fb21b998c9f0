"""Charts as a reader has them: drawn in a real Chromium, with links, and without a script."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.report.plots import distribution_chart
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.flows.recorded_runs import Table, put_run, samples, scores
from tests.flows.viewing import Client, serving, watched_page

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
TREND = "/trend?" + urlencode({"pipeline": "nightly", "scores": "recall", "metric": HOSTILE})


def summary(metric: str, mean: float) -> dict[str, Any]:
    counts = {"n": 2, "n_scored": 2, "n_undefined": 0, "n_failed": 0}
    spread = dict.fromkeys(("micro_mean", "minimum", "median", "maximum"))
    ends = {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}
    return {"scores": "recall", "metric": metric, **counts, **spread, **ends}


def put_night(store: Store, mean: float, **settings: Any) -> str:
    """A run with the mean of a metric whose name is hostile; the settings are of its summary."""
    rows = {
        "samples": samples(["x", "y"]),
        "recall": scores(HOSTILE, {"x": mean, "y": mean}),
        "summary": Table("summaries", [summary(HOSTILE, mean)], settings=settings),
    }
    return put_run(store, rows, pipeline="nightly")


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    store = Store(tmp_path_factory.mktemp("charts") / "s.duckdb")
    return store, [put_night(store, mean) for mean in (0.5, 0.75)]


@pytest.fixture(scope="module")
def view(nights: tuple[Store, list[str]]) -> Iterator[ViewServer]:
    with serving(nights[0]) as view:
        yield view


@pytest.fixture
def page(browser: Browser, view: ViewServer) -> Iterator[Page]:
    """The list of runs; nothing may be complained of, and no other host may be asked."""
    with watched_page(browser) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(view.url)
        yield page
        assert page.evaluate("window.hacked ?? null") is None
        here = f"http://127.0.0.1:{view.server_port}/"
        assert [address for address in asked if not address.startswith(here)] == []


def test_a_point_of_a_trend_leads_to_its_run(
    page: Page, view: ViewServer, nights: tuple[Store, list[str]]
) -> None:
    here = f"http://127.0.0.1:{view.server_port}"
    page.goto(here + TREND)
    points = page.locator(".chart a")
    expect(points).to_have_count(2)
    expect(points.last).to_have_attribute(
        "aria-label", re.compile(r": .* 0\.75, 95 % interval 0\.65 to 0\.85$", re.DOTALL)
    )
    points.last.press("Enter")
    expect(page).to_have_url(f"{here}/run/{nights[1][1]}")
    page.go_back()
    points.first.click()
    expect(page).to_have_url(f"{here}/run/{nights[1][0]}")


def test_a_chart_is_one_stop_of_the_tab_key(browser: Browser, long: ViewServer) -> None:
    with watched_page(browser) as page:
        page.goto(long.url)
        page.goto(f"http://127.0.0.1:{long.server_port}{TREND}")
        points = page.locator(".chart a")
        expect(points).to_have_count(40)
        page.get_by_role("link", name="All metrics of this pipeline").focus()
        page.keyboard.press("Tab")
        expect(points.first).to_be_focused()
        for key, at in (
            ("ArrowRight", 1),
            ("End", 39),
            ("ArrowLeft", 38),
            ("ArrowUp", 37),
            ("ArrowDown", 38),
        ):
            page.keyboard.press(key)
            expect(points.nth(at)).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("group", name="The runs")).to_be_focused()
        # The mark that was reached last gets the focus again.
        page.keyboard.press("Shift+Tab")
        expect(points.nth(38)).to_be_focused()
        for key, at in (("End", 39), ("ArrowRight", 39), ("Home", 0), ("ArrowLeft", 0)):
            page.keyboard.press(key)
            expect(points.nth(at)).to_be_focused()
        link = points.first.get_attribute("href") or ""
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"http://127.0.0.1:{long.server_port}{link}")


def test_small_plots_stand_beside_each_other_where_there_is_room(
    browser: Browser, tmp_path: Path
) -> None:
    store = Store(tmp_path / "s.duckdb")
    counts = {"n": 1, "n_scored": 1, "n_undefined": 0, "n_failed": 0, "mean": 0.5}
    spread = dict.fromkeys(("low", "high", "micro_mean", "minimum", "median", "maximum"))
    names = [HOSTILE, "constructor", *(f"metric_{number}" for number in range(5))]
    summaries = [{"scores": name, "metric": name} | counts | spread for name in names]
    rows = {"samples": samples(["x"]), "summary": Table("summaries", summaries)}
    put_run(store, rows, pipeline="nightly")
    with serving(store) as view, watched_page(browser) as page:
        page.goto(view.url)
        page.goto(f"http://127.0.0.1:{view.server_port}/trend?pipeline=nightly")
        for width, beside in ((1440, 3), (1024, 2), (390, 1)):
            page.set_viewport_size({"width": width, "height": 3000})
            expect(page.locator(".multiples svg")).to_have_count(len(names))
            boxes = [one.bounding_box() for one in page.locator(".multiples li").all()]
            assert len({box["x"] for box in boxes if box}) == beside
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("link", name="constructor", exact=True).press("Enter")
        expect(page.locator(".chart svg")).to_have_count(1)
        assert page.evaluate("window.hacked ?? null") is None


def test_a_chart_is_named_and_its_marks_say_what_they_are(page: Page) -> None:
    chart = page.locator(".chart [role=graphics-document]")
    expect(chart).to_have_count(1)
    expect(chart).to_have_attribute("aria-label", re.compile("over the runs, .* runs: 2$"))
    marks = chart.locator("path[role=graphics-symbol]")
    expect(marks).to_have_count(2)
    # A browser shows it beside the pointer.
    expect(marks.last.locator("title")).to_have_text(re.compile("0.75, 95 % interval"))


def test_only_addresses_inside_the_page_or_of_its_server_are_links(page: Page) -> None:
    expect(page.locator(".chart svg")).to_have_count(1)
    inside = ["#metric=x", "/run/x", "?a=b"]
    outside = [
        *("javascript:alert(1)", "data:text/html,x", "https://evil.example/", "//evil.example/"),
        *("/\\evil.example", "/\t/evil.example", "file:///etc/passwd", "blob:x"),
    ]
    drawn = page.evaluate(
        """async (links) => {
          const element = document.querySelector(".chart");
          const chart = JSON.parse(element.dataset.chart);
          const mark = { type: "circle", aria: true };
          const encoding = { href: { field: "link", type: "nominal" }, description: { field: "link", type: "nominal" } };
          const made = { ...chart, data: { values: links.map((link) => ({ link })) }, encoding: {}, layer: [{ mark, encoding }] };
          await drawChart(element, made);
          return [...element.querySelectorAll("a")].map((one) => one.getAttribute("href"));
        }""",  # noqa: E501
        inside + outside,
    )
    assert drawn == inside
    expect(page.locator(".chart path[role=graphics-symbol]")).to_have_count(len(outside))


def test_a_chart_loads_nothing(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.locator(".chart svg")).to_have_count(1)
    pictures = page.evaluate(
        """async () => {
          const element = document.querySelector(".chart");
          const chart = JSON.parse(element.dataset.chart);
          const encoding = { url: { value: "/picture.png" }, x: { value: 5 }, y: { value: 5 } };
          const mark = { type: "image", width: 9, height: 9 };
          await drawChart(element, { ...chart, encoding: {}, layer: [{ mark, encoding }] });
          return [...element.querySelectorAll("image")].map((one) => one.getAttribute("href"));
        }"""
    )
    assert set(pictures) == {""}
    assert asked == []


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__", "valueOf"])
def test_a_text_that_every_object_has_as_a_name_is_drawn(
    page: Page, view: ViewServer, name: str
) -> None:
    sql = f"SELECT * FROM (VALUES ('{name}', 1), ('b', 2)) AS t(v, \"{name}\")"
    for kind in ("bars", "points"):
        asked = urlencode({"sql": sql, "kind": kind})
        page.goto(f"http://127.0.0.1:{view.server_port}/sql?{asked}")
        page.get_by_role("button", name="Run").click()
        chart = page.locator("#result .chart")
        expect(chart.locator("path[role=graphics-symbol]")).to_have_count(2)
        expect(chart.locator("text", has_text=name)).to_have_count(2)


def test_charts_that_are_not_seen_are_drawn_for_print(page: Page) -> None:
    expect(page.locator(".chart svg")).to_have_count(1)
    page.evaluate(
        """() => {
          const [element, far] = [document.querySelector(".chart"), document.createElement("div")];
          const unseen = element.cloneNode(true);
          unseen.replaceChildren("a sentence");
          far.append(unseen);
          far.style.paddingTop = "20000px";
          document.querySelector("main").append(far);
          awaitCharts(far);
        }"""
    )
    expect(page.locator(".chart svg")).to_have_count(1)
    page.evaluate("window.print()")
    expect(page.locator(".chart svg")).to_have_count(2)


# What is in a closed part has no room, and is not drawn.
DRAW_ALL = """() => {
  for (const part of document.querySelectorAll("details:has(.chart):not([hidden])")) part.open = true;
  window.dispatchEvent(new Event("beforeprint"));
}"""  # noqa: E501


def test_charts_do_not_widen_a_page(page: Page, view: ViewServer) -> None:
    here = f"http://127.0.0.1:{view.server_port}"
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/", TREND, "/run/latest", "/run/latest?against=previous"):
            page.goto(here + path)
            page.evaluate(DRAW_ALL)
            expect(page.locator(".chart > p")).to_have_count(0)
            widest = page.evaluate("document.documentElement.scrollWidth")
            assert widest <= width, path


# Whether each chart is where it can be seen and as large as it was drawn, and its smallest letters.
FITS = """() => [...document.querySelectorAll(".chart svg")].map((picture) => {
  const { left, right, width } = picture.getBoundingClientRect();
  const room = picture.closest(".wide") || document.documentElement;
  const scale = width / picture.viewBox.baseVal.width;
  const sizes = [...picture.querySelectorAll("text")].map((word) => parseFloat(getComputedStyle(word).fontSize));
  return [left >= 0 && right <= room.getBoundingClientRect().right + 0.5, Math.min(11, ...sizes) * scale];
})"""  # noqa: E501


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    """A store with forty runs, of which each is made otherwise, with two gates."""
    store = Store(tmp_path_factory.mktemp("long") / "s.duckdb")
    for night in range(40):
        mean = 0.5 + night % 7 / 20
        run = put_night(store, mean, resamples=night)
        with store.writing() as connection:
            for rule, line, outcome in (
                ("min 0.55", 0.55, "pass" if mean >= 0.55 else "fail"),
                ("no worse than previous by 0.02", -0.02, "inconclusive"),
            ):
                connection.execute(
                    "INSERT INTO audit.gates (run_id, metric, rule, value, line, outcome, reason) "
                    "VALUES (?, ?, ?, 0, ?, ?, '')",
                    [run, HOSTILE, rule, line, outcome],
                )
    with serving(store) as view:
        yield view


def test_charts_fit_a_narrow_screen(browser: Browser, long: ViewServer) -> None:
    here = f"http://127.0.0.1:{long.server_port}"
    runs = "SELECT run_id, started_at, 1 AS n FROM audit.runs"
    with watched_page(browser, viewport={"width": 390, "height": 900}) as page:
        page.goto(long.url)
        for path in ("/", TREND, "/run/latest?against=previous"):
            page.goto(here + path)
            page.evaluate(DRAW_ALL)
            expect(page.locator(".chart > p")).to_have_count(0)
            assert {(seen, letters >= 11) for seen, letters in page.evaluate(FITS)} == {
                (True, True)
            }
        for kind, x in (("bars", "run_id"), ("points", "run_id"), ("line", "started_at")):
            page.goto(f"{here}/sql?{urlencode({'sql': runs, 'kind': kind, 'x': x})}")
            page.get_by_role("button", name="Run", exact=True).click()
            expect(page.locator("#result .chart svg")).to_have_count(1)
            assert page.evaluate(FITS) == [[True, 11]], kind


def test_a_narrow_trend_has_its_newest_point_in_sight_and_no_words_on_others(
    browser: Browser, long: ViewServer
) -> None:
    with watched_page(browser, viewport={"width": 390, "height": 900}) as page:
        page.goto(long.url)
        page.goto(f"http://127.0.0.1:{long.server_port}{TREND}")
        expect(page.locator(".chart a")).to_have_count(40)
        expect(page.locator(".chart a").last).to_be_in_viewport(ratio=0.99)
        boxes = page.evaluate(
            """() => [...document.querySelectorAll(".mark-text.role-mark text")].map((word) => {
              const { left, right, top, bottom } = word.getBoundingClientRect();
              return [left, right, top, bottom];
            })"""
        )
        assert len(boxes) > 2
        # They stand above the plot, not on its lines.
        top = page.locator(".chart .role-axis-grid").first.bounding_box()
        assert top is not None
        assert max(bottom for *_, bottom in boxes) <= top["y"]
        for at, (left, right, top, bottom) in enumerate(boxes):
            for other in boxes[:at]:
                beside = left >= other[1] or other[0] >= right
                assert beside or top >= other[3] or other[2] >= bottom
        # The newest run has its number and its name.
        words = page.locator(".mark-text.role-mark text")
        expect(words.filter(has_text=re.compile("^1$"))).to_be_visible()
        names = page.locator(".role-axis-label text", has_text="-")
        shown = [name for name in names.all_text_contents() if name]
        assert 5 < len(shown) < 30
        newest = page.locator("tbody th").first.inner_text()
        assert shown[-1].endswith(newest[-4:])


def test_a_chart_is_drawn_again_where_its_place_changes(browser: Browser, long: ViewServer) -> None:
    width = "document.querySelector('.chart svg').getBoundingClientRect().width"
    with watched_page(browser, viewport={"width": 390, "height": 900}) as page:
        page.goto(long.url)
        page.goto(f"http://127.0.0.1:{long.server_port}{TREND}")
        expect(page.locator(".chart svg")).to_have_count(1)
        assert 300 < page.evaluate(width) <= 342
        drawn = page.locator(".chart svg").get_attribute("width")
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(page.locator(f".chart svg[width='{drawn}']")).to_have_count(0)
        assert page.evaluate(width) > 900
        page.set_viewport_size({"width": 390, "height": 900})
        expect(page.locator(f".chart svg[width='{drawn}']")).to_have_count(1)


def test_metrics_and_runs_are_cards_on_a_narrow_screen(browser: Browser, long: ViewServer) -> None:
    places = """() => [...document.querySelectorAll("table.cards tbody tr")].map((row) => {
      const inside = [...row.querySelectorAll("th, td, svg")].map((one) => one.getBoundingClientRect());
      const { height } = row.getBoundingClientRect();
      return [height, Math.max(...inside.map((one) => one.right))];
    })"""  # noqa: E501
    with watched_page(browser, viewport={"width": 390, "height": 900}) as page:
        page.goto(long.url)
        page.goto(f"http://127.0.0.1:{long.server_port}/run/latest")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        expect(page.locator(".cards .chart svg")).to_have_count(2)
        # Only the name, which is a sentence here, makes it higher.
        [[height, right]] = page.evaluate(places)
        assert right <= 366
        name = page.locator(".cards tbody th").bounding_box()
        assert name is not None
        assert height - name["height"] < 200
        titles = """() => [...document.querySelectorAll(".cards td")].map((cell) =>
          getComputedStyle(cell, "::before").content.replaceAll('"', ""))"""
        found = [title.strip() for title in page.evaluate(titles)]
        assert found[:2] == ["mean", "95 % interval"]
        assert "" not in found
        page.goto(f"http://127.0.0.1:{long.server_port}{TREND}")
        rows = page.evaluate(places)
        assert len(rows) == 40
        assert max(right for _, right in rows) <= 366
        page.set_viewport_size({"width": 1024, "height": 900})
        expect(page.locator(".cards thead")).to_be_visible()


def test_the_list_of_runs_says_the_scale_beside_a_line(browser: Browser, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    for mean in (0.5, 0.75):
        put_run(
            store,
            {
                "samples": samples(["x"]),
                "recall": scores("recall", {"x": mean}),
                "summary": Table("summaries", [summary("recall", mean)]),
            },
        )
    with serving(store) as view, watched_page(browser) as page:
        page.goto(view.url)
        for width in (1440, 1024):
            page.set_viewport_size({"width": width, "height": 900})
            cell = page.locator(".cards td", has=page.locator(".chart"))
            expect(cell).to_contain_text("scale 0 to 1")
            expect(cell.locator("svg")).to_have_count(1)
            boxes = [cell.locator(one).bounding_box() for one in ("svg", "p")]
            line, scale = (box for box in boxes if box is not None)
            assert scale["x"] >= line["x"] + line["width"]
            assert line["y"] <= scale["y"] <= line["y"] + line["height"]
            row = page.locator(".cards tbody tr").bounding_box()
            assert row is not None
            # Two lines of text, and the space of a row.
            assert row["height"] <= 2 * 22.5 + 11


def test_a_caption_of_a_wide_table_wraps_where_it_is_seen(
    browser: Browser, long: ViewServer
) -> None:
    # A table that is shown as cards is only too wide until its charts come near the window.
    inside = """() => [...document.querySelectorAll(".wide:has(caption)")].filter((one) => one.checkVisibility() && getComputedStyle(one.querySelector("table")).display === "table").map((one) => {
      one.scrollLeft = 1000;
      const [box, caption] = [one, one.querySelector("caption")].map((each) => each.getBoundingClientRect());
      return [one.scrollLeft, caption.left - box.left, box.right - caption.right];
    })"""  # noqa: E501
    with watched_page(browser) as page:
        page.goto(long.url)
        page.goto(f"http://127.0.0.1:{long.server_port}/run/latest?against=previous")
        scrolled = []
        for width in (390, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            for far, left, right in page.evaluate(inside):
                scrolled.append(far)
                assert left >= -0.5
                assert right >= -0.5
        assert max(scrolled) > 100


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_axis_of_differences_has_a_label_at_0(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    store = Store(tmp_path / "s.duckdb")
    names = [chr(letter) for letter in range(ord("a"), ord("l"))]
    for shift in (0.0, 0.1):
        # The differences are about -0.1 and 0.2, so that 0 is at neither end.
        values = {name: 0.5 - shift * (-1) ** (at % 3) for at, name in enumerate(names)}
        moved = scores("a_long_name_of_a_metric", values)
        put_run(store, {"samples": samples(names), "moved": moved})
    with (
        serving(store) as view,
        watched_page(browser, viewport={"width": width, "height": 900}) as page,
    ):
        page.goto(view.url)
        page.goto(f"http://127.0.0.1:{view.server_port}/run/latest?against=previous")
        chart = page.locator("section[aria-labelledby=comparison] .beside .chart").first
        expect(chart.locator("svg")).to_have_count(1)
        labels = chart.locator(".role-axis-label text", has_text=re.compile(r"^[−\d.]+$"))
        shown = [one.text_content() for one in labels.all() if one.evaluate(SEEN)]
        assert "0" in shown
        boxes = [box for one in labels.all() if (box := one.bounding_box())]
        for one, other in pairwise(sorted(boxes, key=lambda box: box["x"])):
            assert one["x"] + one["width"] < other["x"]


SEEN = "label => getComputedStyle(label).opacity !== '0'"


@pytest.mark.parametrize(
    ("scheme", "ink", "ground"),
    [
        ("light", "rgb(27, 31, 36)", "rgb(255, 255, 255)"),
        ("dark", "rgb(230, 234, 239)", "rgb(20, 24, 29)"),
    ],
)
def test_an_svg_has_the_ground_that_its_reader_prefers(
    browser: Browser, tmp_path: Path, scheme: str, ink: str, ground: str
) -> None:
    path = distribution_chart([0.5]).titled("A title").save(tmp_path / "x.svg")
    with watched_page(browser, color_scheme=scheme) as page:
        page.goto(path.as_uri())
        found = page.evaluate(
            """() => [document.querySelector("text"), document.querySelector("svg > rect")].map(
              (one) => getComputedStyle(one).fill)"""
        )
        assert found == [ink, ground]


def test_without_a_script_the_sentence_stands_in_place_of_the_chart(
    browser: Browser, view: ViewServer
) -> None:
    with watched_page(browser, java_script_enabled=False) as page:
        page.goto(view.url)
        told = f"{HOSTILE} over the runs, with 95 % intervals; runs: 2"
        expect(page.locator(".chart")).to_have_text(told)


def test_a_page_without_charts_has_no_script(view: ViewServer, tmp_path_factory: Any) -> None:
    client = Client(view)
    assert client.ask("/")[1].count("<script>") == 2
    assert "<script" not in client.ask("/nothing")[1]
    store = Store(tmp_path_factory.mktemp("one") / "s.duckdb")
    put_night(store, 0.5)
    with serving(store) as other:
        page = Client(other).ask("/")[1]
    assert "one run" in page
    assert "<script" not in page
