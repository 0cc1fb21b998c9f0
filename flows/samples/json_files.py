"""JSON Lines and JSON arrays as records."""

import codecs
import glob
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import duckdb
import polars as pl
from pydantic_core import from_json

from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.records import (
    NOT_UTF8,
    TOO_DEEP,
    TOO_LARGE,
    Record,
    RecordError,
    ragchecker_sample,
)
from claimflow.flows.samples.temporary import copies_folder, without_name

_BATCH_ROWS: Final = 250
_BLOCK: Final = 1 << 20
_ELEMENTS: Final = """
    SELECT json FROM read_json_objects($file, format = 'array', maximum_object_size = $largest)
"""
_RECORD_IN_MESSAGE: Final = re.compile(r"in record/value (?P<record>\d+): (?P<what>.*?)\.")
_LINE_HINT: Final = "write one JSON object on each line"
_ARRAY_HINT: Final = "write one array of objects"
_NO_ARRAY: Final = RecordError("the file is not an array", f"{_ARRAY_HINT}, or call it .jsonl")

# A valid surrogate pair, a lone surrogate, or any other escape: the last one skips the escaped
# backslash in \\ud800.
_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."
)

# A quote and a colon end a name of an object. The same within a text makes the count too high,
# so that the slow decoder is used.
_NAME_END: Final = re.compile(rb'"\s*:')

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_SCANNER: Final = json.JSONDecoder()

VALUE_KINDS: Final = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
"""The JSON kind of each Python type, for messages."""


def read_json_lines(path: Path, *, lenient: bool = False) -> Iterator[Record]:
    """One record per line that is not blank, numbered by its line.

    Raises `UnicodeDecodeError` for a line that is not UTF-8; if `lenient`, its record says so.
    """
    with path.open("rb", buffering=_BLOCK) as file:
        for number, line in enumerate(iter(lambda: file.readline(RECORD_BYTES), b""), start=1):
            if len(line) == RECORD_BYTES and not line.endswith(b"\n"):
                yield Record(number, TOO_LARGE)
                _skip_line(file)
                continue
            text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            try:
                if not _is_blank(text):
                    text = text.removesuffix(b"\n").removesuffix(b"\r")
                    yield Record(number, decode_object(text, hint=_LINE_HINT))
            except UnicodeDecodeError:
                if not lenient:
                    raise
                yield Record(number, NOT_UTF8)


def _skip_line(file: IO[bytes]) -> None:
    """Read on behind the end of the line, in blocks."""
    while (rest := file.readline(_BLOCK)) and not rest.endswith(b"\n"):
        pass


def _is_blank(line: bytes) -> bool:
    return not (line.startswith(b"{") or line.decode().strip())


def read_json_array(path: Path) -> Iterator[Record]:
    """One record per element, numbered from 1; also of `{"results": [...]}`, as RAGChecker writes.

    Nothing can be read behind a malformed element, so that is the last record then.
    """
    with path.open("rb") as file:
        start = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"{"):
        yield from _read_results(path)
        return
    elements = enumerate(_elements_without_lone_surrogates(path), start=1)
    try:
        for number, text in elements:
            # DuckDB also returns objects that are larger, by as much as its buffer has room.
            yield Record(number, _element(text.encode()))
    except duckdb.InvalidInputException as error:
        if "UTF-8" in str(error):
            raise
        yield _malformed_array(str(error))


def _elements_without_lone_surrogates(path: Path) -> Iterator[str]:
    """The elements as JSON text; a file with lone surrogates is read on from a corrected copy."""
    done = 0
    try:
        for text in _elements(path):
            yield text
            done += 1
    except duckdb.InvalidInputException as error:
        if "surrogate" not in str(error):
            raise
        with copies_folder() as folder:
            copy = folder / "corrected.json"
            corrected = pl.col("line").map_elements(replace_lone_surrogates, pl.String)
            lines = pl.scan_lines(path, name="line", glob=False).select(corrected)
            lines.sink_csv(copy, include_header=False, quote_style="never")
            with without_name(copy) as nameless:
                yield from islice(_elements(nameless), done, None)


