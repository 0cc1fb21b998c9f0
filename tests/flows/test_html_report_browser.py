"""The HTML report in Chromium, opened from a file."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from tests.flows.browser import Seen
from tests.flows.recorded_runs import Table, claims, put_run, samples
from tests.flows.report_runs import EVIL, LONG, put_runs


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of run B, alone and against run A."""
    folder = tmp_path_factory.mktemp("pages")
    store, a, b = put_runs(folder)
    written = {"alone": folder / "alone.html", "against": folder / "against.html"}
    written["alone"].write_text(html_report(RunDocument(store, b)), "utf-8")
    written["against"].write_text(html_report(RunDocument(store, b), against=a), "utf-8")
    return written


@pytest.fixture
def alone(browser: Browser, pages: dict[str, Path]) -> Iterator[Seen]:
    yield from seen(browser, pages["alone"])


@pytest.fixture
def against(browser: Browser, pages: dict[str, Path]) -> Iterator[Seen]:
    yield from seen(browser, pages["against"])


def seen(browser: Browser, path: Path) -> Iterator[Seen]:
    """The page, which must have run nothing of what it shows and asked for nothing but itself."""
    opened = Seen(browser, path)
    opened.page.wait_for_selector("#list tbody tr")
    yield opened
    assert opened.complaints == []
    assert opened.asked == [path.resolve().as_uri()]
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("img, iframe, object, embed, link").count() == 0
    # Where there is nothing to draw, what draws is left out.
    drawn = opened.page.locator(".chart").count()
    assert opened.page.locator("script").count() == (5 if drawn else 3)
    styled = "[style]:not(#rows, #list, #widths col, .chart, [style=''])"
    assert opened.page.locator(f"[onerror], [onclick], {styled}").count() == 0
    opened.page.close()


def rows(seen: Seen) -> list[str]:
    return [text or "" for text in seen.page.locator("#list tbody th.id").all_text_contents()]


def row(seen: Seen, name: str) -> Locator:
    return seen.page.locator("#list tbody tr", has=seen.page.get_by_text(name, exact=True))


def open_sample(seen: Seen, name: str) -> Locator:
    row(seen, name).click()
    return seen.page.locator("#detail")


def field(seen: Seen, name: str) -> Locator:
    return seen.page.locator(f"#filters [name={name}]")


def marks(text: Locator) -> list[tuple[str, str]]:
    """What is marked in a text, and as what; the signs behind the words are left out."""
    script = """marks => marks.map(one => [one.childNodes[0].data, one.className])"""
    found: list[list[str]] = text.locator(".mark").evaluate_all(script)
    return [(words, name.removeprefix("mark ")) for words, name in found]


def panel(seen: Seen, name: str) -> Locator:
    return seen.page.locator(f"#detail section[aria-label='{name}']")


def test_the_first_part_has_means_plots_slices_cost_and_failures(alone: Seen) -> None:
    page = alone.page
    assert page.title().startswith("<b>p</b> ")
    assert page.locator("h1").inner_text() == "<b>p</b>"
    metrics = page.locator("section[aria-labelledby=metrics]")
    cells = metrics.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert cells[:6] == ["precision", "0.500", "0.400 to 0.600", "3 of 5", "1", "1"]
    expect(metrics.locator("svg")).to_have_count(2)
    cost = page.locator("section[aria-labelledby=cost]").inner_text()
    assert "judge any/<model>: 3 calls, 360 tokens, 0.0015 USD" in cost
    assert "in_reference\ttimeout\t1\t" in cost
    slices = page.locator("section[aria-labelledby=slices] details", has_text="By topic")
    for summary in slices.locator("summary").all():
        summary.click()
    assert "Paris\tprecision\t0.000\t-0.100 to 0.100\t3 of 5" in slices.inner_text()


def test_samples_with_the_lowest_scores_come_first(alone: Seen) -> None:
    names = rows(alone)
    # Two have 0: a failed score counts as 0.
    assert set(names[:2]) == {escape_controls(EVIL), "tower"}
    assert names[2:] == ["long", "برج", "silent"]


