"""Records: what every file format and table is read as, and the protocol of a reader."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from pydantic import BaseModel

from claimflow.flows.pipeline.limits import COLUMNS, RECORD_BYTES, too_many


class RecordError(ValueError):
    """A record, or one value of it, that cannot be used: what is wrong, and a hint."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


class SlowPatternError(RecordError):
    """A pattern takes too long to redact a text of a sample, which is left out then."""


TOO_DEEP: Final = RecordError("brackets nested about a thousand deep", "use less nesting")

NOT_UTF8: Final = RecordError("bytes that are not UTF-8", "save the file as UTF-8")

TOO_LARGE: Final = RecordError(
    f"one sample of more than {RECORD_BYTES >> 20} MiB", "write its texts without what is around"
)


def too_many_columns(count: int) -> RecordError | None:
    """The error of a sample with `count` columns, where that is above the limit."""
    if count <= COLUMNS:
        return None
    return RecordError(too_many(count, COLUMNS, "columns"), "keep those that are needed")


class Origin(Protocol):
    """Where records come from: a file, or an object in memory."""

    @property
    def cells(self) -> bool:
        """Whether lists may be written as text."""
        ...

    def place(self, number: int) -> str:
        """The place of record `number`, for messages: `answers.jsonl:12`."""
        ...


class Record(NamedTuple):
    """One sample as it is in a file: its number, and its values or what is wrong with it.

    `ends_file`: it is malformed, so that other samples of the file are not read.
    """

    number: int
    values: dict[str, Any] | RecordError
    ends_file: bool = False


RecordReader = Callable[[Path], Iterator[Record]]
"""The records of a file, in order.

A record that cannot be used has a `RecordError` as its values, and the next ones follow where they
can be read. Raises `OSError`, `UnicodeError`, `polars` or `duckdb` errors for a file that cannot be
read on.
"""


class Format(NamedTuple):
    """How to read the files of one format.

    `place` names a record in messages, given the file's `name` and the record's `number`.
    `text`: the file is UTF-8 text. `cells`: every value is text, in which a list of texts is
    written as JSON. `gzip`: the file may be compressed. `partial`: what can be read of a damaged
    file is of use, so that only what is damaged is left out.
    """

    read: RecordReader
    place: str
    text: bool = True
    cells: bool = False
    gzip: bool = True
    partial: bool = False


_NO_JSON_HINT: Final = "give text, numbers, lists or dicts"
_AS_TEXT: Final = (Decimal, UUID, PurePath, timedelta)


def json_object(row: Any) -> dict[str, Any]:
    """The values of a row as JSON can hold them, without a change of the row.

    `row` is a mapping, a pydantic model, a dataclass or a named tuple. Values are converted as
    by `json_value`. Raises `RecordError` for any other row, and for a value that JSON cannot hold.
    """
    values = _members(row)
    if values is None:
        raise RecordError(f"is of type {type(row).__name__}", "give a dict of its columns")
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            found[_without_surrogates(str(name))] = json_value(value)
        except RecordError as error:
            raise RecordError(f"{str(name)!r} {error.what}", error.hint) from None
        except RecursionError:
            raise TOO_DEEP from None
    return found


def json_value(value: Any) -> Any:
    """A value of Python, NumPy, pandas or Polars as JSON can hold it.

    NaN, NaT and NA, which stand for missing values, become None; dates and times ISO 8601; bytes
    hexadecimal; decimals, durations, paths and UUIDs text. Lone surrogates, which UTF-8 cannot
    hold, become U+FFFD. Raises `RecordError` for objects of other classes.
    """
    match value:
        case None | bool():
            return value
        case Enum():
            return json_value(value.value)
        case str():
            return _without_surrogates(str.__str__(value))
        case int():
            return int(value)
        case float():
            return None if math.isnan(value) else float(value)
        case datetime() | date() | time():
            # NaT is a datetime that does not equal itself.
            return value.isoformat() if value == value else None  # noqa: PLR0124
        case bytes():
            return value.hex()
        case list() | tuple() if not hasattr(value, "_fields"):
            return [json_value(member) for member in value]
        case _:
            return _object_value(value)


def _object_value(value: Any) -> Any:
    members = _members(value)
    if members is not None:
        return {
            _without_surrogates(str(name)): json_value(member) for name, member in members.items()
        }
    if isinstance(value, _AS_TEXT):
        return str(value) if value == value else None  # noqa: PLR0124
    if type(value).__name__ == "NAType":
        return None
    if hasattr(value, "tolist"):
        # A number or an array of NumPy.
        return json_value(value.tolist())
    raise RecordError(f"holds a {type(value).__name__}", _NO_JSON_HINT)


def _members(value: Any) -> Mapping[Any, Any] | None:
    """The members of an object by name, or None where it has none."""
    match value:
        case Mapping():
            return value
        case BaseModel():
            return value.model_dump()
        case tuple() if hasattr(value, "_asdict"):
            return dict(value._asdict())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: getattr(value, name) for name in names}
    return None


def _without_surrogates(text: str) -> str:
    """`text` with surrogate pairs joined, and U+FFFD for lone surrogates."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_RAGCHECKER_FIELDS: Final = {"query_id": "sample_id", "gt_answer_claims": "reference_claims"}


def ragchecker_sample(values: dict[str, Any]) -> dict[str, Any]:
    """A member of `results` of RAGChecker with the fields that have other names there."""
    return {_RAGCHECKER_FIELDS.get(name, name): value for name, value in values.items()}
