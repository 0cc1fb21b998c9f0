"""Checks the free disk space before a run starts."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.errors import StoreFullError
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.schema import SCHEMA_VERSION
from claimflow.flows.store.store import Store, store_version

SPARE: Final = 100_000_000
"""Bytes that must be free beyond the estimate, because other programs write to the disk too."""

_LAST: Final = """
SELECT sum(row_count) FILTER (step IN (SELECT unnest($wanted))),
       max(row_count) FILTER (step = 'samples')
FROM audit.run_steps JOIN (SELECT artifact_id, row_count FROM audit.artifacts) USING (artifact_id)
WHERE run_id = (SELECT run_id FROM audit.runs WHERE pipeline = $pipeline AND status = 'done'
                ORDER BY started_at DESC LIMIT 1)
"""


class SpaceNeeded(NamedTuple):
    """Bytes that a run may need for its tables, estimated from `source`, and for the read copy."""

    tables: int
    copy: int
    source: str

    def __str__(self) -> str:
        copy = f", {_size(self.copy)} for the read copy" if self.copy else ""
        tables = f"{_size(self.tables)} for its tables by {self.source}"
        return f"{_size(self.tables + self.copy + SPARE)} ({tables}{copy}, {_size(SPARE)} to spare)"


def check_disk_space(
    prepared: Prepared, store: Store, *, wanted: Collection[str], free: int | None = None
) -> None:
    """Raise `StoreFullError` if the store's disk has less space than the run may need.

    `wanted` are the steps that the run may make; `free` is in bytes, read from the disk if None.
    """
    need = space_needed(prepared, store, wanted=wanted)
    left = shutil.disk_usage(_folder(store.path)).free if free is None else free
    if left < need.tables + need.copy + SPARE:
        hint = "make room (claimflow prune removes old runs)"
        if need.copy:
            hint += " or do without the copy (read_copy: false)"
        raise StoreFullError(
            f"{store.path}: its disk has {_size(left)} free, and the run may need {need}; {hint}"
        )


def space_needed(prepared: Prepared, store: Store, *, wanted: Collection[str]) -> SpaceNeeded:
    """The bytes needed if every wanted step is made anew.

    Estimated from the rows of the pipeline's newest finished run, at the size of the store per
    row. Without such a run only the size of the samples counts, which are written in any case:
    runs wrote 1 to 9 times as much, and a guess is no reason to refuse a run.
    """
    size = store.path.stat().st_size if store.path.is_file() else 0
    known = size and store_version(store) == SCHEMA_VERSION  # An older one is yet to be migrated.
    added = _from_last_run(prepared, store, wanted, size) if known else None
    source = f"the last run of {prepared.pipeline.name}"
    if added is None:
        added, source = prepared.samples.size, "the size of the samples"
    copy = size + added if prepared.pipeline.read_copy else 0
    return SpaceNeeded(added, copy, source)


def _from_last_run(
    prepared: Prepared, store: Store, wanted: Collection[str], size: int
) -> int | None:
    with store.reading() as connection:
        asked = {"wanted": ["samples", *sorted(wanted)], "pipeline": prepared.pipeline.name}
        [(rows, samples)] = connection.execute(_LAST, asked).fetchall()
        [(on_file,)] = connection.execute("SELECT sum(row_count) FROM audit.artifacts").fetchall()
    if not rows or not samples or not on_file:
        return None
    return int(size / on_file * rows * prepared.samples.count / samples)


def _folder(path: Path) -> Path:
    """The nearest existing folder above a store."""
    return next(folder for folder in path.parents if folder.is_dir())


def _size(count: int) -> str:
    """Decimal units with at most three digits: 64 MB, 1.2 GB."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:,.{1 if count < 10 * scale else 0}f} {unit}"
    return f"{count / 1000:,.0f} kB"
