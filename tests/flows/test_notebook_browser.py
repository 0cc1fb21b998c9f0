"""Results as notebooks show them, in a real browser: apart from the tests of `evaluate`, since no
event loop can run in a process beside a browser."""

import re
from pathlib import Path
from typing import Any

import claimflow
from tests.flows.browser import Seen

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&\x1b[31m\u202e"
STYLE = """element => {
    const style = getComputedStyle(element);
    return [style.color, style.backgroundColor, style.border, style.padding, style.textAlign];
}"""


def test_a_notebook_shows_a_result_safely(browser: Any, tmp_path: Path) -> None:
    answers = [
        {
            "sample_id": f"{HOSTILE}{number}",
            "user_input": HOSTILE,
            "response": f"The tower stands in Rome. {HOSTILE} It opened in {number}.",
            "retrieved_contexts": [f"The tower stands in Paris. {HOSTILE}"],
        }
        for number in range(9)
    ]
    result = claimflow.evaluate(answers, metrics=["faithfulness"])
    shown = result._repr_html_()
    assert len(shown) < 100_000
    page = tmp_path / "page.html"
    outside = '<p id="outside">x</p><table id="mine"><tr><td>y</td></tr></table>'
    page.write_text(f'<!doctype html><meta charset="utf-8">{outside}', "utf-8")
    plain = Seen(browser, page).page.locator("#mine td").evaluate(STYLE)
    page.write_text(f'<!doctype html><meta charset="utf-8">{outside}{shown}', "utf-8")
    seen = Seen(browser, page, color_scheme="dark")
    assert seen.page.locator("#mine td").evaluate(STYLE) == plain
    assert seen.page.locator(".claimflow-result script, .claimflow-result img").count() == 0
    assert seen.page.locator(".claimflow-result > table td").first.inner_text() == "faithfulness"
    sample = seen.page.locator(".claimflow-result > details").first
    evidence = sample.locator("li q").first
    assert not evidence.is_visible()
    sample.locator("summary").first.click()
    sample.locator("li summary").first.click()
    assert "The tower stands in Paris" in evidence.inner_text()
    # Text has the colour of the page, light or dark, and nothing behind it.
    seen.page.evaluate("document.body.style.cssText = 'background: #111; color: rgb(1, 200, 3)'")
    assert seen.page.locator(".claimflow-result td").first.evaluate(STYLE)[:2] == [
        "rgb(1, 200, 3)",
        "rgba(0, 0, 0, 0)",
    ]
    assert (seen.complaints, seen.asked) == ([], [page.resolve().as_uri()])
    for other in (result.sample(f"{HOSTILE}3"), result.diff(result)):
        assert not re.search("<(script|img)", other._repr_html_())
