"""Records of files -> samples with ids, and everything wrong on the way."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, starmap
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.engine.errors import Fault
from claimflow.flows.engine.reader.fields import sample_fields
from claimflow.flows.engine.reader.files import SampleFile, unreadable
from claimflow.flows.engine.reader.records import Record, RecordError
from claimflow.stages.keys import content_key
from claimflow.stages.rows import Sample
from claimflow.stages.tables import conform, schema

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
        self.faults += [Fault(place, wrong.what, wrong.right) for wrong in wrongs]

    def _made_id(self, sample: Mapping[str, Any]) -> str:
        """Key of the content, and of how many samples of that content came before."""
        content = [sample[name] for name in _CONTENT]
        first = content_key("sample", *content, 0)
        copy = self._copies.get(first, 0)
        self._copies[first] = copy + 1
        return content_key("sample", *content, copy) if copy else first