def _elements(path: Path) -> Iterator[str]:
    options = {"file": glob.escape(str(path)), "largest": RECORD_BYTES}
    with duckdb.connect(config={"threads": 1}) as connection:
        found = connection.execute(_ELEMENTS, options)
        while rows := found.fetchmany(_BATCH_ROWS):
            for (text,) in rows:
                yield text


def _malformed_array(message: str) -> Record:
    if "Expected top-level JSON array" in message:
        return Record(1, _NO_ARRAY, ends_file=True)
    if "maximum_object_size" in message:
        # DuckDB does not say which one.
        what = f"this sample, or one after it, has more than {RECORD_BYTES >> 20} MiB"
        return Record(1, RecordError(what, TOO_LARGE.hint), ends_file=True)
    found = _RECORD_IN_MESSAGE.search(message)
    if found is None:
        error = RecordError(f"broken JSON ({message.splitlines()[0]})", _ARRAY_HINT)
        return Record(1, error, ends_file=True)
    # DuckDB counts the opening bracket as a record.
    what = f"broken JSON ({found['what']})"
    number = max(1, int(found["record"]) - 1)
    return Record(number, RecordError(what, _ARRAY_HINT), ends_file=True)


def _read_results(path: Path) -> Iterator[Record]:
    """The members of the list `results` of an object; its other members are skipped."""
    number = 1
    with path.open(encoding="utf-8-sig", newline="") as file:
        window = _JsonWindow(file)
        try:
            window.take("{")
            while window.value() != '"results"':
                window.take(":")
                window.value()
                if window.take(",}") == "}":
                    yield Record(1, _NO_ARRAY, ends_file=True)
                    return
            window.take(":")
            window.take("[")
            while window.peek() != "]":
                yield _result(number, window.value().encode())
                number += 1
                if window.take(",]") == "]":
                    return
        except RecordError as error:
            yield Record(number, error, ends_file=True)


def _result(number: int, text: bytes) -> Record:
    values = _element(text)
    return Record(number, ragchecker_sample(values) if isinstance(values, dict) else values)


def read_damaged_array(path: Path) -> Iterator[Record]:
    """As `read_json_array` for an array, but what stands before damage is read whatever it is.

    An element that is not UTF-8 is a bad record, after which others follow.
    """
    number = 1
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        window = _JsonWindow(file)
        try:
            window.take("[")
            while number > 1 or window.peek() != "]":
                yield _array_element(number, window.value())
                number += 1
                if window.take(",]") == "]":
                    break
            else:
                window.take("]")
            if sign := window.peek():
                raise RecordError(f"{sign!r} behind the end of the array", _ARRAY_HINT)
        except RecordError as error:
            what = f"{error.what}; the rest of the file was not read"
            yield Record(number, RecordError(what, error.hint), ends_file=True)


def _array_element(number: int, text: str) -> Record:
    try:
        return Record(number, _element(text.encode(errors="surrogateescape")))
    except UnicodeDecodeError:
        return Record(number, NOT_UTF8)


def _element(text: bytes) -> dict[str, Any] | RecordError:
    return TOO_LARGE if len(text) > RECORD_BYTES else decode_object(text, hint=_ARRAY_HINT)


