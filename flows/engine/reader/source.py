"""Samples from files: read and checked once, then given out in shards."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import polars as pl

from claimflow.flows.engine.errors import Fault
from claimflow.flows.engine.reader.columns import (
    FIELDS,
    fields_by_column,
    mapping_faults,
    unknown_fields,
)
from claimflow.flows.engine.reader.files import find_files
from claimflow.flows.engine.reader.samples import Reading
from claimflow.flows.engine.reader.shelf import Shelf
from claimflow.flows.engine.storage.fingerprint import Digest
from claimflow.stages.rows import Sample
from claimflow.stages.tables import schema

_AT_A_TIME: Final = 250


@dataclass(frozen=True)
class SampleSource:
    """The samples that `path` names, every file read and checked.

    `mapping` names the input column that gives each field, `present` the fields that at
    least one sample has a value for (an empty text or list is one). `count` is how many samples
    there are, `size` the bytes that they take in memory and `digest` that of their table.
    `faults` is everything wrong with the input: while there is any, the samples are not
    all there. Files that change later change nothing here.
    """

    path: str
    mapping: Mapping[str, str]
    present: frozenset[str]
    count: int
    size: int
    digest: str
    faults: tuple[Fault, ...]
    _shelf: Shelf

    def shards(self, size: int) -> Iterator[pl.DataFrame]:
        """The samples in the order of the files, as tables of at most `size` rows."""
        rest = pl.DataFrame(schema=schema(Sample))
        for table in self._shelf:
            rest = pl.concat([rest, table])
            while rest.height >= size:
                yield rest.head(size)
                rest = rest.slice(size)
        if rest.height:
            yield rest

    def only(self, ids: Collection[str]) -> "SampleSource":
        """Those of the samples whose ids are in `ids`, in the same order."""
        chosen = (table.filter(pl.col("sample_id").is_in(ids)) for table in self._shelf)
        kept = _put_aside(table for table in chosen if table.height)
        digest = kept.digest.value()
        return replace(self, count=kept.rows, size=kept.size, digest=digest, _shelf=kept.shelf)


def open_samples(
    path: str, *, base: Path, rename: Mapping[str, str], limit: int | None = None
) -> SampleSource:
    """Read and check the samples that `path`, a file below `base`, an object or a glob, names.

    `rename` maps columns of the input to fields of a sample and goes before the names
    that are known. `limit` reads the first samples only. Nothing is raised for bad input:
    all faults are in the source. A sample without `sample_id` gets one made from its
    content, and from its count among samples of the same content.
    """
    by_column = fields_by_column(rename)
    with TemporaryDirectory(prefix="claimflow-") as folder:
        files, faults = find_files(path, base, Path(folder))
        reading = Reading(files, by_column, limit)
        kept = _put_aside(reading.tables(_AT_A_TIME))
    faults += [*reading.faults, *unknown_fields(rename)]
    if reading.columns:
        faults += mapping_faults(path, reading.columns, rename)
    given = {by_column[name]: name for name in sorted(reading.columns) if name in by_column}
    mapping = {field: given[field] for field in FIELDS if field in given}
    return SampleSource(
        path,
        mapping,
        frozenset(kept.present),
        kept.rows,
        kept.size,
        kept.digest.value(),
        tuple(faults),
        kept.shelf,
    )


class _Kept:
    """Tables put on a shelf, and what must be known of all of them, found in the one pass."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.present: set[str] = set()
        self.rows = self.size = 0
        self.digest = Digest(Sample)

    def add(self, table: pl.DataFrame) -> None:
        self.shelf.add(table)
        self.digest.add(table)
        self.rows += table.height
        self.size += int(table.estimated_size())
        self.present |= {column.name for column in table if column.null_count() < table.height}


def _put_aside(tables: Iterable[pl.DataFrame]) -> _Kept:
    """Each table is put aside while the next is made: Python's part and Polars' take as long."""
    kept = _Kept()
    with ThreadPoolExecutor(1, thread_name_prefix="shelf") as pool:
        adding: Future[None] | None = None
        for table in tables:
            if adding:
                adding.result()
            adding = pool.submit(kept.add, table)
        if adding:
            adding.result()
    return kept
