"""Objects on S3 -> local copies, which every format's reader takes as they are."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claimflow.flows.engine.errors import Fault, InputError, nearest
from claimflow.flows.engine.object_storage import Address, address, open_bucket

if TYPE_CHECKING:
    from claimflow.flows.engine.object_storage.bucket import Bucket

_AT_A_TIME: Final = 4


def fetch_objects(
    place: str, folder: Path, endings: Collection[str]
) -> tuple[list[tuple[str, Path]], list[Fault]]:
    """(address and local copy of each object, faults) that `place`, an address or a glob, names.

    The objects are in the order of their keys, and their copies in `folder`, with the same
    endings; of other endings than `endings` there is no copy. What cannot be fetched is a fault.
    """
    try:
        at = address(place)
        if not at.key or at.key.endswith("/"):
            right = f"name its objects, such as {at.below('*.parquet')}"
            return [], [Fault(place, "a folder", right)]
        bucket = open_bucket(at)
        versions = _matching(at.key, bucket) if has_magic(at.key) else {at.key: None}
    except InputError as error:
        return [], error.faults
    if not versions:
        start = at._replace(key=_start(at.key))
        return [], [Fault(place, "no object has such a name", f"the folder searched is {start}")]
    return _copied(at, bucket, versions, folder, endings)


def _copied(
    at: Address,
    bucket: "Bucket",
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


def _copy(at: Address, bucket: "Bucket", key: str, version: str | None, copy: Path) -> list[Fault]:
    try:
        bucket.fetch(key, copy, version=version)
    except InputError as error:
        return [_with_near_name(fault, bucket, key) for fault in error.faults]
    except OSError as error:
        what = f"cannot be copied to {copy.parent} ({error.strerror})"
        return [Fault(str(at._replace(key=key)), what, "make room, or set TMPDIR")]
    return []


def _with_near_name(fault: Fault, bucket: "Bucket", key: str) -> Fault:
    """`fault`, with the name that was probably meant where there is no such object."""
    if fault.what == "no such object":
        folder, _, name = key.rpartition("/")
        # Who may read an object may not always list them.
        with suppress(InputError):
            names = [other.rpartition("/")[2] for other in bucket.versions(folder)]
            near = nearest(name, names)
            return fault._replace(right=f"did you mean {near!r}?") if near else fault
    return fault


def _matching(pattern: str, bucket: "Bucket") -> dict[str, str | None]:
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
