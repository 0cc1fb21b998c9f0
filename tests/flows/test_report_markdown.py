"""Markdown in the texts of a sample: its elements, its marks, and hostile texts."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run
from tests.flows.report_runs import claim_id
from tests.flows.viewing import watched_page

RICH = """# The **tower** of Paris

It is 330 m high, *very* high, and made of `iron <b>`.

- It stands in **Paris**, France.
  1. First floor
  2. Second floor
- It has 2*3*4 and snake_case_name.

| city | height |
|------|-------:|
| **Paris** | 330 |

```python
print("<b>**not bold**</b>")
```

> Quoted words.

[a link](https://evil.example/) ![an image](https://evil.example/x.png) <img src=x onerror=hack()>
"""
HOSTILE = "\n".join(
    [
        "# <script>window.hacked = 1</script>",
        "> " * 500 + "deep",
        "**" * 3_000,
        "`" * 99 + " ``` ",
        "- " * 300 + "item",
        "|" * 900,
        "|-" * 400 + "|",
        "[x](javascript:window.hacked=2) <a href='https://evil.example'>y</a>",
        "*a _b " * 2_000,
    ]
)
LONG = "**Bold** begins.\n\n" + "- An item of a long list.\n" * 3_000 + "\nThe **end** is here.\n"
MARKED = "It stands in **Paris**, France."


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("markdown")
    texts = {"rich": RICH, "hostile": HOSTILE, "long": LONG, "plain": "One. 2*3*4. Done_so_far."}
    quoted = {"rich": MARKED, "long": "The **end** is here."}
    evidence = {"evidence": "iron", "evidence_start": RICH.index("iron"), "evidence_passage": 0}
    verdicts = [
        {"claim_id": claim_id("rich", MARKED), "against": "reference", "verdict": "entailed"},
        {
            "claim_id": claim_id("rich", MARKED),
            "against": "retrieved_contexts",
            "passage": 0,
            "verdict": "entailed",
            "evidence_end": RICH.index("iron") + 4,
        }
        | evidence,
    ]
    steps = {
        "samples": Table(
            "samples",
            [
                {"sample_id": name, "response": text, "retrieved_contexts": [text]}
                for name, text in texts.items()
            ],
        ),
        "claims": Table(
            "claims",
            [
                {
                    "claim_id": claim_id(name, text),
                    "sample_id": name,
                    "of": "response",
                    "claim": text,
                    "start": texts[name].index(text),
                    "end": texts[name].index(text) + len(text),
                }
                for name, text in quoted.items()
            ],
        ),
        "verdicts": Table("verdicts", [{"passage": None} | one for one in verdicts]),
    }
    store = Store(folder / "s.duckdb")
    path = folder / "page.html"
    path.write_text(html_report(RunDocument(store, put_run(store, steps))), "utf-8")
    return path.resolve().as_uri()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched_page(browser) as page:
        yield page
        assert page.evaluate("window.hacked ?? null") is None
        assert page.locator("img, #detail a, #detail script").count() == 0


def opened(page: Page, address: str, state: str) -> Locator:
    page.goto(f"{address}#{state}")
    expect(page.locator("#detail h3")).to_be_visible()
    return page.get_by_role("group", name="Response", exact=True)


def test_blocks_and_bold_words_are_elements(page: Page, address: str) -> None:
    text = opened(page, address, "sample=rich")
    expect(text.locator("h5")).to_have_text("The tower of Paris")
    expect(text.locator("p em")).to_have_text("very")
    expect(text.locator("p code")).to_have_text("iron <b>")
    expect(text.locator("ul > li > ol > li")).to_have_text(["First floor", "Second floor"])
    expect(text.locator("ul > li").last).to_have_text("It has 2*3*4 and snake_case_name.")
    expect(text.locator("th")).to_have_text(["city", "height"])
    expect(text.locator("td")).to_have_text(["Paris", "330"])
    expect(text.locator("pre")).to_have_text('print("<b>**not bold**</b>")\n')
    expect(text.locator("blockquote")).to_have_text("Quoted words.")
    # Links and images stay as they are written, so that nothing is hidden and nothing leaves.
    expect(text.locator("p").last).to_have_text(RICH.splitlines()[-1])


def test_claims_and_evidence_are_marked_at_their_letters(page: Page, address: str) -> None:
    text = opened(page, address, "sample=rich")
    marks = text.locator(".mark")
    expect(marks).to_have_text(["It stands in ", "Paris", ", France.✓"])
    marks.nth(1).click()
    expect(page.locator("#detail button.claim[aria-expanded=true]")).to_have_count(1)
    context = page.get_by_role("group", name="Context 0")
    expect(context.locator("code .mark.evidence")).to_have_text("iron❝")


def test_the_switch_shows_the_text_as_written_and_is_in_the_address(
    page: Page, address: str
) -> None:
    text = opened(page, address, "sample=rich&claim=1")
    page.get_by_role("checkbox", name="Markdown").uncheck()
    assert text.text_content() == RICH.replace(MARKED, f"{MARKED}✓")
    assert parse_qs(urlsplit(page.url).fragment)["markdown"] == ["off"]
    page.reload()
    expect(text.locator("h5")).to_have_count(0)
    page.get_by_role("checkbox", name="Markdown").check()
    expect(text.locator("h5")).to_have_count(1)
    assert "markdown" not in parse_qs(urlsplit(page.url).fragment)


def test_a_text_without_markdown_is_plain_and_has_no_switch(page: Page, address: str) -> None:
    text = opened(page, address, "sample=plain")
    assert text.inner_html() == "One. 2*3*4. Done_so_far."
    assert page.get_by_role("checkbox", name="Markdown").count() == 0


def test_hostile_markdown_stays_text(page: Page, address: str) -> None:
    text = opened(page, address, "sample=hostile")
    expect(text.locator("h5")).to_have_text("<script>window.hacked = 1</script>")
    expect(text).to_contain_text("[x](javascript:window.hacked=2) <a href='https://evil.example'>")
    depths = """one => {
      const depth = (node) => Math.max(0, ...[...node.children].map((child) => 1 + depth(child)));
      return depth(one);
    }"""
    assert text.evaluate(depths) < 30
    assert text.evaluate("one => one.querySelectorAll('*').length") < 10_000


def test_a_long_text_is_rendered_in_parts(page: Page, address: str) -> None:
    text = opened(page, address, "sample=long")
    first = text.locator("li").count()
    assert 500 < first < 1_000
    assert text.locator("strong").inner_text() == "Bold"
    page.get_by_role("button", name="next part of Response").click()
    assert text.locator("li").count() > 500
    assert text.locator("strong").count() == 0
    page.locator("#detail button.claim").click()
    expect(text.locator(".mark strong, strong .mark")).to_have_text("end")


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_markdown_fits_into_the_window(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, address, "sample=rich")
    assert page.evaluate("document.documentElement.scrollWidth") == width
