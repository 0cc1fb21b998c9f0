"""Tables of a store where others read them: in a folder, or on object storage.

What is read there while it is written needs a sign of being whole. That is the manifest: it is
removed before the first table and written behind the last, and says what there must be.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from claimflow.flows.engine.errors import StoreFullError
from claimflow.flows.engine.object_storage import Address, address, is_remote, open_bucket
from claimflow.flows.engine.storage.exporting import Written, export_tables
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.version import VERSION

MANIFEST: Final = "manifest.json"


def export_to(
    store: Store, place: str, *, tables: Sequence[str] = (), run_id: str | None = None
) -> Iterator[Written]:
    """Do as `export_tables` for a folder or an address; at the latter a manifest comes last.

    Raises `InputError` where that cannot be written, too.
    """
    if is_remote(place):
        yield from _put_tables(store, address(place), tables, run_id)
    else:
        yield from export_tables(store, Path(place), tables=tables, run_id=run_id)


def publish_run(store: Store, run_id: str, place: str) -> str:
    """Write the tables of a run and a manifest below `place`, by the run's id; returns where."""
    if is_remote(place):
        own = address(place).below(run_id)
        for _ in _put_tables(store, own, (), run_id):
            pass
        return str(own)
    folder = Path(place) / run_id
    manifest = folder / MANIFEST
    if folder.is_dir():
        manifest.unlink(missing_ok=True)
    content = _manifest(export_tables(store, folder, run_id=run_id), run_id)
    part = manifest.with_name(f".{MANIFEST}.part")
    try:
        part.write_bytes(content)
        part.replace(manifest)
    except OSError as error:
        raise StoreFullError(f"{manifest}: cannot be written ({error})") from error
    return str(folder)


def check_place(place: str) -> None:
    """Raise `InputError` where no run can be published: told before a night's work, not after.

    An object is removed that is not there, which needs all that publishing needs.
    """
    if is_remote(place):
        at = address(place)
        open_bucket(at).remove(at.below(".claimflow").key)


def _put_tables(
    store: Store, at: Address, tables: Sequence[str], run_id: str | None
) -> Iterator[Written]:
    """The tables as objects below `at`, by way of files: a store does not wait for a network."""
    bucket = open_bucket(at)
    manifest = at.below(MANIFEST).key
    with TemporaryDirectory(prefix="claimflow-") as folder:
        written = list(export_tables(store, Path(folder), tables=tables, run_id=run_id))
        content = _manifest(written, run_id)
        bucket.remove(manifest)
        for one in written:
            path = Path(one.place)
            target = at.below(path.name)
            bucket.put(target.key, path)
            yield one._replace(place=str(target))
        bucket.put(manifest, content)


def _manifest(written: Iterable[Written], run_id: str | None) -> bytes:
    """Which files there must be, with their rows and bytes."""
    tables = {
        one.table: {
            "file": Path(one.place).name,
            "rows": one.rows,
            "bytes": Path(one.place).stat().st_size,
        }
        for one in written
    }
    said = {"claimflow": VERSION, "run_id": run_id, "tables": tables}
    return json.dumps(said, indent=2).encode()
