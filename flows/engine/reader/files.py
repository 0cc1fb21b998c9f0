"""A path, an address or a glob -> the files it names, of known formats and readable as text."""

import codecs
import glob
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.engine.errors import Fault, nearest
from claimflow.flows.engine.existing import exists, is_folder
from claimflow.flows.engine.object_storage import is_remote
from claimflow.flows.engine.reader.csv_files import read_csv
from claimflow.flows.engine.reader.json_files import read_json_array, read_json_lines
from claimflow.flows.engine.reader.objects import fetch_objects
from claimflow.flows.engine.reader.parquet_files import read_parquet
from claimflow.flows.engine.reader.records import Format

FORMATS: Final = {
    ".jsonl": Format(read_json_lines, "{name}:{number}"),
    ".ndjson": Format(read_json_lines, "{name}:{number}"),
    ".json": Format(read_json_array, "{name} sample {number}"),
    ".csv": Format(read_csv, "{name}:{number}", cells=True),
    ".parquet": Format(read_parquet, "{name} row {number}", text=False),
}
"""The formats that can be read, by the ending of a file's name."""

_SAVE: Final = "save the file as UTF-8"
_BLOCK: Final = 1 << 20


class SampleFile(NamedTuple):
    """A file of samples, called by `name` wherever the user is told of it."""

    name: str
    path: Path
    format: Format

    def place(self, number: int) -> str:
        """Where record `number` stands, in words."""
        return self.format.place.format(name=self.name, number=number)


def find_files(path: str, base: Path, folder: Path) -> tuple[list[SampleFile], list[Fault]]:
    """(files, faults) that `path`, a file below the folder `base`, an object or a glob, names.

    The files are in the order of their names; objects are copied into `folder`. A file that
    is missing, of an unknown format, unreadable or not UTF-8 is a fault instead.
    """
    found, faults = fetch_objects(path, folder, FORMATS) if is_remote(path) else _local(path, base)
    files = []
    for name, where in found:
        fault = _fault(name, where)
        if fault is None:
            files.append(SampleFile(name, where, FORMATS[where.suffix.lower()]))
        else:
            faults.append(fault)
    return files, faults


def _local(path: str, base: Path) -> tuple[list[tuple[str, Path]], list[Fault]]:
    names = [path] if exists(base / path) else _matching(path, base)
    return [(name, base / name) for name in names], [] if names else [_missing(path, base)]


def _matching(path: str, base: Path) -> list[str]:
    return sorted(glob.glob(path, root_dir=base, recursive=True))


def _missing(path: str, base: Path) -> Fault:
    if glob.has_magic(path):
        return Fault(path, "no file has such a name", f"the folder it starts from is {base}")
    folder = (base / path).parent
    if not is_folder(folder):
        return Fault(path, "no such file", f"there is no folder {folder} either")
    near = nearest(Path(path).name, [other.name for other in folder.iterdir()])
    right = f"did you mean {near!r}?" if near else f"the folder looked in is {folder}"
    return Fault(path, "no such file", right)


def _fault(name: str, path: Path) -> Fault | None:
    if path.is_dir():
        return Fault(name, "a folder", f"name its files, such as {name.rstrip('/')}/*.jsonl")
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        what = f"unknown ending {path.suffix!r}" if path.suffix else "no ending"
        return Fault(name, what, f"known are {', '.join(FORMATS)}")
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        return _closed(name, error)
    if form.text and start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return Fault(name, "UTF-16 text", _SAVE)
    return None


def _closed(name: str, error: OSError) -> Fault:
    return Fault(name, f"cannot be read ({error.strerror or error})", "make it readable")


def unreadable(file: SampleFile, error: Exception) -> Fault:
    """What is wrong with a file whose reader gave up with `error`."""
    if isinstance(error, OSError):
        return _closed(file.name, error)
    found = _first_byte_of_another_encoding(file.path) if file.format.text else None
    if found:
        line, byte = found
        what = f"the byte 0x{byte:02x} is not UTF-8"
        return Fault(f"{file.name}:{line}", what, _SAVE)
    reason = str(error).strip().splitlines()[0]
    return Fault(file.name, f"cannot be read ({reason})", f"write it again as {file.path.suffix}")


def _first_byte_of_another_encoding(path: Path) -> tuple[int, int] | None:
    """(line, byte) of the first byte of the file that is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with path.open("rb") as file:
        for block in chain(iter(lambda: file.read(_BLOCK), b""), [b""]):
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                return line, error.object[error.start]
    return None