def test_the_search_covers_all_texts(alone: Seen) -> None:
    field(alone, "text").fill("GRÖSSER")
    assert rows(alone) == []
    field(alone, "text").fill("Größer")
    assert rows(alone) == ["tower"]
    assert alone.page.locator("#matches").inner_text() == "1 of 5 samples in this page match"
    field(alone, "text").fill("باريس")
    assert rows(alone) == ["برج"]
    field(alone, "text").fill("{{ 7 * 7 }}")
    assert set(rows(alone)) == {"tower", escape_controls(EVIL)}
    alone.page.get_by_role("button", name="Clear").click()
    expect(alone.page.locator("#list tbody tr")).to_have_count(5)


FILTERS: list[tuple[dict[str, str], set[str]]] = [
    ({"verdict": "neutral"}, {"tower"}),
    ({"verdict": "failed"}, {escape_controls(EVIL)}),
    ({"status": "undefined"}, {"silent"}),
    ({"status": "failed"}, {escape_controls(EVIL)}),
    ({"metric": "precision", "status": "scored"}, {"tower", "long", "برج"}),
    ({"slice": '["topic","Paris"]'}, {"tower", "برج"}),
    ({"slice": '["topic","Paris"]', "verdict": "entailed"}, {"برج"}),
    ({"metric": "precision", "from": "0.2"}, {"long", "برج"}),
    ({"metric": "precision", "from": "0.2", "to": "0.9"}, {"long"}),
    ({"to": "0.1"}, {"tower", escape_controls(EVIL)}),
]


def test_filters_narrow_the_list(alone: Seen) -> None:
    for chosen, found in FILTERS:
        for name, value in chosen.items():
            choice = field(alone, name)
            if name in ("from", "to"):
                choice.fill(value)
            else:
                choice.select_option(value)
        assert set(rows(alone)) == found, chosen
        alone.page.get_by_role("button", name="Clear").click()
        expect(alone.page.locator("#list tbody tr")).to_have_count(5)


def test_a_column_header_sorts_and_reverses_the_order(alone: Seen) -> None:
    alone.page.get_by_role("button", name="sort by sample").click()
    assert alone.page.locator("th[aria-sort=ascending]").inner_text() == "sample ▲"
    up = rows(alone)
    assert up.index("long") < up.index("silent") < up.index("tower")
    alone.page.get_by_role("button", name="sort by sample").click()
    assert rows(alone) == up[::-1]
    alone.page.get_by_role("button", name="sort by verdicts contradicted").click()
    alone.page.get_by_role("button", name="sort by verdicts contradicted").click()
    assert rows(alone)[0] == "tower"


def test_rows_without_a_value_come_last_and_equal_ones_keep_their_order(alone: Seen) -> None:
    first = rows(alone)
    for _ in range(2):
        alone.page.get_by_role("button", name="sort by mean").click()
        assert rows(alone)[-1] == "silent"
    # Two have 0.
    assert rows(alone) == ["برج", "long", *first[:2], "silent"]
    field(alone, "metric").select_option("precision")
    assert rows(alone)[:2] == ["برج", "long"]
    header = alone.page.locator("th[aria-sort=descending]")
    assert header.inner_text() == "precision ▼"


