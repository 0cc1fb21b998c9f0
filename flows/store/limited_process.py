"""Processes whose memory and time the operating system limits.

DuckDB cannot interrupt every function, nor does it count all memory that one takes. So SQL of
users runs in a process of its own, which may die without harm.
"""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

_CALL: Final = "import sys; sys.path[:] = {path!r}; from {module} import {name}; {name}()"

_BYTES_PER_CORE: Final = 2**24
"""Stacks of threads."""

_WATCH_SECONDS: Final = 0.5


class LimitedProcess:
    """A Python that calls a function without arguments; its end of the connection is `served`.

    Use it in `closing`. Ctrl-C does not reach it: it is for the process that started it.
    """

    def __init__(self, module: str, name: str) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        with theirs:
            call = _CALL.format(path=sys.path, module=module, name=name)
            self._process = subprocess.Popen(  # noqa: S603, it is this very Python
                [sys.executable, "-c", call, str(os.getpid())],
                stdin=theirs.fileno(),
                # Libraries write there, for example when they find no memory and end the process.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                process_group=0,
            )

    def close(self) -> None:
        """End the process and wait until it is gone."""
        self.kill()
        self._process.wait()
        self._ours.close()

    def kill(self) -> None:
        """End the process now; one that has ended is left as it is."""
        self._process.kill()

    def send(self, message: Any) -> None:
        """Send an object. Raises `OSError` where the process has ended."""
        self._ours.send(message)

    def receive(self) -> Any:
        """The next object. Raises an object that is an exception, else `EOFError` or `OSError`."""
        self._wait()
        answer = self._ours.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def receive_bytes(self) -> bytes:
        """The next bytes, which were sent as they are."""
        self._wait()
        return self._ours.recv_bytes()

    def _wait(self) -> None:
        # Ctrl-C ends a poll but not a read: Polars has the system calls of a process restarted.
        self._ours.poll(None)

    def how_it_ended(self) -> str | None:
        """`by SIGKILL` or `with exit code 1`; None where its time was over."""
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return None
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def served() -> Connection:
    """In a limited process: the connection to the one that started it."""
    return Connection(sys.stdin.fileno())


def end_with_parent() -> None:
    """In a limited process: end half a second after the one that started it."""
    # That one may have ended while this one started.
    parent = int(sys.argv[1])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def limit_process(memory: int) -> None:
    """Limit the memory of this process to about `memory` bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    data = memory + _BYTES_PER_CORE * (os.cpu_count() or 1)
    data = data if hard == resource.RLIM_INFINITY else min(data, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (data, hard))
    # A file with gigabytes of memory would be of no use.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        # Where the machine has no memory left, Linux ends this process before any other.
        Path("/proc/self/oom_score_adj").write_text("1000")
    # A process inherits what is ignored or blocked.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


def limit_time(seconds: float) -> float:
    """Have this process end after `seconds`, 0 for never; the seconds that were left before."""
    return signal.setitimer(signal.ITIMER_REAL, seconds)[0]
