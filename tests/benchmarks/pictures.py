"""Screenshots for the README: the report of the demo, a sample of it, and a comparison.

    python -m tests.benchmarks.pictures

Runs the demo, and once more with a stricter threshold, in a folder that is removed; writes
`tests/pictures/*.png` with Chromium.
"""

import shutil
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Browser, Page

from claimflow.flows.cli.main import main
from tests.conftest import chromium
from tests.flows.browser import PATIENCE, browsing

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "tests/pictures"
SAMPLE: Final = "demo-qafb-40"
STRICTER: Final = ("against: reference}", "against: reference, threshold: 0.7}")


def report_pages(folder: Path) -> tuple[Path, Path]:
    """The report of the demo, and its comparison with a run at a stricter threshold."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    config = folder / "configs/quickstart.yaml"
    alone, against = folder / "report.html", folder / "comparison.html"
    with chdir(folder):
        run(["run", str(config)])
        run(["report", "-o", str(alone)])
        config.write_text(config.read_text("utf-8").replace(*STRICTER), "utf-8")
        run(["run", str(config)])
        run(["report", "--against", "previous", "-o", str(against)])
    return alone, against


def run(arguments: list[str]) -> None:
    """Run a command; exit if it fails."""
    code = main(arguments)
    if code:
        raise SystemExit(code)


def take_all(alone: Path, against: Path) -> None:
    """Take every picture of these two pages."""
    PICTURES.mkdir(exist_ok=True)
    with browsing(str(chromium())) as browser:
        page = opened(browser, alone, 560)
        take(page, "report")
        page.get_by_text(SAMPLE, exact=True).click()
        page.set_viewport_size({"width": 1200, "height": 820})
        page.locator("section[aria-label=Response] .mark.contradicted").last.click()
        page.evaluate("document.getElementById('detail').scrollIntoView()")
        take(page, "sample")
        page = opened(browser, against, 1000)
        page.locator("#list tbody tr").first.click()
        take(page, "comparison")


def opened(browser: Browser, path: Path, height: int) -> Page:
    """A page in a window of the size of its picture; console messages and errors are printed."""
    page = browser.new_page(viewport={"width": 1200, "height": height}, color_scheme="light")
    page.on("console", lambda message: print(message.text))
    page.on("pageerror", lambda error: print(error.stack))
    page.set_default_timeout(PATIENCE)
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("#list tbody tr")
    return page


def take(page: Page, name: str) -> None:
    """Save what the window shows."""
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        take_all(*report_pages(Path(place)))
