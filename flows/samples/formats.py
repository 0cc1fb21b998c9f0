"""The table of file formats, and the records of files of any of them.

A compressed file is read from a copy of its content, which is as large as the file allows.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import Fault
from claimflow.flows.pipeline.limits import GZIP_RATIO, RECORD_BYTES
from claimflow.flows.samples.json_files import read_json_array, read_json_lines
from claimflow.flows.samples.records import Format, Record, RecordError, RecordReader
from claimflow.flows.samples.table_files import read_csv, read_parquet
from claimflow.flows.samples.temporary import copies_folder, without_name

FORMATS: Final = {
    ".jsonl": Format(read_json_lines, "{name}:{number}"),
    ".ndjson": Format(read_json_lines, "{name}:{number}"),
    ".json": Format(read_json_array, "{name} sample {number}"),
    ".csv": Format(read_csv, "{name}:{number}", cells=True),
    ".parquet": Format(read_parquet, "{name} row {number}", text=False, gzip=False),
}
"""The formats that can be read, by the ending of a file's name; see `format_of` for .gz."""

GZIP: Final = ".gz"

_SAVE_AS_UTF8: Final = "save the file as UTF-8"
_BLOCK: Final = 1 << 20
_READING_ERRORS: Final = (pl.exceptions.PolarsError, duckdb.Error, OSError, UnicodeError)
_BOMB: Final = RecordError(
    f"more than {GZIP_RATIO} times as large when decompressed", "decompress it yourself"
)
_DAMAGED_GZIP: Final = RecordError("the compressed data are damaged or cut off", "write it again")


class SampleFile(NamedTuple):
    """A file of samples; messages call it `name`, which is a path or an S3 address."""

    name: str
    path: Path
    format: Format

    @property
    def cells(self) -> bool:
        """Whether a list of texts is written as one text."""
        return self.format.cells

    def place(self, number: int) -> str:
        """The place of record `number`, for messages: `answers.jsonl:12`."""
        return self.format.place.format(name=self.name, number=number)


def ending_of(path: Path) -> str:
    """The ending of a file's name in lower case: `.jsonl`, or `.jsonl.gz`."""
    last = path.suffix.lower()
    return f"{path.with_suffix('').suffix.lower()}{last}" if last == GZIP else last


def format_of(path: Path, formats: Mapping[str, Format] = FORMATS) -> Format | None:
    """How a file is read, by its ending, after which .gz may stand if it allows that."""
    ending = ending_of(path)
    known = formats.get(ending.removesuffix(GZIP))
    if known is None or not ending.endswith(GZIP):
        return known
    return known._replace(read=_decompressing(known)) if known.gzip else None


def _decompressing(known: Format) -> RecordReader:
    """A reader of gzip files with content of a format; one that is no gzip is one bad record."""

    def records(path: Path) -> Iterator[Record]:
        with copies_folder() as folder:
            copy = folder / path.with_suffix("").name
            error = _decompress(path, copy)
            if error and not (known.partial and error != _BOMB):
                yield Record(1, error, ends_file=True)
                return
            with without_name(copy) as nameless:
                found = known.read(nameless)
                yield from found if error is None else _cut_off(found, error)

    return records


def _cut_off(records: Iterator[Record], error: RecordError) -> Iterator[Record]:
    """The records before damage, which is the last one: also that which it cut in two."""
    number, last = 1, None
    for record in records:
        if last is not None:
            yield last
        number, last = record.number, record
    if last is not None and not isinstance(last.values, RecordError):
        yield last
        number += 1
    yield Record(number, error, ends_file=True)


def _decompress(path: Path, copy: Path) -> RecordError | None:
    """Write the content of a gzip file; what is wrong with it, where it is damaged or a bomb.

    What comes before the damage is written.
    """
    left = GZIP_RATIO * path.stat().st_size + RECORD_BYTES
    try:
        with gzip.open(path) as source, copy.open("wb") as target:
            # `read` would lose what it has read when it comes to the damage.
            while block := source.read1(_BLOCK):
                left -= len(block)
                if left < 0:
                    return _BOMB
                target.write(block)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return _DAMAGED_GZIP
    return None


def open_file(name: str, path: Path, formats: Mapping[str, Format] = FORMATS) -> SampleFile | Fault:
    """The file at `path` with its format, or why it cannot be read.

    It is a fault to be a folder, to have an unknown ending, to be unreadable or to be UTF-16.
    """
    if path.is_dir():
        return Fault(name, "a folder", f"name its files, such as {name.rstrip('/')}/*.jsonl")
    if path.exists() and not path.is_file():
        return Fault(name, "a pipe or a device", "write the samples to a file")
    file_format = format_of(path, formats)
    if file_format is None:
        ending = ending_of(path)
        what = f"unknown ending {ending!r}" if ending else "no ending"
        whole = [one for one, known in formats.items() if not known.gzip]
        hint = f"known are {', '.join(formats)}; all but {', '.join(whole)} may also end in {GZIP}"
        return Fault(name, what, hint)
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        return _os_fault(name, error)
    if file_format.text and start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return Fault(name, "UTF-16 text", _SAVE_AS_UTF8)
    return SampleFile(name, path, file_format)


def read_records(
    files: Iterable[SampleFile], faults: list[Fault], *, required: str | None = None
) -> Iterator[tuple[SampleFile, Record]]:
    """The records of `files` in order; files that cannot be read are added to `faults`.

    So are files without a record, where `required` says what each must have ("samples").
    """
    for file in files:
        record = None
        try:
            for record in file.format.read(file.path):
                yield file, record
        # Polars panics on some damaged Parquet files.
        except (*_READING_ERRORS, pl.exceptions.PanicException) as error:
            faults.append(_reading_fault(file, error))
        else:
            if record is None and required:
                faults.append(Fault(file.name, f"no {required}", "write at least one"))


def _reading_fault(file: SampleFile, error: BaseException) -> Fault:
    """The fault for the `error` that a file's reader raised."""
    if isinstance(error, OSError):
        return _os_fault(file.name, error)
    found = _first_invalid_byte(file.path) if file.format.text else None
    if found:
        line, byte = found
        what = f"the byte 0x{byte:02x} is not UTF-8"
        return Fault(f"{file.name}:{line}", what, _SAVE_AS_UTF8)
    reason = str(error).strip().splitlines()[0]
    return Fault(
        file.name, f"cannot be read ({reason})", f"write it again as {ending_of(file.path)}"
    )


def _os_fault(name: str, error: OSError) -> Fault:
    return Fault(name, f"cannot be read ({error.strerror or error})", "make it readable")


def _first_invalid_byte(path: Path) -> tuple[int, int] | None:
    """(line, byte) of the first byte of the file that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    compressed = path.suffix.lower() == GZIP
    with gzip.open(path) if compressed else path.open("rb") as file:
        for block in chain(iter(lambda: file.read(_BLOCK), b""), [b""]):
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                return line, error.object[error.start]
    return None