def test_keys_search_move_open_and_close(alone: Seen) -> None:
    page = alone.page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("t/")
    assert field(alone, "text").input_value() == "t/"
    field(alone, "text").fill("")
    page.locator("#list tbody button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    second = rows(alone)[1]
    assert page.evaluate("document.activeElement.textContent") == second
    page.keyboard.press("Enter")
    assert page.get_by_role("region", name=f"Sample {second}", exact=True).is_visible()
    assert page.locator("#detail h3").inner_text() == f"Sample {second}"
    page.keyboard.press("Escape")
    assert page.locator("#detail").is_hidden()
    assert page.evaluate("document.activeElement.textContent") == second


def test_claims_are_marked_in_the_text_by_verdict(alone: Seen) -> None:
    open_sample(alone, "tower")
    response = panel(alone, "Response").locator("div.text")
    assert marks(response) == [
        ("The tower stands in Paris.", "contradicted"),
        ("Der Turm wächst größer.", "neutral"),
    ]
    assert response.inner_text() == "😀😀 The tower stands in Paris.✗ Der Turm wächst größer.?"
    # Not by colour alone: a sign, a line of its own, and words for a screen reader.
    lines = response.locator(".mark").evaluate_all(
        "marks => marks.map(one => getComputedStyle(one).textDecorationStyle)"
    )
    assert lines == ["wavy", "dotted"]
    label = response.locator(".mark").first.get_attribute("aria-label")
    assert label == "contradicted: The tower stands in Paris."


def test_a_click_shows_the_claim_its_evidence_the_reason_and_the_call(alone: Seen) -> None:
    open_sample(alone, "tower")
    panel(alone, "Response").locator(".mark").first.click()
    claim = panel(alone, "Response").locator("li").first
    message = claim.inner_text()
    assert f"Reason: it is contradicted {escape_controls(EVIL)}" in message
    assert "contradicted against retrieved_contexts [1] (in_contexts)" in message
    assert marks(panel(alone, "Reference").locator("div.text")) == [
        ("The tower stands in Paris.", "evidence")
    ]
    contexts = panel(alone, "Retrieved contexts").locator("details")
    assert contexts.nth(1).get_attribute("open") is not None
    assert marks(contexts.nth(1)) == [("Paris has the tower.", "evidence")]
    call = claim.locator("details.call").first
    call.locator("summary").click()
    assert "Judged by any/<model>: ok, 100 + 20 tokens, 0.0005 USD, 1.5 s" in call.inner_text()
    assert call.locator("pre").all_inner_texts() == [
        "You judge.",
        f"Judge this: {escape_controls(EVIL)}",
        escape_controls(EVIL),
    ]


def test_the_reader_chooses_the_step_whose_verdicts_are_shown(alone: Seen) -> None:
    open_sample(alone, "tower")
    panel(alone, "Response").locator("select").select_option("in_contexts")
    assert marks(panel(alone, "Response").locator("div.text")) == [
        ("The tower stands in Paris.", "contradicted"),
        ("Der Turm wächst größer.", "none"),
    ]


def test_votes_are_listed_one_by_one(alone: Seen) -> None:
    judges = alone.page.locator("section[aria-labelledby=judges]")
    assert judges.inner_text().startswith("Judges\n1 of 1 verdict unstable: see `claimflow sql")
    open_sample(alone, "tower")
    panel(alone, "Response").locator("button.claim").nth(1).click()
    votes = panel(alone, "Response").locator("ul.ballot > li")
    assert "50 % of the votes" in panel(alone, "Response").inner_text()
    assert [text.split("\n")[0] for text in votes.all_inner_texts()] == [
        f"? neutral judge: {escape_controls(EVIL)}",
        "✓ entailed other",
        "! failed third: late",
    ]
    vote = votes.nth(1).locator("details.call")
    vote.locator("summary").click()
    assert vote.locator("pre").last.inner_text() == "Yes."
    # The first is the one that is told below as the verdict's.
    assert votes.locator("details").count() == 1


def test_a_verdict_of_a_cascade_names_its_model(alone: Seen) -> None:
    open_sample(alone, "long")
    panel(alone, "Response").locator("button.claim").click()
    message = panel(alone, "Response").locator(".verdict").inner_text()
    assert "An audit: the judge was asked although the embedded model was sure that it" in message
    assert "probabilities: entailed 0.970, contradicted 0.010, neutral 0.020" in message


def test_lexical_scores_stand_beside_their_sentences(alone: Seen) -> None:
    detail = open_sample(alone, "tower")
    detail.get_by_text("Lexical scores, sentence by sentence").click()
    cells = detail.locator("td", has_text="The tower stands in Paris.").last
    line = cells.locator("xpath=..").locator("td").all_inner_texts()
    assert line == [
        "The tower stands in Paris.", "reference [0]", "0.500", "0.500", "0.500", "0.500",
        "0.250", "-",
    ]  # fmt: skip


def test_right_to_left_text_keeps_its_direction(alone: Seen) -> None:
    open_sample(alone, "برج")
    response = panel(alone, "Response").locator("div.text")
    assert marks(response) == [("البرج في باريس.", "entailed")]
    assert response.evaluate("one => getComputedStyle(one).direction") == "rtl"


def test_hostile_text_is_shown_as_text(alone: Seen) -> None:
    detail = open_sample(alone, escape_controls(EVIL))
    assert "\u202e" not in alone.page.content()
    response = panel(alone, "Response").locator("div.text")
    assert response.inner_text() == f"{escape_controls(EVIL)}! Cheese is milk."
    assert marks(response) == [(escape_controls(EVIL), "failed")]
    assert panel(alone, "Retrieved contexts").locator("div.text").inner_text() == escape_controls(
        EVIL
    )
    assert "<b>topic</b>: </script><script>window.hacked = 4</script>" in detail.inner_text()
    panel(alone, "Response").locator("button.claim").click()
    assert f"Reason: {escape_controls(EVIL)}" in panel(alone, "Response").inner_text()
    assert detail.locator("b, i, a, img").count() == 0


def test_an_answer_of_a_megabyte_is_read_in_parts(alone: Seen) -> None:
    assert len(LONG) > 1_000_000
    open_sample(alone, "long")
    response = panel(alone, "Response")
    text = response.locator("div.text")
    told = response.locator("p.parts")
    first = text.inner_text()
    assert 10_000 <= len(first) <= 20_000
    assert told.inner_text().startswith(f"Part 1 of 53 of this text of {len(LONG):,} letters")
    assert marks(text) == []
    response.get_by_role("button", name="next part of Response").click()
    second = text.inner_text()
    assert LONG.startswith(first + second)
    # The claim is in the last part, which its choice shows.
    response.locator("button.claim").click()
    assert told.inner_text().startswith("Part 53 of 53")
    assert marks(text) == [("Its end is here.", "contradicted chosen")]
    assert response.get_by_role("button", name="next part of Response").is_disabled()
    response.get_by_role("button", name="previous part of Response").click()
    assert told.inner_text().startswith("Part 52 of 53")


def test_choosing_a_claim_keeps_folds_and_scroll_positions(alone: Seen) -> None:
    detail = open_sample(alone, "long")
    response = panel(alone, "Response").locator("div.text")
    claim = panel(alone, "Response").locator("button.claim")
    claim.click()
    response.evaluate("one => one.scrollTop = 1000")
    scores = detail.locator("details", has_text="Scores")
    scores.locator("summary").click()
    claim.click()
    assert response.evaluate("one => one.scrollTop") == 1000
    assert scores.get_attribute("open") is None
    assert alone.page.evaluate("document.activeElement.className") == "claim"


def test_every_text_can_be_copied(alone: Seen) -> None:
    detail = open_sample(alone, "tower")
    panel(alone, "Response").locator("button.claim").first.click()
    detail.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    search = field(alone, "text")
    for name, text in (
        ("Question", "Where does the tower stand?"),
        ("Response", "😀😀 The tower stands in Paris. Der Turm wächst größer."),
        ("Context 1", "😀 Paris has the tower."),
        ("claim", "The tower stands in Paris."),
        ("Prompt", f"Judge this: {escape_controls(EVIL)}"),
        ("Raw reply", escape_controls(EVIL)),
    ):
        button = detail.get_by_role("button", name=f"Copy {name}", exact=True).first
        button.click()
        expect(alone.page.locator("#told")).to_have_text("Copied.")
        expect(button).to_have_text("✓ Copied")
        search.fill("")
        search.press("Control+v")
        assert search.input_value() == text
        search.fill("")
    open_sample(alone, "silent")
    assert detail.get_by_role("button", name="Copy Response").count() == 0


def test_a_browser_that_forbids_copying_is_said(alone: Seen) -> None:
    detail = open_sample(alone, "tower")
    alone.page.evaluate("document.execCommand = () => false")
    button = detail.get_by_role("button", name="Copy Question")
    button.click()
    expect(button).to_have_text("✗ Not allowed by the browser")
    expect(alone.page.locator("#told")).to_have_text("The browser does not allow copying.")


def test_missing_texts_are_marked(alone: Seen) -> None:
    open_sample(alone, "silent")
    assert panel(alone, "Response").inner_text() == "Response\n\n(missing)\n\nno claims of it"
    open_sample(alone, "long")
    assert "(empty)" in panel(alone, "Reference").inner_text()


def test_buttons_open_the_next_and_previous_sample(alone: Seen) -> None:
    names = rows(alone)
    detail = open_sample(alone, names[2])
    following = alone.page.get_by_role("button", name="Next", exact=True)
    following.click()
    assert detail.locator("h3").inner_text() == f"Sample {names[3]}"
    assert "4 of 5" in detail.inner_text()
    # The focus stays where the next press is wanted, until there is no next.
    alone.page.keyboard.press("Enter")
    assert detail.locator("h3").inner_text() == f"Sample {names[4]}"
    assert following.is_disabled()
    for name in (names[3], names[2]):
        alone.page.get_by_role("button", name="Previous", exact=True).click()
        assert detail.locator("h3").inner_text() == f"Sample {name}"
    alone.page.get_by_role("button", name="Close").click()
    assert detail.is_hidden()


def test_a_comparison_shows_flipped_verdicts(against: Seen) -> None:
    part = against.page.locator("section[aria-labelledby=comparison]")
    assert "verdict flipped\tchance\t1" in part.inner_text()
    expect(part.locator("svg")).to_have_count(1)
    assert rows(against)[0] == "tower"
    field(against, "changed").select_option("flipped")
    assert rows(against) == ["tower"]
    field(against, "changed").select_option("same")
    assert "tower" not in rows(against)
    assert len(rows(against)) == 4


def test_both_runs_are_shown_side_by_side(against: Seen) -> None:
    detail = open_sample(against, "tower")
    first, second = panel(against, "Response in A"), panel(against, "Response in B")
    assert marks(first.locator("div.text"))[0] == ("The tower stands in Paris.", "entailed")
    assert marks(second.locator("div.text"))[0] == ("The tower stands in Paris.", "contradicted")
    a, b = first.bounding_box(), second.bounding_box()
    assert a is not None
    assert b is not None
    assert a["y"] == b["y"]
    assert a["x"] + a["width"] <= b["x"]
    changes = panel(against, "What changed").inner_text()
    assert f"✓ entailed: it is entailed {escape_controls(EVIL)}" in changes
    assert f"✗ contradicted: it is contradicted {escape_controls(EVIL)}" in changes
    assert "precision\t0.500\t0.000\t-0.500" in changes
    first.locator("button.claim").first.click()
    assert marks(panel(against, "Reference").locator("div.text")) == [
        ("The tower stands in Paris.", "evidence")
    ]
    open_sample(against, "long")
    assert "The same in both runs." in detail.inner_text()


def test_references_are_side_by_side_where_their_claims_differ(
    browser: Browser, tmp_path: Path
) -> None:
    store = Store(tmp_path / "s.duckdb")
    rows = samples(["x", "y"], response="One.", reference="One. Two.")
    a = put_run(store, {"samples": rows, "reference_claims": claims({"x": ["One."]}, "reference")})
    b = put_run(store, {"samples": rows, "reference_claims": claims({"x": ["Two."]}, "reference")})
    path = tmp_path / "page.html"
    path.write_text(html_report(RunDocument(store, b), against=a), "utf-8")
    for opened in seen(browser, path):
        open_sample(opened, "x")
        first, second = panel(opened, "Reference in A"), panel(opened, "Reference in B")
        assert first.locator("button.claim").all_inner_texts() == ["– not judged One."]
        assert second.locator("button.claim").all_inner_texts() == ["– not judged Two."]
        assert panel(opened, "Response").count() == 0
        assert panel(opened, "Response in A").count() == 1
        open_sample(opened, "y")
        assert panel(opened, "Reference").count() == 1


def test_everything_has_a_role_and_a_name(against: Seen) -> None:
    page = against.page
    open_sample(against, "tower")
    panel(against, "Response in B").locator(".mark").first.click()
    # Lines with a colon in a name are in quotes.
    tree = page.locator("body").aria_snapshot().replace("'", "")
    roles = re.compile(r"- (button|link|combobox|searchbox|spinbutton|textbox|columnheader)\b(.*)")
    unnamed = [
        line for line in tree.splitlines() if (one := roles.search(line)) and '"' not in one[2]
    ]
    assert unnamed == []
    for line in (
        '- navigation "Parts of the report":',
        '- form "Filter samples":',
        '- spinbutton "Score from"',
        "- status: 5 of 5 samples in this page match",
        '- region "Sample tower":',
        '- button "Previous" [disabled]',
        '- button "contradicted: The tower stands in Paris." [expanded]',
        '- button "✗ contradicted The tower stands in Paris." [expanded]',
        "- mark: The tower stands in Paris.",
        '- button "neutral: Der Turm wächst größer."',
        '- group "Context 1"',
        '- columnheader "sort by verdicts entailed"',
        '- img "B - A of two runs, with 95 % intervals; metrics: 1"',
    ):
        assert line in tree, line


def test_headings_skip_no_level_and_names_are_unique(against: Seen) -> None:
    open_sample(against, "tower")
    panel(against, "Response in B").locator(".mark").first.click()
    names = "h1, h2, h3, h4, h5, h6"
    levels = against.page.locator(names).evaluate_all("all => all.map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(level - before <= 1 for before, level in pairwise(levels))
    ids = against.page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))
    assert against.page.locator("html").get_attribute("lang") == "en"


