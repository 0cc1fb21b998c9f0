"""Records: what every file format is read as, and the protocol of a reader."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from claimflow.flows.pipeline.limits import COLUMNS, RECORD_BYTES, too_many


class RecordError(ValueError):
    """A record, or one value of it, that cannot be used: what is wrong, and a hint."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


TOO_LARGE: Final = RecordError(
    f"one sample of more than {RECORD_BYTES >> 20} MiB", "write its texts without what is around"
)


def too_many_columns(count: int) -> RecordError | None:
    """The error of a sample with `count` columns, where that is above the limit."""
    if count <= COLUMNS:
        return None
    return RecordError(too_many(count, COLUMNS, "columns"), "keep those that are needed")


class Record(NamedTuple):
    """One sample as it is in a file: its number, and its values or what is wrong with it."""

    number: int
    values: dict[str, Any] | RecordError


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
    written as JSON.
    """

    read: RecordReader
    place: str
    text: bool = True
    cells: bool = False
