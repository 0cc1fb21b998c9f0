"""Sample files by path, address or glob; objects on S3 are copied first."""

import codecs
import glob
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.errors import Fault, InputError, nearest
from claimflow.flows.files import is_folder, path_exists
from claimflow.flows.object_storage import Address, Bucket, is_remote, parse_address
from claimflow.flows.samples.csv_files import read_csv
from claimflow.flows.samples.json_files import read_json_array, read_json_lines
from claimflow.flows.samples.parquet_files import read_parquet
from claimflow.flows.samples.records import Format

# Objects on S3 -> local copies, which every format's reader takes as they are.


_AT_A_TIME: Final = 4


def fetch_objects(
    place: str, folder: Path, endings: Collection[str]
) -> tuple[list[tuple[str, Path]], list[Fault]]:
    """(address and local copy of each object, faults) that `place`, an address or a glob, names.

    The objects are in the order of their keys, and their copies in `folder`, with the same
    endings; of other endings than `endings` there is no copy. What cannot be fetched is a fault.
    """
    try:
        at = parse_address(place)
        if not at.key or at.key.endswith("/"):
            hint = f"name its objects, such as {at.below('*.parquet')}"
            return [], [Fault(place, "a folder", hint)]
        bucket = Bucket(at)
        versions = _matching_objects(at.key, bucket) if has_magic(at.key) else {at.key: None}
    except InputError as error:
        return [], error.faults
    if not versions:
        start = at._replace(key=_start(at.key))
        return [], [Fault(place, "no object has such a name", f"the folder searched is {start}")]
    return _copied(at, bucket, versions, folder, endings)


def _copied(
    at: Address,
    bucket: Bucket,
    versions: Mapping[str, str | None],
    folder: Path,
    endings: Collection[str],
) -> tuple[list[tuple[str, Path]], list[Fault]]:
    copies = {key: folder / f"{n}{Path(key).suffix}" for n, key in enumerate(versions)}
    wanted = [key for key in versions if Path(key).suffix.lower() in endings]
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        told = list(
            threads.map(lambda key: _copy(at, bucket, key, versions[key], copies[key]), wanted)
        )
    lost = {key for key, faults in zip(wanted, told, strict=True) if faults}
    found = [(str(at._replace(key=key)), copies[key]) for key in versions if key not in lost]
    return found, [fault for faults in told for fault in faults]


def _copy(at: Address, bucket: Bucket, key: str, version: str | None, copy: Path) -> list[Fault]:
    try:
        bucket.fetch(key, copy, version=version)
    except InputError as error:
        return [_with_near_name(fault, bucket, key) for fault in error.faults]
    except OSError as error:
        what = f"cannot be copied to {copy.parent} ({error.strerror})"
        return [Fault(str(at._replace(key=key)), what, "make room, or set TMPDIR")]
    return []


def _with_near_name(fault: Fault, bucket: Bucket, key: str) -> Fault:
    """`fault`, with the name that was probably meant where there is no such object."""
    if fault.what == "no such object":
        folder, _, name = key.rpartition("/")
        # Who may read an object may not always list them.
        with suppress(InputError):
            names = [other.rpartition("/")[2] for other in bucket.versions(folder)]
            near = nearest(name, names)
            return fault._replace(hint=f"did you mean {near!r}?") if near else fault
    return fault


def _matching_objects(pattern: str, bucket: Bucket) -> dict[str, str | None]:
    """Key -> version of what the glob `pattern` names, as it would name files."""
    found = bucket.versions(_start(pattern))
    if pattern in found:
        return {pattern: found[pattern]}
    parts = pattern.split("/")
    return {key: found[key] for key in found if _matches(key.split("/"), parts)}


def _start(pattern: str) -> str:
    """The folder in which a glob begins: as much of it as has no wildcard."""
    parts = pattern.split("/")[:-1]
    fixed = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
    return "/".join(parts[:fixed])


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a key are named by those of a glob, in which ** stands for any."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[n:], pattern[1:]) for n in range(len(names) + 1))
    return bool(names) and _fits(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _fits(name: str, pattern: str) -> bool:
    """Whether a name is one that a pattern names: none that is hidden, unless that is written."""
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatchcase(name, pattern)


# A path, an address or a glob -> the files it names, of known formats and readable as text.


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
    names = [path] if path_exists(base / path) else _matching(path, base)
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
    hint = f"did you mean {near!r}?" if near else f"the folder looked in is {folder}"
    return Fault(path, "no such file", hint)


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
