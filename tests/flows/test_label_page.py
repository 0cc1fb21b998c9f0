"""The label page in Chromium: what it shows, what it keeps, and the sheet that it saves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.quality.claim_changes import Provenance
from claimflow.flows.quality.csv_sheets import read_sheet
from claimflow.flows.quality.label_sampling import Draw
from claimflow.flows.quality.label_sheets import LAYOUTS, DrawnRows
from claimflow.flows.quality.labels import TABLES, Kind, LabelTarget
from claimflow.flows.report.label_form import label_page
from tests.flows.browser import Seen

HOSTILE = [
    "</script><script>window.hacked = 1</script><!-- <img src=x onerror='window.hacked=1'>",
    '=HYPERLINK("http://evil";"x")\r\n"quoted", and\tmore',
    "'-5 Grad über 🗼 \u202eabc\u202c مرحبا",
]
EMPTY: Mapping[str, Any] = dict.fromkeys(
    "sample_id claim_id claim against passage metric user_input premise text response reference "
    "retrieved_contexts criterion scale".split()
)


def drawn(kind: Kind, *, twins: bool = False) -> DrawnRows:
    """Three rows with hostile texts; with `twins` the last one has the texts of the first."""
    metric = "faithfulness" if kind == "samples" else None
    made = Provenance("a", TABLES[kind], "stage", 1, {}, {}, frozenset(), {})
    target = LabelTarget(kind, "r", "s", metric, made)
    texts = [*HOSTILE[:2], HOSTILE[0]] if twins else HOSTILE
    field = "response" if kind == "samples" else "claim"
    rows = [
        {
            **EMPTY,
            "sample_id": f"s{number}",
            "metric": metric,
            field: text,
            "premise": f"Premise {texts.index(text)}." if kind == "verdicts" else None,
            "subject": str(texts.index(text)),
        }
        for number, text in enumerate(texts)
    ]
    return DrawnRows(target, Draw("random", 3, 3, 0), "f", [(row, 1.0) for row in rows])


def opened(browser: Browser, folder: Path, kind: Kind, **more: bool) -> Seen:
    path = folder / "form.html"
    path.write_text(label_page(drawn(kind, **more)), "utf-8")
    return Seen(browser, path)


def saved(page: Page, folder: Path, *, name: str = "labels.csv") -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the sheet").click()
    assert download.value.suggested_filename == name
    download.value.save_as(folder / name)
    return folder / name


def column(path: Path, name: str) -> list[str]:
    return [row.cell(name) for row in read_sheet(path, LAYOUTS).rows]


def nothing_ran(seen: Seen) -> None:
    assert seen.complaints == []
    assert all(url.startswith(("file:", "blob:")) for url in seen.asked)
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("script").count() == 2
    assert seen.page.locator("img").count() == 0
    seen.page.close()


def at(page: Page, progress: str) -> None:
    expect(page.locator("#progress")).to_have_text(progress)


def test_verdicts_are_labelled_by_mouse_and_by_keys(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "verdicts")
    page = seen.page
    at(page, "Text 1 of 3: 0 labelled")
    assert page.locator("#texts p").all_text_contents() == ["Premise 0.", HOSTILE[0]]
    page.get_by_role("button", name="neutral (3)").click()
    at(page, "Text 2 of 3: 1 labelled")
    assert page.locator("#texts p").nth(1).text_content() == HOSTILE[1]
    page.keyboard.press("1")
    at(page, "Text 3 of 3: 2 labelled")
    assert page.locator("#texts p").nth(1).text_content() == HOSTILE[2].replace(
        "\u202e", "\ufffd"
    ).replace("\u202c", "\ufffd")
    page.get_by_role("button", name="Back").click()
    chosen = page.get_by_role("button", name="entailed (1)")
    expect(chosen).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Your name").fill("Ann / Bö")
    path = saved(page, tmp_path, name="labels-Ann-Bö.csv")
    assert read_sheet(path, LAYOUTS).kind == "verdicts"
    assert column(path, "label") == ["neutral", "entailed", ""]
    assert column(path, "claim") == HOSTILE
    assert column(path, "sample_id") == ["s0", "s1", "s2"]
    text = path.read_bytes().decode("utf-8")
    assert text.startswith('\ufeff"run","step","draw",')
    assert '"=HYPER' not in text
    nothing_ran(seen)


def test_samples_are_rated(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "samples")
    page = seen.page
    assert page.locator("#question").inner_text() == (
        "How good is the response? It is rated by faithfulness."
    )
    rating = page.get_by_label("From 0 to 1")
    page.keyboard.press("r")
    page.keyboard.type("0.25")
    page.keyboard.press("Enter")
    at(page, "Text 2 of 3: 1 labelled")
    rating.fill("7")
    rating.press("Enter")
    at(page, "Text 2 of 3: 1 labelled")
    rating.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("u")
    at(page, "Text 3 of 3: 2 labelled")
    assert column(saved(page, tmp_path), "label") == ["0.25", "", "unsure"]
    nothing_ran(seen)


def test_claims_are_good_or_bad(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "claims")
    page = seen.page
    assert page.locator("#choices button").all_text_contents() == [
        "good (1)",
        "bad (2)",
        "unsure (u)",
    ]
    page.keyboard.press("2")
    at(page, "Text 2 of 3: 1 labelled")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("0")
    at(page, "Text 1 of 3: 0 labelled")
    page.keyboard.press("1")
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Clear the label").click()
    at(page, "Text 1 of 3: 0 labelled")
    for _ in range(3):
        page.keyboard.press("2")
    # A key too many changes nothing.
    page.keyboard.press("1")
    done = "All rows are labelled; ← goes back to change one. Save the sheet."
    expect(page.locator("#done")).to_have_text(done)
    assert column(saved(page, tmp_path), "label") == ["bad"] * 3
    nothing_ran(seen)


@pytest.mark.parametrize("text", ["a key: 1 u 0 n", "=1+1", HOSTILE[0]])
def test_comments_are_texts_and_no_keys(browser: Browser, tmp_path: Path, text: str) -> None:
    seen = opened(browser, tmp_path, "verdicts")
    page = seen.page
    page.keyboard.press("c")
    page.keyboard.type(text)
    page.keyboard.press("Escape")
    at(page, "Text 1 of 3: 0 labelled")
    page.keyboard.press("1")
    path = saved(page, tmp_path)
    assert (column(path, "label"), column(path, "comment")) == (
        ["entailed", "", ""],
        [text, "", ""],
    )
    assert '"=1+1"' not in path.read_text("utf-8")
    nothing_ran(seen)


def test_rows_with_the_same_texts_are_labelled_once(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "verdicts", twins=True)
    page = seen.page
    at(page, "Text 1 of 2, in 3 rows of which some have the same texts: 0 labelled")
    page.keyboard.press("1")
    page.keyboard.press("2")
    assert column(saved(page, tmp_path), "label") == ["entailed", "contradicted", "entailed"]
    nothing_ran(seen)


def test_the_browser_keeps_labels_that_were_not_saved(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "verdicts")
    page = seen.page
    page.get_by_label("Your name").fill("ann")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="neutral (3)").click()
    expect(page.locator("#stored")).to_have_text("This browser keeps the labels.")
    page.reload()
    at(page, "Text 2 of 3: 1 labelled")
    expect(page.locator("#stored")).to_contain_text("Continued with the labels")
    path = saved(page, tmp_path, name="labels-ann.csv")
    assert column(path, "label") == ["neutral", "", ""]
    nothing_ran(seen)
