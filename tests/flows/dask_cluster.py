"""A Dask cluster for tests: a scheduler and two workers, processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def dask_cluster(folder: Path, *, path: str = str(ROOT), workers: int = 2) -> Iterator[str]:
    """The address of a scheduler, started as a user starts it in `folder`, with two workers.

    `path` is their PYTHONPATH.
    """
    known = folder / "scheduler.json"
    where = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(known)]
    size = ["--nworkers", str(workers), "--nthreads", "1", "--memory-limit", "0"]
    with (folder / "dask.log").open("w") as log:
        processes = [_started(folder, log.fileno(), path, "scheduler", "--port", "0", *where)]
        processes.append(_started(folder, log.fileno(), path, "worker", *where, *size))
        try:
            for _ in range(600):
                if known.exists() and known.read_text("utf-8").endswith("}"):
                    break
                time.sleep(0.1)
            yield json.loads(known.read_text("utf-8"))["address"]
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _started(folder: Path, log: int, path: str, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "DASK_TEMPORARY_DIRECTORY": str(folder)},
        stdout=log,
        stderr=log,
        process_group=0,
    )
