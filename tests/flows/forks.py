"""Commands in forks of a process that has loaded what they need, which takes seconds."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

_FORKS: Final = """
import asyncio, gc, importlib, json, os, resource, sys, threading
import claimflow.flows.api, claimflow.flows.report.terminal, claimflow.flows.runner.estimate
from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.schema import pipeline_model
from claimflow.flows.judge.provider import open_provider
from claimflow.flows.store.store import Store

async def get_ready():
    provider = open_provider("litellm")
    await provider.warm_up("hosted_vllm/fake")
    await provider.close()

def ended(number):
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

def become(asked):
    os.chdir(asked["folder"])
    os.environ.update(asked["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(asked["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    if asked["bytes_per_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["bytes_per_file"],) * 2)
    Store.__init__.__kwdefaults__["wait"] = asked["wait"]
    sys.exit(main(asked["arguments"]))

# In the main thread it would take back what Polars does to Ctrl-C.
getting_ready = threading.Thread(target=lambda: asyncio.run(get_ready()))
getting_ready.start()
getting_ready.join()
pipeline_model()
for module in sys.argv[1:]:
    importlib.import_module(module)
# Else each child would go through all of that to look for cycles, and copy it.
gc.collect()
gc.freeze()
for line in sys.stdin:
    asked = json.loads(line)
    if isinstance(asked, int):
        print(ended(asked), flush=True)
        continue
    child = os.fork()
    if child == 0:
        become(asked)
    print(child, flush=True)
"""


class Process:
    """One command, in a process of its own."""

    def __init__(self, forks: "Forks", number: int, outputs: list[Path]) -> None:
        self._forks = forks
        self._number = number
        self._outputs = outputs

    def send(self, signal_number: int) -> None:
        os.kill(self._number, signal_number)

    def code(self) -> int:
        """The exit code, or the signal that ended it as a negative number; to be asked once."""
        return self._forks.ask(self._number)

    def out(self) -> str:
        return self._outputs[0].read_text("utf-8")

    def err(self) -> str:
        return self._outputs[1].read_text("utf-8")


class Forks:
    """Starts commands; what they say is put into `folder`.

    `modules` are loaded before, by a process with `environment` that is started in `started_in`.
    """

    def __init__(
        self,
        folder: Path,
        modules: Sequence[str],
        environment: Mapping[str, str] | None,
        started_in: Path,
    ) -> None:
        self._folder = folder
        self._started = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKS, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=started_in,
            # readline, which pytest imports, sets COLUMNS where os.environ does not see it.
            env=os.environ if environment is None else environment,
        )

    def run(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        bytes_per_file: int = 0,
        wait: float = 60,
    ) -> Process:
        """Start a command in `folder`.

        It can write no file of more than `bytes_per_file`, and waits `wait` seconds for a store.
        """
        self._started += 1
        outputs = [self._folder / f"{self._started}.{name}" for name in ("out", "err")]
        asked = {
            "folder": str(folder),
            "arguments": arguments,
            "environment": dict(environment or {}),
            "outputs": list(map(str, outputs)),
            "bytes_per_file": bytes_per_file,
            "wait": wait,
        }
        return Process(self, self.ask(asked), outputs)

    def ask(self, asked: Any) -> int:
        """What the process answers; while it waits for a command to end it answers nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def forking(
    folder: Path,
    *modules: str,
    environment: Mapping[str, str] | None = None,
    started_in: Path = ROOT,
) -> Iterator[Forks]:
    """What starts commands, until the end of the block."""
    forks = Forks(folder, modules, environment, started_in)
    try:
        yield forks
    finally:
        forks.close()


def children(parent: int) -> set[int]:
    """The processes that the threads of a process started."""
    found: set[int] = set()
    for thread in Path(f"/proc/{parent}/task").iterdir():
        # A thread may have ended meanwhile.
        with suppress(OSError):
            found.update(map(int, (thread / "children").read_text().split()))
    return found