def test_the_focus_order_is_visible_and_follows_the_page(alone: Seen) -> None:
    page = alone.page
    open_sample(alone, "tower")
    page.get_by_role("link").first.focus()
    places, outlines = [], []
    for _ in range(80):
        page.keyboard.press("Tab")
        place, outline = page.evaluate(FOCUSED)
        if place is None:
            break
        places.append(place)
        outlines.append(outline)
    assert len(places) > 30
    assert places == sorted(places)
    assert set(outlines) == {"solid 3px"}


FOCUSED = """() => {
  const one = document.activeElement;
  const at = [...document.querySelectorAll("*")].indexOf(one);
  const style = getComputedStyle(one);
  return [one === document.body ? null : at, `${style.outlineStyle} ${style.outlineWidth}`];
}"""


@pytest.mark.parametrize("name", ["alone", "against"])
def test_a_narrow_window_scrolls_in_one_direction(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    opened = Seen(browser, pages[name])
    opened.page.set_viewport_size({"width": 360, "height": 800})
    opened.page.wait_for_selector("#list tbody tr")
    for sample in ("tower", escape_controls(EVIL)):
        open_sample(opened, sample)
        opened.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert opened.page.evaluate("document.documentElement.scrollWidth") == 360
    opened.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_color_schemes(
    browser: Browser, pages: dict[str, Path], scheme: str
) -> None:
    opened = Seen(browser, pages["alone"], color_scheme=scheme)
    opened.page.wait_for_selector("#list tbody tr")
    open_sample(opened, "tower")
    contrasts = opened.page.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    assert min(contrasts.values()) >= 4.5, contrasts
    opened.page.close()


CONTRASTS = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => parts(text).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    const found = one ? getComputedStyle(one).backgroundColor : "rgb(255, 255, 255)";
    return parts(found)[3] === 0 ? behind(one.parentElement) : found;
  };
  const found = {};
  for (const one of document.querySelectorAll("main *:not(svg *)")) {
    if (![...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const both = [light(getComputedStyle(one).color), light(behind(one))];
    const [low, high] = both.sort((a, b) => a - b);
    found[`${one.tagName}.${one.className}`] = (high + 0.05) / (low + 0.05);
  }
  return found;
}"""


def test_print_has_no_controls_and_no_scrolled_texts(alone: Seen) -> None:
    open_sample(alone, "long")
    alone.page.emulate_media(media="print")
    assert alone.page.locator("#filters").is_hidden()
    response = panel(alone, "Response").locator("div.text")
    assert response.evaluate("one => one.scrollHeight - one.clientHeight") <= 2


def test_the_checks_of_a_rubric_are_shown_with_the_words_of_the_judge(
    browser: Browser, tmp_path: Path
) -> None:
    store = Store(tmp_path / "s.duckdb")
    votes = [{"judge": "strict", "verdict": "fail", "reason": EVIL, "call_id": None}]
    checks: list[dict[str, object]] = [
        {"check_name": "polite", "verdict": "pass", "score": 1.0, "reason": "It greets."},
        {"check_name": EVIL, "verdict": "3", "score": 0.5, "reason": EVIL},
        {"check_name": "short", "verdict": None, "score": None, "status": "failed"},
    ]
    checks[1] |= {"agreement": 0.5, "ballot": json.dumps(votes)}
    rows = [{"sample_id": "a", "criterion": EVIL, **check} for check in checks]
    tables = {"samples": samples("a"), "tone_verdicts": Table("rubric_verdicts", rows)}
    page = tmp_path / "page.html"
    page.write_text(html_report(RunDocument(store, put_run(store, tables))), "utf-8")
    for opened in seen(browser, page):
        open_sample(opened, "a")
        shown = panel(opened, "tone_verdicts").locator("ol.checks > li")
        words = [text.split(": ")[0] for text in shown.all_inner_texts()]
        assert [word.split()[:3] for word in words] == [
            ["grade", "3", escape_controls(EVIL).split()[0]],
            ["✓", "pass", "polite"],
            ["!", "failed", "short"],
        ]
        expect(shown.nth(1)).to_contain_text("Reason: It greets.")
        expect(shown.nth(0).locator("ul.ballot li")).to_contain_text("✗ fail strict")
