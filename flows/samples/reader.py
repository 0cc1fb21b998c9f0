"""Samples from files: read and checked once, then handed out in shards."""

import io
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import duckdb
import polars as pl

from claimflow.flows.errors import Fault
from claimflow.flows.samples.fields import (
    FIELDS,
    fields_by_column,
    mapping_faults,
    sample_fields,
    unknown_fields,
)
from claimflow.flows.samples.files import SampleFile, find_files, unreadable
from claimflow.flows.samples.records import Record, RecordError
from claimflow.flows.store.fingerprint import Digest
from claimflow.stages.rows import Sample, content_key
from claimflow.stages.tables import conform, schema

# Tables put aside, to be read again in the same order.


_IN_MEMORY: Final = 32 << 20


class Shelf:
    """Tables in order: in memory while they are small, then in a temporary file.

    The file has no name, so that it is gone with the process however that ends. Several
    threads may read at a time.
    """

    def __init__(self) -> None:
        self._file = _scratch()
        self._sizes: list[int] = []
        self._turn = threading.Lock()
        weakref.finalize(self, self._file.close)

    def add(self, table: pl.DataFrame) -> None:
        """Put `table` behind all others."""
        packed = io.BytesIO()
        table.write_ipc_stream(packed)
        self._sizes.append(self._file.write(packed.getbuffer()))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        position = 0
        for size in self._sizes:
            with self._turn:
                self._file.seek(position)
                packed = self._file.read(size)
            yield pl.read_ipc_stream(packed)
            position += size


def _scratch() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)


# Records of files -> samples with ids, and everything wrong on the way.


_NOT_CONTENT: Final = ("sample_id", "response_claims", "reference_claims")
"""Correcting the claims that come with a sample makes no other sample of it."""

_CONTENT: Final = tuple(name for name in Sample.model_fields if name not in _NOT_CONTENT)


class Reading:
    """One pass over `files`, at most `limit` records of them.

    What it meets on the way is gathered: the names of the `columns` and the `faults`.
    """

    def __init__(
        self, files: Sequence[SampleFile], by_column: Mapping[str, str], limit: int | None
    ) -> None:
        self.columns: set[str] = set()
        self.faults: list[Fault] = []
        self._files = files
        self._by_column = by_column
        self._limit = limit
        self._places: dict[str, tuple[SampleFile, int]] = {}
        self._copies: dict[str, int] = {}

    def tables(self, size: int) -> Iterator[pl.DataFrame]:
        """The samples without a fault, as tables of at most `size` rows."""
        samples = filter(None, starmap(self._sample, islice(self._records(), self._limit)))
        while rows := list(islice(samples, size)):
            columns = {name: [row[name] for row in rows] for name in Sample.model_fields}
            if not any(columns["other_references"]):
                # Polars takes as long for an empty list as for one of texts.
                del columns["other_references"]
            kinds = {name: schema(Sample)[name] for name in columns}
            yield conform(Sample, pl.DataFrame(columns, schema=kinds))

    def _records(self) -> Iterator[tuple[SampleFile, Record]]:
        for file in self._files:
            record = None
            try:
                for record in file.format.read(file.path):
                    yield file, record
            except (pl.exceptions.PolarsError, duckdb.Error, OSError, UnicodeError) as error:
                self.faults.append(unreadable(file, error))
            else:
                if record is None:
                    self.faults.append(Fault(file.name, "no samples", "write at least one"))

    def _sample(self, file: SampleFile, record: Record) -> dict[str, Any] | None:
        if isinstance(record.values, RecordError):
            self._refuse(file, record.number, record.values)
            return None
        self.columns.update(record.values)
        sample, wrongs = sample_fields(record.values, self._by_column, cells=file.format.cells)
        if sample["sample_id"] is None and not wrongs:
            sample["sample_id"] = self._made_id(sample)
        wrongs += self._repeated(sample["sample_id"], file, record.number)
        if wrongs:
            self._refuse(file, record.number, *wrongs)
            return None
        return sample

    def _repeated(self, sample_id: str | None, file: SampleFile, number: int) -> list[RecordError]:
        here = (file, number)
        first, there = here if sample_id is None else self._places.setdefault(sample_id, here)
        if (first, there) == here:
            return []
        what = f"sample_id {sample_id!r} stands already at {first.place(there)}"
        return [RecordError(what, "give every sample an id of its own")]

    def _refuse(self, file: SampleFile, number: int, *wrongs: RecordError) -> None:
        place = file.place(number)
        self.faults += [Fault(place, wrong.what, wrong.hint) for wrong in wrongs]

    def _made_id(self, sample: Mapping[str, Any]) -> str:
        """Key of the content, and of how many samples of that content came before."""
        content = [sample[name] for name in _CONTENT]
        first = content_key("sample", *content, 0)
        copy = self._copies.get(first, 0)
        self._copies[first] = copy + 1
        return content_key("sample", *content, copy) if copy else first


# Samples from files: read and checked once, then given out in shards.


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


def read_samples(
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
