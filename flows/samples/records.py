"""Records: what every file format is read as."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class RecordError(ValueError):
    """A record, or one value of it, that cannot be used: what it is, what would be right."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


class Record(NamedTuple):
    """One sample as it stands in a file: its number, and its values or what is wrong."""

    number: int
    values: dict[str, Any] | RecordError


class Format(NamedTuple):
    """How to read a kind of file.

    `place` says where a record stands, given the file's name and the record's number.
    `text`: the file is UTF-8. `cells`: every value is text, so that a list of texts can
    only be written as JSON within it.
    """

    read: Callable[[Path], Iterator[Record]]
    place: str
    text: bool = True
    cells: bool = False
