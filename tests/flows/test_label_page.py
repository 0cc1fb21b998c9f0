"""The label page in Chromium: what it shows, and the sheet that it saves."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from playwright.sync_api import Browser

from claimflow.flows.quality.csv_sheets import read_sheet
from claimflow.flows.quality.label_sheets import LAYOUTS
from claimflow.flows.quality.labels import Kind
from claimflow.flows.report.label_form import label_page
from tests.flows.browser import Seen

VALUES: dict[Kind, Sequence[str]] = {
    "verdicts": ("entailed", "contradicted", "neutral"),
    "claims": ("good", "bad"),
}
COLUMNS: dict[Kind, Sequence[str]] = {layout.kind: layout.columns for layout in LAYOUTS}
HOSTILE = [
    "</script><script>window.hacked = 1</script><!-- <img src=x onerror='window.hacked=1'>",
    '=HYPERLINK("http://evil";"x")\r\n"quoted", and\tmore',
    "'-5 Grad über 🗼 \u202eabc\u202c مرحبا",
]


def sheet_of(kind: Kind) -> pl.DataFrame:
    rows = [
        dict.fromkeys(COLUMNS[kind])
        | {"run": "r", "step": "s", "draw": "random 3 of 3, seed 0", "sample_id": f"s{n}"}
        | ({"metric": "faithfulness", "response": text} if kind == "samples" else {"claim": text})
        | ({"premise": f"Premise {n}."} if kind == "verdicts" else {})
        for n, text in enumerate(HOSTILE)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def opened(browser: Browser, folder: Path, kind: Kind) -> Seen:
    path = folder / "form.html"
    path.write_text(label_page(sheet_of(kind), kind, VALUES.get(kind, ())), "utf-8")
    return Seen(browser, path)


def saved(seen: Seen, folder: Path) -> Path:
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="Save the sheet").click()
    download.value.save_as(folder / "labels.csv")
    return folder / "labels.csv"


def nothing_ran(seen: Seen) -> None:
    assert seen.complaints == []
    assert all(url.startswith(("file:", "blob:")) for url in seen.asked)
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("script").count() == 2
    assert seen.page.locator("img").count() == 0
    seen.page.close()


def test_verdicts_are_labelled_by_mouse_and_by_keys(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "verdicts")
    page = seen.page
    assert page.locator("#progress").inner_text() == "Row 1 of 3, 0 labelled"
    assert page.locator("#texts p").all_text_contents() == ["Premise 0.", HOSTILE[0]]
    page.get_by_label("neutral").check()
    page.keyboard.press("ArrowRight")
    assert page.locator("#texts p").nth(1).text_content() == HOSTILE[1]
    page.keyboard.press("1")
    page.get_by_role("button", name="Next").click()
    assert page.locator("#texts p").nth(1).text_content() == HOSTILE[2].replace(
        "\u202e", "\ufffd"
    ).replace("\u202c", "\ufffd")
    page.get_by_role("button", name="Back").click()
    assert page.get_by_label("entailed").is_checked()
    assert page.locator("#progress").inner_text() == "Row 2 of 3, 2 labelled"
    sheet = read_sheet(saved(seen, tmp_path), LAYOUTS)
    assert sheet.kind == "verdicts"
    assert [row.cell("label") for row in sheet.rows] == ["neutral", "entailed", ""]
    assert [row.cell("claim") for row in sheet.rows] == HOSTILE
    assert [row.cell("sample_id") for row in sheet.rows] == ["s0", "s1", "s2"]
    text = (tmp_path / "labels.csv").read_bytes().decode("utf-8")
    assert text.startswith('\ufeff"run","step","draw",')
    assert '"=HYPER' not in text
    nothing_ran(seen)


def test_samples_are_rated(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "samples")
    page = seen.page
    assert page.locator("#question").inner_text() == (
        "How good is the response? It is rated by faithfulness."
    )
    page.get_by_label("From 0 to 1").fill("0.25")
    page.get_by_role("button", name="Next").click()
    page.get_by_label("From 0 to 1").fill("7")
    page.get_by_role("button", name="Next").click()
    rows = read_sheet(saved(seen, tmp_path), LAYOUTS).rows
    assert [row.cell("label") for row in rows] == ["0.25", "", ""]
    nothing_ran(seen)


def test_claims_are_good_or_bad(browser: Browser, tmp_path: Path) -> None:
    seen = opened(browser, tmp_path, "claims")
    assert seen.page.locator("#choices label").all_text_contents() == [" good (1)", " bad (2)"]
    for key, message in (("2", "1 labelled"), ("0", "0 labelled"), ("1", "1 labelled")):
        seen.page.keyboard.press(key)
        assert seen.page.locator("#progress").inner_text() == f"Row 1 of 3, {message}"
    seen.page.get_by_role("button", name="No label").click()
    assert seen.page.locator("#progress").inner_text() == "Row 1 of 3, 0 labelled"
    seen.page.keyboard.press("2")
    assert [row.cell("label") for row in read_sheet(saved(seen, tmp_path), LAYOUTS).rows] == [
        "bad",
        "",
        "",
    ]
    nothing_ran(seen)
