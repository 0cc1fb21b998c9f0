"""Tables on standard output or in a file: for reading, or as csv, json, parquet."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Final, Literal

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from claimflow.flows.commands.output import write_bytes
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.text import visible

Format = Literal["table", "csv", "json", "parquet"]


_LOG_WIDTH: Final = 160


def shown(text: object, style: str = "") -> Text:
    """Text under evaluation as it may be shown on a terminal: it cannot steer it."""
    return Text(visible(text), style=style)


class _Output(Console):
    """Standard output, which may lose its reader: the command goes on, for its exit code."""

    def on_broken_pipe(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def standard_output() -> Console:
    """Standard output: as wide as the terminal, or wide enough for a log."""
    return _Output(highlight=False, width=None if sys.stdout.isatty() else _LOG_WIDTH)


def print_table(frame: pl.DataFrame, console: Console | None = None) -> None:
    """Print a table for people: every row, long texts folded, NULL as a dash."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, dtype in frame.schema.items():
        table.add_column(name, overflow="fold", justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        table.add_row(*(shown(_cell(value)) for value in row))
    (console or standard_output()).print(table)


def write_answer(frame: pl.DataFrame, form: Format, output: Path | None) -> None:
    """Write a table in some form to `output` or to standard output.

    Raises `InputError` where Parquet would go to a terminal or the file cannot be written.
    """
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise InputError([Fault("--format parquet", "is not for a terminal", "add -o FILE")])
    write_bytes(_bytes(frame, form), output)


def _bytes(frame: pl.DataFrame, form: Format) -> bytes:
    match form:
        case "parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            return buffer.getvalue()
        case "json":
            return (_in_hexadecimal(frame).write_json() + "\n").encode()
        case "csv":
            return _flat(_in_hexadecimal(frame)).write_csv().encode()
        case "table":
            text = io.StringIO()
            width = standard_output().width
            print_table(frame, Console(file=text, highlight=False, width=width))
            return text.getvalue().encode()


def _in_hexadecimal(frame: pl.DataFrame) -> pl.DataFrame:
    """Bytes as text, which neither JSON nor CSV holds otherwise."""
    return frame.with_columns(pl.col(pl.Binary).bin.encode("hex"))


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Lists and structs as JSON text, since a CSV cell holds text only."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)
