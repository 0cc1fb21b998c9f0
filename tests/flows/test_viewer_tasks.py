"""The ten tasks of `flows/guides/viewer.md`, by a reader in Chromium."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.viewer.server import ViewServer
from tests.flows.report_runs import put_runs
from tests.flows.viewing import serving, watched_page

GUIDE = Path(__file__).parents[2] / "flows" / "guides" / "viewer.md"
PIPELINE = "<b>p</b>"


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewServer]:
    store, _, _ = put_runs(tmp_path_factory.mktemp("view"))
    with serving(store) as view:
        yield view


class Reader:
    """A reader of the viewer, with one method for each task; each begins at the list of runs."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def link(self, name: str) -> None:
        self.page.get_by_role("link", name=name, exact=True).first.click()

    def button(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()

    def open_tower(self) -> None:
        self.link("what changed")
        self.button("tower")
        expect(self.page.locator("#detail h3")).to_have_text("Sample tower")

    def choose_claim(self) -> None:
        claim = self.page.locator("#detail button.claim", has_text="The tower stands in Paris.")
        claim.last.click()

    def is_last_night_better_or_worse(self) -> None:
        row = self.page.locator("tr", has=self.page.get_by_role("link", name="precision")).first
        expect(row).to_contain_text("-0.167 ? unclear")

    def why(self) -> None:
        self.link("what changed")
        self.link("chance")
        expect(self.page.locator("#list tbody tr")).to_have_count(1)
        self.button("tower")
        expect(self.page.locator("#detail")).to_contain_text("What changed from A to B")

    def share_one_claim(self) -> None:
        self.open_tower()
        self.choose_claim()
        self.button("Copy link")
        expect(self.page.locator("#told")).to_have_text("Copied.")
        other = self.page.context.new_page()
        other.goto(self.page.url)
        chosen = other.locator("#detail button.claim[aria-expanded=true]")
        expect(chosen).to_contain_text("The tower stands in Paris.")
        other.close()

    def compare_any_two_runs(self) -> None:
        runs = self.page.locator("tbody code").all_inner_texts()
        self.page.get_by_label(f"compare {runs[0]} as A").check()
        self.page.get_by_label(f"compare {runs[1]} as B").check()
        self.button("Compare A with B")
        expect(self.page.get_by_role("heading", name="What changed from A to B")).to_be_visible()
        assert self.page.url.endswith(f"/run/{runs[1]}?against={runs[0]}")

    def since_when(self) -> None:
        self.link("precision")
        expect(self.page.get_by_role("heading", name=f"precision of {PIPELINE}")).to_be_visible()
        expect(self.page.locator("tbody tr")).to_have_count(2)
        self.link("compare")
        expect(self.page.get_by_role("heading", name="What changed from A to B")).to_be_visible()

    def where_is_it_worst(self) -> None:
        self.page.locator("tbody code").first.click()
        self.page.locator("summary", has_text="By topic").click()
        self.link("Paris")
        expect(self.page.locator("#list tbody tr")).to_have_count(2)
        expect(self.page.locator("#list tbody tr").first).to_contain_text("tower")

    def what_did_the_judge_say(self) -> None:
        self.open_tower()
        self.choose_claim()
        call = self.page.locator("#detail details.call", has_text="Judged by").first
        call.locator("summary").click()
        expect(call.locator("pre").first).to_have_text("You judge.")

    def find_a_text(self) -> None:
        self.page.locator("tbody code").first.click()
        expect(self.page.locator("#list tbody tr")).to_have_count(5)
        self.page.keyboard.press("/")
        self.page.keyboard.type("Größer")
        expect(self.page.locator("#list tbody tr")).to_have_count(1)
        self.button("tower")
        expect(self.page.locator("#detail h3")).to_have_text("Sample tower")

    def label_twenty_claims(self) -> None:
        self.link("Labels")
        # Each reader has a name of its own, and begins anew.
        self.page.get_by_label("Your name").fill(uuid4().hex)
        self.page.get_by_label("Rows", exact=True).fill("20")
        self.page.get_by_role("button", name="Label", exact=True).click()
        for number in range(5):
            expect(self.page.locator("#progress")).to_contain_text(f" of 5: {number} labelled")
            self.page.keyboard.press("1")
        expect(self.page.locator("#stored")).to_have_text("All labels are stored.")
        self.link("What the labels say")
        expect(self.page.locator("main")).to_contain_text("entailed: people would say 100 %")

    def chart_a_query(self) -> None:
        self.link("SQL")
        self.link("What failed, by pipeline, step and kind, in all runs")
        self.button("Run")
        self.page.locator("textarea").fill(
            "SELECT sample_id, score FROM latest.scores ORDER BY score, sample_id"
        )
        self.button("Run")
        self.page.locator("summary", has_text="Chart").click()
        bars = self.page.get_by_role("group", name="Chart").locator("path[role=graphics-symbol]")
        expect(bars).to_have_count(3)
        self.page.locator("textarea").fill("SELECT sample_id FROM latest.scores WHERE score = 1")
        with self.page.expect_download() as download:
            self.button("Download CSV")
        assert download.value.suggested_filename == "claimflow.csv"
        assert download.value.path().read_text("utf-8") == "sample_id\nبرج\n"


def tasks() -> list[str]:
    """The titles of the tasks in the guide."""
    chapter = GUIDE.read_text("utf-8").split("## Ten tasks\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (?!task|---)([^|]+) \|", chapter, re.MULTILINE)


def method(task: str) -> str:
    return re.sub(r"\W+", "_", task.lower()).strip("_")


def test_the_guide_has_ten_tasks() -> None:
    assert len(tasks()) == 10
    assert all(hasattr(Reader, method(task)) for task in tasks())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_reader_does_the_tasks(
    browser: Browser, view: ViewServer, width: int, scheme: str
) -> None:
    viewport = {"width": width, "height": 900}
    with watched_page(browser, viewport=viewport, color_scheme=scheme) as page:
        page.goto(view.url)
        home = page.url
        for task in tasks():
            page.goto(home)
            getattr(Reader(page), method(task))()
