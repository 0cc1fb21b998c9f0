"""Command output: bytes, texts and tables, to a file or to standard output."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import faults_of_writing, is_file
from claimflow.flows.report.formatting import escape_controls

if TYPE_CHECKING:
    import polars as pl

    from claimflow.flows.report.terminal import Terminal

TableFormat = Literal["table", "csv", "json", "parquet"]


def write_message(text: str) -> None:
    """Write a line to standard error.

    Where that is impossible, because its reader is gone or the disk is full, further messages are
    discarded: they are not what a command is run for.
    """
    # `print` writes the end of a line separately, so that lines of several threads would mix.
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def write_text(text: str, output: Path | None) -> None:
    """Write a text as UTF-8 to a file, or to standard output. Raises as `write_bytes` does."""
    if output is not None:
        write_bytes(text.encode(), output)
        return
    sys.stdout.write(text)
    sys.stdout.flush()


def write_bytes(content: bytes, output: Path | None, *, note: str | None = None) -> None:
    """Write to a file or to standard output; of a file say so on standard error, with `note`.

    Raises `InputError` where a file cannot be written or is a store.
    """
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    with faults_of_writing(output):
        refuse_database(output)
        output.write_bytes(content)
    write_message(note or f"written: {output}")


def refuse_database(output: Path) -> None:
    """Raise `InputError` where a file to be written is a DuckDB database."""
    if not is_file(output):
        return
    with output.open("rb") as file:
        if file.read(12)[8:] == b"DUCK":
            what = "is a DuckDB database, which would be lost"
            raise InputError([Fault(str(output), what, "name another file")])


def print_or_write(render: "Callable[[Terminal], None]", output: Path | None) -> None:
    """Print what `render` prints to the terminal, or write it to a file as plain text."""
    from claimflow.flows.report.terminal import Terminal, rendered_text

    if output is None:
        render(Terminal())
    else:
        write_text(rendered_text(render), output)


def write_table(frame: "pl.DataFrame", table_format: TableFormat, output: Path | None) -> None:
    """Write a table in the given format to `output` or to standard output.

    On a terminal control characters are replaced, in CSV and JSON too. Raises `InputError` where
    Parquet would go to a terminal or the file cannot be written.
    """
    if table_format == "parquet" and output is None and sys.stdout.isatty():
        raise InputError(
            [Fault("--format parquet", "cannot be printed to a terminal", "add -o FILE")]
        )
    if table_format == "table":
        print_or_write(lambda terminal: terminal.print_frame(frame), output)
        return
    from claimflow.flows.report.table_files import encode_table

    content = encode_table(frame, table_format)
    if output is None and sys.stdout.isatty():
        content = escape_controls(content.decode()).encode()
    write_bytes(content, output)
