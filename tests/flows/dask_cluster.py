"""A Dask cluster for tests: a scheduler and two workers, processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEDULER = "scheduler.json"
PATH = os.pathsep.join([str(ROOT / ".package"), str(ROOT)])
"""The PYTHONPATH of this checkout and of the functions of tests."""


@contextmanager
def dask_cluster(folder: Path, *, path: str = PATH, workers: int = 2) -> Iterator[str]:
    """The address of a scheduler, started as a user starts it in `folder`, with two workers.

    `path` is their PYTHONPATH.
    """
    known = folder / SCHEDULER
    with (
        _started(folder, path, "scheduler", "--port", "0"),
        dask_workers(folder, path=path, workers=workers),
    ):
        for _ in range(600):
            if known.exists() and known.read_text("utf-8").endswith("}"):
                break
            time.sleep(0.1)
        yield json.loads(known.read_text("utf-8"))["address"]


def dask_workers(
    folder: Path, *, path: str = PATH, workers: int = 1
) -> AbstractContextManager[None]:
    """Further workers of the scheduler that was started in `folder`."""
    size = ["--nworkers", str(workers), "--nthreads", "1", "--memory-limit", "0"]
    return _started(folder, path, "worker", *size)


@contextmanager
def _started(folder: Path, path: str, *command: str) -> Iterator[None]:
    where = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", SCHEDULER]
    with (folder / "dask.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command, *where],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path, "DASK_TEMPORARY_DIRECTORY": str(folder)},
            stdout=log,
            stderr=log,
            process_group=0,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