class _JsonWindow:
    """Reads the values of a JSON text one by one; holds little more than one of them."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._text = ""
        self._start = 0

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        while True:
            blank = _BLANKS.match(self._text, self._start)
            self._start = blank.end() if blank else self._start
            if self._start < len(self._text) or not self._read(_BLOCK):
                return self._text[self._start : self._start + 1]

    def take(self, signs: str) -> str:
        """The next character, which must be one of `signs`; raises `RecordError`."""
        sign = self.peek()
        if not sign or sign not in signs:
            found = repr(sign) if sign else "the end of the file"
            what = f"broken JSON ({found} instead of {' or '.join(map(repr, signs))})"
            raise RecordError(what, _ARRAY_HINT)
        self._start += 1
        return sign

    def value(self) -> str:
        """The text of the next value; raises `RecordError` where there is none."""
        self.peek()
        while True:
            try:
                _, end = _SCANNER.raw_decode(self._text, self._start)
            except json.JSONDecodeError as error:
                end, what = None, f"broken JSON ({error.msg})"
            except RecursionError:
                raise TOO_DEEP from None
            # A number may go on behind the end of what is read.
            if end is not None and end < len(self._text):
                break
            size = len(self._text) - self._start
            if size > RECORD_BYTES or not self._read(max(size, _BLOCK)):
                if end is None and size > RECORD_BYTES:
                    what = f"{what}, or one sample of more than {RECORD_BYTES >> 20} MiB"
                if end is None:
                    raise RecordError(what, _ARRAY_HINT)
                break
        text, self._start = self._text[self._start : end], end
        return text

    def _read(self, size: int) -> bool:
        """Read on and drop what was taken; False at the end of the file."""
        more = self._file.read(size)
        self._text, self._start = self._text[self._start :] + more, 0
        return bool(more)


def decode_object(line: bytes, *, hint: str) -> dict[str, Any] | RecordError:
    """Values of the JSON object `line`, or a `RecordError` for anything else.

    Strict: NaN, infinities and repeated names in one object are errors. Lone surrogates, which
    UTF-8 cannot hold, become U+FFFD. `hint` is that of the error where the line is not a JSON
    object. Raises `UnicodeDecodeError` where the bytes are not UTF-8.
    """
    found = _decode_fast(line)
    return _decode_strictly(line.decode(), hint) if found is None else found


def _decode_fast(line: bytes) -> dict[str, Any] | None:
    """Values of an object that needs no correction and has no error; else None.

    Pydantic's decoder takes a quarter of the time of the standard library's. Of what must be
    refused or corrected here it accepts only repeated names: then there are more colons behind
    quotes than names.
    """
    try:
        value = from_json(line, allow_inf_nan=False)
    except ValueError:
        return None
    if isinstance(value, dict) and _count_names(value) == len(_NAME_END.findall(line)):
        return value
    return None


def _count_names(value: dict[str, Any] | list[Any]) -> int:
    """How many names the objects in `value` have, at all depths."""
    own, members = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    return own + sum(
        [_count_names(member) for member in members if isinstance(member, dict | list)]
    )


def _decode_strictly(text: str, hint: str) -> dict[str, Any] | RecordError:
    try:
        value = _decode(replace_lone_surrogates(text))
    except json.JSONDecodeError as error:
        return RecordError(f"broken JSON at column {error.colno} ({error.msg})", hint)
    except RecursionError:
        return TOO_DEEP
    except RecordError as error:
        return error
    except ValueError:
        return RecordError("a number of thousands of digits", "write it as text")
    if not isinstance(value, dict):
        return RecordError(f"{VALUE_KINDS[type(value)]} instead of an object", hint)
    return value


def replace_lone_surrogates(text: str) -> str:
    r"""JSON text with every escape of a lone surrogate (`\ud800`) replaced by `\ufffd`."""
    if "\\" not in text or not ("\\ud" in text or "\\uD" in text):
        return text
    return _ESCAPE.sub(lambda match: "\\ufffd" if match["lone"] else match[0], text)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{repeated!r} is written twice in one object", "keep one of them")
    return values


def _no_constant(name: str) -> NoReturn:
    raise RecordError(f"{name} is not JSON", "write null")


_decode: Final[Callable[[str], Any]] = json.JSONDecoder(
    object_pairs_hook=_unique_names, parse_constant=_no_constant
).decode
