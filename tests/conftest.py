"""Shared by all tests: hypothesis settings, order of files, Prefect server, forks, browser."""

import atexit
import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.flows.forks import Forks, forking
from tests.flows.prefect_server import environment, shared_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# Almost nothing that is loaded while tests are collected is ever freed.
gc.disable()

# It is the width of tables, and pytest-xdist sets it in its processes.
os.environ.pop("COLUMNS", None)

# Otherwise every process that tests start would compile the whole package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples on every machine, and no time limits. As they are the same in every run, more
# of them would find nothing new the next time.
settings.register_profile(
    "everywhere", max_examples=40, deadline=None, derandomize=True, database=None
)
settings.load_profile("everywhere")

ROOT = Path(__file__).parent.parent

ONE_WORKER = (
    "tests/flows/test_schedule.py",
    "tests/flows/test_serving.py",
    "tests/flows/test_automations.py",
    "tests/test_readme.py",
    "tests/flows/test_judge_durability.py",
    "tests/flows/test_judge_asking.py",
    "tests/flows/test_prefect_flow.py",
    "tests/flows/test_rate_slots.py",
    "tests/flows/test_task_runs.py",
    "tests/flows/test_object_storage.py",
)
"""Files that use `server`, `forks` or `tracked_forks`. All of them run in one pytest process, as
starting each of those takes many seconds of CPU."""

LONG = (
    *ONE_WORKER,
    "tests/flows/test_canaries.py",
    "tests/flows/test_rerun_runs.py",
    "tests/flows/test_votes.py",
    "tests/flows/test_noise.py",
    "tests/flows/test_cluster.py",
    "tests/flows/test_workers.py",
    "tests/flows/test_plan.py",
    "tests/flows/test_execute.py",
    "tests/test_wheel.py",
)
"""The files that take longest: started last, they would delay the end."""

NO_CHROMIUM = "browser tests need Chromium in PATH (for example apt-get install chromium)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; those with a browser last, because no asyncio loop can run beside it."""
    if missing := [name for name in LONG if not (ROOT / name).exists()]:
        raise pytest.UsageError(f"LONG names files that are not there: {', '.join(missing)}")
    places = {name: place for place, name in enumerate(LONG)}
    places |= {_file(item): len(LONG) + 1 for item in items if "browser" in _fixtures(item)}
    items.sort(key=lambda item: places.get(_file(item), len(LONG)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """Give each file to one process, and the files of `ONE_WORKER` all to the same one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return ONE_WORKER[0] if file in ONE_WORKER else file

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Exclude everything loaded by now from garbage collection: it stays until the end."""
    gc.freeze()
    gc.enable()


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@atexit.register
def _hush() -> None:
    """Silence DuckDB's binding at exit: it reports leaks, as pytest keeps all modules loaded."""
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


def chromium() -> str | None:
    """The path of Chromium, or None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """A Chromium for all tests of this process; without it they are skipped, but fail in CI."""
    from tests.flows.browser import browsing

    executable = chromium()
    if executable is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)(NO_CHROMIUM)
    with browsing(executable) as opened:
        yield opened


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if chromium() is None:
        terminalreporter.write_line(NO_CHROMIUM)
