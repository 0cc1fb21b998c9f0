"""What a local worker process does: call what comes on its standard input."""

import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def serve() -> None:
    """Answer each call until whoever started this process is gone."""
    with Connection(sys.stdin.fileno()) as connection:
        while True:
            try:
                work, arguments = connection.recv()
            except EOFError:
                return
            connection.send(_made(work, arguments))


def _made(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(*arguments)
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        return error
