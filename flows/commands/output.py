"""What a command has made, written where it was asked to be."""

import sys
from pathlib import Path

from claimflow.flows.errors import Fault, InputError


def write_text(text: str, output: Path | None) -> None:
    """Write a text to a file, as UTF-8, or to standard output. Raises as `write_file` does."""
    if output is not None:
        write_file(text.encode(), output)
        return
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(content: bytes, output: Path | None) -> None:
    """Write to a file, or as they are to standard output. Raises as `write_file` does."""
    if output is not None:
        write_file(content, output)
        return
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_file(content: bytes, output: Path) -> None:
    """Write a file. Raises `InputError` where it cannot be written."""
    try:
        output.write_bytes(content)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise InputError([Fault(str(output), what, "name a file in a folder of yours")]) from error
