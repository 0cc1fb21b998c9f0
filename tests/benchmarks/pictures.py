"""Screenshots for the README: the list of runs, and a claim with its evidence in `claimflow view`.

    python -m tests.benchmarks.pictures

Runs the demo at several thresholds in a folder that is removed; writes `tests/pictures/*.webp` with
Chromium.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Browser, Page, expect

from claimflow.flows.cli.main import main
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.conftest import chromium
from tests.flows.browser import PATIENCE, browsing
from tests.flows.viewing import serving

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "tests/pictures"
SAMPLE: Final = "demo-qafb-40"
ENDED: Final = (0, 4, 5)
"""The exit codes of a run whose gates pass, fail or are inconclusive."""

QUALITY: Final = 0.6
ENCODE: Final = """
async ([content, quality]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.width, picture.height];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return canvas.toDataURL("image/webp", quality).split(",")[1];
}
"""
THRESHOLDS: Final = (0.5, 0.5, 0.55, 0.7, 0.6, 0.55)
"""How sure each run must be to call a claim entailed or contradicted, so that the means move."""

PIPELINE: Final = """
name: nightly
samples: {{path: {samples}}}
store: nightly.duckdb
steps:
  response_claims: {{use: decompose_claims, of: response}}
  reference_claims: {{use: decompose_claims, of: reference}}
  response_in_reference:
    {{use: verify_claims, claims: response_claims, against: reference, threshold: {threshold}}}
  reference_in_response:
    {{use: verify_claims, claims: reference_claims, against: response, threshold: {threshold}}}
  response_in_contexts:
    {{use: verify_claims, claims: response_claims, against: retrieved_contexts,
     threshold: {threshold}}}
  factual_correctness: {{use: factual_correctness}}
  faithfulness: {{use: faithfulness}}
  summary: {{use: summarize_scores}}
gates:
  faithfulness: {{min: 0.65}}
"""


@contextmanager
def demo_store() -> Iterator[Store]:
    """A store with runs of the demo at several thresholds, until the end of the block."""
    with TemporaryDirectory() as place, chdir(place):
        for threshold in THRESHOLDS:
            text = PIPELINE.format(samples=ROOT / "configs/demo.jsonl", threshold=threshold)
            Path("nightly.yaml").write_text(text, "utf-8")
            if main(["run", "nightly.yaml"]) not in ENDED:
                raise SystemExit("the demo did not run")
        yield Store(Path("nightly.duckdb").resolve())


def take_all(browser: Browser, view: ViewServer, folder: Path, sample: str) -> None:
    """Take every picture of a store into a folder; `sample` has a claim that is contradicted."""
    context = browser.new_context(viewport={"width": 1440, "height": 736}, color_scheme="light")
    page = context.new_page()
    page.on("console", lambda message: print(message.text))
    page.on("pageerror", lambda error: print(error.stack))
    page.set_default_timeout(PATIENCE)
    page.goto(view.url)
    # The folder of this moment tells a reader nothing.
    page.locator("main > p.faint").first.evaluate("line => line.remove()")
    take(page, folder / "runs.webp")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"http://127.0.0.1:{view.server_port}/run/latest#sample={sample}")
    expect(page.locator("#detail h3")).to_have_text(f"Sample {sample}")
    page.locator("section[aria-label=Response] .mark.contradicted").last.click()
    page.evaluate("document.getElementById('detail').scrollIntoView()")
    take(page, folder / "claim.webp")
    context.close()


def take(page: Page, path: Path) -> None:
    """Save what the window shows, as WebP: Chromium makes PNG of several times the size."""
    content = b64encode(page.screenshot()).decode()
    blank = page.context.new_page()
    made = blank.evaluate(ENCODE, [content, QUALITY])
    blank.close()
    path.write_bytes(b64decode(made))
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with demo_store() as store, serving(store) as view, browsing(str(chromium())) as browser:
        take_all(browser, view, PICTURES, SAMPLE)
