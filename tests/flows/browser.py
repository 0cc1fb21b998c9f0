"""A real Chromium for tests of pages."""

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
"""Milliseconds to wait for the browser: enough for a busy machine."""


@contextmanager
def browsing(executable: str) -> Iterator[Browser]:
    """A Chromium, until the end of the block; meanwhile no other asyncio loop can run here."""
    # Our pages forbid `eval`, which `wait_for_function` needs, so tests use `expect`.
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=ARGUMENTS, timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """An opened page, with the errors that the browser reported and the addresses it requested."""

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
