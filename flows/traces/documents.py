"""Files of traces as JSON objects: JSON Lines, one document, an array, CSV or Parquet."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.formats import SampleFile
from claimflow.flows.samples.json_files import decode_object, read_json_array, read_json_lines
from claimflow.flows.samples.records import Format, Record

_BLOCK: Final = 1 << 16
_PLACE: Final = "{name}:{number}"
_HINT: Final = "write one JSON object on each line, or one document"


def with_documents(file: SampleFile) -> SampleFile:
    """The same file, whose records are the objects in it; damaged ones are errors of their own.

    JSON is told by its beginning, since collectors write lines of it to files called .json.
    """
    if not file.format.text or file.format.cells:
        return file
    return file._replace(format=Format(_read_json, _PLACE))


def _read_json(path: Path) -> Iterator[Record]:
    lines = partial(read_json_lines, path, lenient=True)
    with path.open("rb") as file:
        start = file.read(_BLOCK).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"["):
            yield from read_json_array(path)
            return
        first, end, _ = start.partition(b"\n")
        if first.rstrip().endswith(b"}") or not end:
            # A line longer than the block is one of many, or the only one.
            yield from lines()
            return
        file.seek(0)
        text = file.read(RECORD_BYTES + 1)
    if len(text) <= RECORD_BYTES:
        try:
            found = decode_object(text.removeprefix(b"\xef\xbb\xbf"), hint=_HINT)
        except UnicodeDecodeError:
            found = None
        if isinstance(found, dict):
            yield Record(1, found)
            return
    # Lines of which the first one is damaged.
    yield from lines()
