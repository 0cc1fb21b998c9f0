"""Tables as CSV, JSON or Parquet."""

import io
import json
from typing import Literal

import polars as pl


def encode_table(frame: pl.DataFrame, table_format: Literal["csv", "json", "parquet"]) -> bytes:
    """The bytes of a file with a table.

    Binary values are hexadecimal text in CSV and JSON; lists and structs are JSON text in CSV.
    """
    match table_format:
        case "parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            return buffer.getvalue()
        case "json":
            return (_binary_as_hex(frame).write_json() + "\n").encode()
        case "csv":
            return _nested_as_json(_binary_as_hex(frame)).write_csv().encode()


def _binary_as_hex(frame: pl.DataFrame) -> pl.DataFrame:
    """Binary columns as hexadecimal text, since JSON and CSV cannot hold bytes."""
    return frame.with_columns(pl.col(pl.Binary).bin.encode("hex"))


def _nested_as_json(frame: pl.DataFrame) -> pl.DataFrame:
    """Lists and structs as JSON text, since a CSV cell holds text only."""
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_as_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )


def _as_json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)
