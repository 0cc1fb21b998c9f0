"""The pictures of the README, and the script that takes them."""

import re
from pathlib import Path

from playwright.sync_api import Browser

from tests.benchmarks.pictures import PICTURES, take_all
from tests.flows.report_runs import put_runs
from tests.flows.viewing import serving

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
SHOWN = set(re.findall(r"\]\(tests/pictures/([^)]+)\)", README))
MOST_BYTES = 150_000


def test_the_script_takes_the_pictures_of_the_readme(browser: Browser, tmp_path: Path) -> None:
    store, _, _ = put_runs(tmp_path)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    with serving(store) as view:
        take_all(browser, view, pictures, "tower")
    taken = {path.name for path in pictures.iterdir()}
    assert taken == SHOWN
    assert all(path.read_bytes()[8:12] == b"WEBP" for path in pictures.iterdir())


def test_the_readme_shows_every_picture_and_they_are_small() -> None:
    assert {path.name for path in PICTURES.iterdir()} == SHOWN
    assert all(path.stat().st_size < MOST_BYTES for path in PICTURES.iterdir())
