"""The files that a path, an S3 address or a glob names; S3 objects are copied first."""

import glob
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from claimflow.flows.errors import Fault, InputError, nearest
from claimflow.flows.files import is_folder, path_exists, similar_file
from claimflow.flows.object_storage import Address, Bucket, is_remote, parse_address
from claimflow.flows.samples.formats import (
    FORMATS,
    SampleFile,
    ending_of,
    format_of,
    open_file,
)
from claimflow.flows.samples.records import Format

_PARALLEL_COPIES: Final = 4

_NO_MATCH: Final = "no file matches"
_NO_FILE: Final = "no such file"
_NO_OBJECT: Final = "no object matches"

NOTHING_THERE: Final = frozenset((_NO_MATCH, _NO_FILE, _NO_OBJECT, "no such object"))
"""What faults say of a path or glob that names no file, in which there may be some later."""

Found = tuple[list[tuple[str, Path]], list[Fault]]
"""(name for messages, path) of each file, and faults."""


def find_files(
    pattern: str, base: Path, folder: Path, formats: Mapping[str, Format] = FORMATS
) -> tuple[list[SampleFile], list[Fault]]:
    """(files, faults) of a path or glob below the folder `base`, or of an S3 address or glob.

    The files are in the order of their names; S3 objects are copied into `folder`. Messages call
    a file as it is reached from the working directory where `base` is relative to that. A file that
    is missing, of an unknown format, unreadable or not UTF-8 is a fault instead.
    """
    remote = is_remote(pattern)
    found, faults = _remote(pattern, folder, formats) if remote else _local(pattern, base)
    files = []
    for name, path in found:
        opened = open_file(name, path, formats)
        if isinstance(opened, Fault):
            faults.append(opened)
        else:
            files.append(opened)
    return files, faults


def _local(pattern: str, base: Path) -> Found:
    if path_exists(base / pattern):
        return [(shown_path(pattern, base), base / pattern)], []
    names = sorted(glob.glob(pattern, root_dir=base, recursive=True))
    found = [(shown_path(name, base), base / name) for name in names]
    return found, [] if found else [_no_file(pattern, base)]


def shown_path(pattern: str, base: Path) -> str:
    """What messages call a path or glob below `base`, or an address."""
    return pattern if is_remote(pattern) or base.is_absolute() else str(base / pattern)


def _no_file(pattern: str, base: Path) -> Fault:
    shown = shown_path(pattern, base)
    if glob.has_magic(pattern):
        return Fault(shown, _NO_MATCH, f"the search starts in {base.absolute()}")
    folder = (base / pattern).parent
    if not is_folder(folder):
        return Fault(shown, _NO_FILE, f"there is no folder {folder} either")
    hint = similar_file(
        base / pattern, f"the folder searched is {folder.absolute()}", any_ending=True
    )
    return Fault(shown, _NO_FILE, hint)


def _remote(pattern: str, folder: Path, formats: Mapping[str, Format]) -> Found:
    """S3 objects in the order of their keys; those of unknown formats are not copied."""
    try:
        address = parse_address(pattern)
        key = address.key
        if not key or key.endswith("/"):
            hint = f"name its objects, such as {address.below('*.parquet')}"
            return [], [Fault(pattern, "a folder", hint)]
        bucket = Bucket(address)
        versions = _matching_objects(key, bucket) if glob.has_magic(key) else {key: None}
    except InputError as error:
        return [], error.faults
    if not versions:
        start = address._replace(key=_fixed_folder(key))
        return [], [Fault(pattern, _NO_OBJECT, f"the folder searched is {start}")]
    wanted = [key for key in versions if format_of(Path(key), formats)]
    return _copy_objects(address, bucket, versions, wanted, folder)


def _copy_objects(
    address: Address,
    bucket: Bucket,
    versions: Mapping[str, str | None],
    wanted: Sequence[str],
    folder: Path,
) -> Found:
    copies = {key: folder / f"{n}{ending_of(Path(key))}" for n, key in enumerate(versions)}

    def copy(key: str) -> list[Fault]:
        try:
            bucket.fetch(key, copies[key], version=versions[key])
        except InputError as error:
            return [_with_nearest_key(fault, bucket, key) for fault in error.faults]
        except OSError as error:
            what = f"cannot be copied to {folder} ({error.strerror})"
            return [Fault(str(address._replace(key=key)), what, "make room, or set TMPDIR")]
        return []

    with ThreadPoolExecutor(_PARALLEL_COPIES) as threads:
        faults = dict(zip(wanted, threads.map(copy, wanted), strict=True))
    found = [
        (str(address._replace(key=key)), copies[key]) for key in versions if not faults.get(key)
    ]
    return found, [fault for failed in faults.values() for fault in failed]


def _with_nearest_key(fault: Fault, bucket: Bucket, key: str) -> Fault:
    """`fault`, with the most similar key as its hint where there is no such object."""
    if fault.what == "no such object":
        folder, _, name = key.rpartition("/")
        # The permission to read an object does not include listing the bucket.
        with suppress(InputError):
            names = [other.rpartition("/")[2] for other in bucket.versions(folder)]
            near = nearest(name, names)
            return fault._replace(hint=f"did you mean {near!r}?") if near else fault
    return fault


def _matching_objects(pattern: str, bucket: Bucket) -> dict[str, str | None]:
    """Key -> version of the objects that a glob matches by the rules for files."""
    found = bucket.versions(_fixed_folder(pattern))
    if pattern in found:
        return {pattern: found[pattern]}
    parts = pattern.split("/")
    return {key: found[key] for key in found if _matches(key.split("/"), parts)}


def _fixed_folder(pattern: str) -> str:
    """The folders of a glob before the first with a wildcard."""
    parts = pattern.split("/")[:-1]
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:fixed])


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a key match those of a glob, in which ** matches any number."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[n:], pattern[1:]) for n in range(len(names) + 1))
    if not names:
        return False
    # As for files, a wildcard does not match a hidden name.
    hidden = names[0].startswith(".") and not pattern[0].startswith(".")
    return not hidden and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])
