"""What all tests share: hypothesis' draws, the order of files, servers, forks, a browser."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.flows.forks import Forks, forking
from tests.flows.prefect_server import environment, shared_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Hardly anything of what is loaded while tests are collected is ever let go.
gc.disable()

# Else every process that tests start compiles all of ours anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples on every machine, and no judgement of how fast it is.
settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")

LONG = (
    "tests/flows/test_schedule.py",
    "tests/flows/test_llm_durability.py",
    "tests/test_readme.py",
    "tests/flows/test_prefect_flow.py",
    "tests/flows/test_execute.py",
    "tests/flows/test_plan.py",
)
"""Files that take long, the longest first: one that began last would be waited for alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; those with a browser last, for beside it no asyncio loop can be run."""
    places = {name: place for place, name in enumerate(LONG)}
    places |= {_file(item): len(LONG) + 1 for item in items if "browser" in _fixtures(item)}
    items.sort(key=lambda item: places.get(_file(item), len(LONG)))


def pytest_collection_finish() -> None:
    """What is loaded by now stays until the end: the collector of cycles need not look at it."""
    gc.freeze()
    gc.enable()


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@atexit.register
def _hush() -> None:
    """Pytest keeps our modules until the very end, which DuckDB's binding takes for a leak.

    It would print pages about it below the result of the tests.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API address of a Prefect server that all tests share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_server(folder / "prefect-server") as url:
        yield url


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Starts commands without loading everything anew."""
    with forking(tmp_path_factory.mktemp("forks")) as forks:
        yield forks


@pytest.fixture(scope="session")
def tracked_forks(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """As `forks`, for commands that the Prefect server hears of."""
    folder = tmp_path_factory.mktemp("tracked")
    world = environment(folder / "home", PREFECT_API_URL=server)
    with forking(folder, "claimflow.flows.orchestration.flow", environment=world) as forks:
        yield forks


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """A Chromium that all tests of this process share."""
    from tests.flows.browser import browsing

    with browsing() as opened:
        yield opened
