"""A real Chromium, which sees a page as readers do and tells what it did."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PATIENCE = 120_000
"""Milliseconds: more than anything takes on a machine that has much else to do."""


def chromium() -> str:
    """Where Chromium is; tests of pages fail without it, for nothing else sees what they see."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "tests of pages need Chromium: apt-get install chromium"
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    """A Chromium, until the end of the block; while it is open no other asyncio loop runs here."""
    # A page of ours forbids `eval`, by which `wait_for_function` would look again: tests expect.
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=ARGUMENTS, timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A page that was opened, with all complaints of the browser and all addresses asked for."""

    def __init__(self, browser: Browser, path: Path, **settings: Any) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": 1360, "height": 900}, **settings)
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._surprised)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def _surprised(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()
