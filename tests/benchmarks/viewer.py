"""Times of `claimflow view`: a run of many samples with verdicts, and an answer of 180 KB.

    python -m tests.benchmarks.viewer [SAMPLES] [--chromium PATH]

A store gets two runs of SAMPLES samples (10,000 when left out), each with two contexts, ten claims
and their verdicts, of which one in a hundred flips; the first sample's answer has 180 KB and 200
claims. Shown are the seconds that the server takes for each page, which is its CPU time, and those
that a reader waits in Chromium from a click until the text is there.
"""

import argparse
import random
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ADDRESS, ViewServer
from tests.flows.browser import browsing
from tests.flows.recorded_runs import Table, claim_id, put_run

LONG = 180_000
CLAIMS = 10
CLAIMS_OF_LONG = 200


def write_run(store: Store, count: int, *, flipped: int) -> None:
    """A run in which every `flipped`-th claim is contradicted."""
    chance = random.Random(0)
    samples: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for number in range(count):
        name = f"sample-{number}"
        sentences = [
            f"Fact {number}.{at} is that {chance.random():.12f} holds." for at in range(CLAIMS)
        ]
        if number == 0:
            sentences = [
                f"Fact {at}: {'so it is said and ' * 48}it holds." for at in range(CLAIMS_OF_LONG)
            ]
        text = " ".join(sentences)
        samples.append(
            {
                "sample_id": name,
                "user_input": f"What is known of number {number}?",
                "response": text,
                "retrieved_contexts": [text[:1000], text[-1000:]],
                "metadata": f'{{"topic": "topic {number % 12}"}}',
            }
        )
        start = entailed = 0
        for at, sentence in enumerate(sentences):
            claim = {"claim_id": claim_id(name, sentence), "sample_id": name, "of": "response"}
            claims.append(claim | {"claim": sentence, "start": start, "end": start + len(sentence)})
            start += len(sentence) + 1
            verdict = "contradicted" if (number * CLAIMS + at) % flipped == 0 else "entailed"
            entailed += verdict == "entailed"
            verdicts.append(
                {
                    "claim_id": claim["claim_id"],
                    "against": "retrieved_contexts",
                    "verdict": verdict,
                    "evidence": text[:20],
                    "evidence_passage": 0,
                    "evidence_start": 0,
                    "evidence_end": 20,
                }
            )
        score = {"sample_id": name, "metric": "faithfulness", "status": "scored"}
        scores.append(score | {"score": entailed / len(sentences)})
    put_run(
        store,
        {
            "samples": Table("samples", samples),
            "claims": Table("claims", claims),
            "verdicts": Table("verdicts", verdicts),
            "scores": Table("scores", scores),
        },
    )


def timed(view: ViewServer, path: str) -> tuple[float, int]:
    """Seconds until the whole answer is there, and its bytes."""
    connection = HTTPConnection(ADDRESS, view.server_port, timeout=300)
    started = time.monotonic()
    connection.request("GET", path, headers={"Cookie": f"{view.cookie}={view.key}"})
    answer = connection.getresponse()
    size = len(answer.read())
    seconds = time.monotonic() - started
    connection.close()
    if answer.status == 303:
        more, size = timed(view, answer.headers["Location"])
        return seconds + more, size
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return seconds, size


WAITED = """([pressed, there]) => new Promise((done) => {
  const head = () => (document.querySelector("#detail h3") || { textContent: "" }).textContent;
  const [began, before] = [performance.now(), head()];
  const ended = () => setTimeout(() => done((performance.now() - began) / 1000));
  const shown = () => (there ? document.querySelector(there) : head() !== before);
  const look = () => { requestAnimationFrame(shown() ? ended : look); };
  pressed = document.querySelector(pressed);
  pressed.click();
  look();
})"""
"""Seconds from a click until what it shows is painted: an element, or another sample."""


TYPED = """() => new Promise((done) => {
  const field = document.querySelector("[name=from]");
  const began = performance.now();
  field.value = "0.95";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(() => setTimeout(() => done((performance.now() - began) / 1000)));
})"""
"""Seconds from a letter in a filter until the list of those that match is painted."""


def waited(page: Page, pressed: str, there: str | None = None) -> float:
    seconds: float = page.evaluate(WAITED, [pressed, there])
    return seconds


def browse(view: ViewServer, chromium: str, samples: int) -> None:
    """Print what a reader waits for."""
    with browsing(chromium) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(view.url)
        address = f"http://{ADDRESS}:{view.server_port}/run/latest?against=previous"
        started = time.monotonic()
        page.goto(address)
        expect(page.locator("#matches")).to_contain_text("match")
        found = {"a comparison, until its list is there": time.monotonic() - started}
        found["the list, sorted"] = waited(
            page, "th:nth-child(3) button", "th:nth-child(3)[aria-sort=ascending]"
        )
        found["a filter, typed"] = page.evaluate(TYPED)
        page.locator("[name=from]").fill("")
        page.locator("[name=text]").fill("so it is said")
        expect(page.locator("#list tbody tr")).to_have_count(1)
        found["an answer of 180 KB, opened"] = waited(page, "#list button.open", "#detail .mark")
        found["a claim of it, chosen"] = waited(
            page,
            "#detail ol.claims li:nth-child(150) button",
            "#detail li:nth-child(150) button[aria-expanded=true]",
        )
        page.locator("#detail button.close").click()
        page.locator("[name=text]").fill("")
        expect(page.locator("#matches")).to_contain_text(f"{samples:,} of")
        found["a sample, opened"] = waited(page, "#list tr:nth-child(30) button.open", "#detail h3")
        time.sleep(1)
        found["the next sample"] = waited(page, "#detail button.next")
        for what, seconds in found.items():
            print(f"  {what:40}  {seconds:6.2f} s")


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", nargs="?", type=int, default=10_000)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        store = Store(Path(room) / "s.duckdb")
        write_run(store, options.samples, flipped=997)
        write_run(store, options.samples, flipped=499)
        with ViewServer(store, 0) as view:
            thread = threading.Thread(target=view.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                print(f"{options.samples:,} samples, two runs; the server")
                for what, path in {
                    "the list of runs": "/",
                    "a report, first": "/run/latest",
                    "a report, again": "/run/latest",
                    "a comparison, first": "/run/latest?against=previous",
                    "a comparison, again": "/run/latest?against=previous",
                    "a sample": "/run/latest/sample?id=sample-77",
                    "a search": "/run/latest/search?text=number+77",
                }.items():
                    seconds, size = timed(view, path)
                    print(f"  {what:40}  {seconds:6.2f} s {size:>12,} bytes", flush=True)
                print("a reader")
                browse(view, options.chromium, options.samples)
            finally:
                view.shutdown()
                thread.join()


if __name__ == "__main__":
    main()
