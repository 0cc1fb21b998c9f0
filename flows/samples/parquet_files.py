"""Parquet files as records."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final

import polars as pl

from claimflow.flows.samples.records import Record

_AT_A_TIME: Final = 250


def read_parquet(path: Path) -> Iterator[Record]:
    """One record per row, numbered from 1, its values as JSON has them.

    NaN, which stands for a missing number, becomes None; dates and times become ISO 8601,
    bytes hexadecimal, and other values what `str` makes of them.
    """
    number = 0
    rows = pl.scan_parquet(path, glob=False, low_memory=True)
    for batch in rows.collect_batches(chunk_size=_AT_A_TIME, lazy=True):
        for values in batch.iter_rows(named=True):
            number += 1
            yield Record(number, {name: _json(value) for name, value in values.items()})


def _json(value: Any) -> Any:
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return None if math.isnan(value) else value
        case list():
            return [_json(member) for member in value]
        case dict():
            return {str(name): _json(member) for name, member in value.items()}
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            return str(value)
