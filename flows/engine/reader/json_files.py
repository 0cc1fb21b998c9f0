"""JSON Lines and JSON arrays -> records."""

import codecs
import glob
import re
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.engine.reader.json_text import decode_object, replace_lone_surrogates
from claimflow.flows.engine.reader.records import Record, RecordError

_AT_A_TIME: Final = 250
_BLOCK: Final = 1 << 20
_LARGEST_OBJECT: Final = 1 << 26
_ELEMENTS: Final = """
    SELECT json FROM read_json_objects($file, format = 'array', maximum_object_size = $largest)
"""
_WHERE: Final = re.compile(r"in record/value (?P<record>\d+): (?P<what>.*?)\.")
_LINE_IS_RIGHT: Final = "write one JSON object on each line"
_ARRAY_IS_RIGHT: Final = "write one array of objects"


def read_json_lines(path: Path) -> Iterator[Record]:
    """One record per line that is not blank, numbered by its line."""
    with path.open("rb", buffering=_BLOCK) as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if not _is_blank(text):
                text = text.removesuffix(b"\n").removesuffix(b"\r")
                yield Record(number, decode_object(text, right=_LINE_IS_RIGHT))


def _is_blank(line: bytes) -> bool:
    return not (line.startswith(b"{") or line.decode().strip())


def read_json_array(path: Path) -> Iterator[Record]:
    """One record per element, numbered from 1.

    Nothing can be read behind a broken element, so that is the last record then.
    """
    elements = enumerate(_well_formed_elements(path), start=1)
    try:
        for number, text in elements:
            yield Record(number, decode_object(text.encode(), right=_ARRAY_IS_RIGHT))
    except duckdb.InvalidInputException as error:
        if "UTF-8" in str(error):
            raise
        yield _broken_array(str(error))


def _well_formed_elements(path: Path) -> Iterator[str]:
    """The elements as JSON text; a file with lone surrogates is read from a mended copy."""
    done = 0
    try:
        for text in _elements(path):
            yield text
            done += 1
    except duckdb.InvalidInputException as error:
        if "surrogate" not in str(error):
            raise
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "mended.json"
            mended = pl.col("line").map_elements(replace_lone_surrogates, pl.String)
            lines = pl.scan_lines(path, name="line", glob=False).select(mended)
            lines.sink_csv(copy, include_header=False, quote_style="never")
            yield from islice(_elements(copy), done, None)


def _elements(path: Path) -> Iterator[str]:
    options = {"file": glob.escape(str(path)), "largest": _LARGEST_OBJECT}
    with duckdb.connect(config={"threads": 1}) as connection:
        found = connection.execute(_ELEMENTS, options)
        while rows := found.fetchmany(_AT_A_TIME):
            for (text,) in rows:
                yield text


def _broken_array(message: str) -> Record:
    if "Expected top-level JSON array" in message:
        return Record(
            1, RecordError("the file is not an array", f"{_ARRAY_IS_RIGHT}, or call it .jsonl")
        )
    where = _WHERE.search(message)
    if where is None:
        return Record(1, RecordError(f"broken JSON ({message.splitlines()[0]})", _ARRAY_IS_RIGHT))
    # DuckDB counts the opening bracket as a record of its own.
    what = f"broken JSON ({where['what']})"
    return Record(max(1, int(where["record"]) - 1), RecordError(what, _ARRAY_IS_RIGHT))
