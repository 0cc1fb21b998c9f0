"""The samples of a run: read, checked, and handed out in tables of any size."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from claimflow.flows.errors import Fault
from claimflow.flows.samples.buffer import TableBuffer
from claimflow.flows.samples.conversations import MESSAGE_COLUMNS, ConversationReader, TurnSample
from claimflow.flows.samples.fields import (
    FIELDS,
    FieldColumns,
    NestedMetadata,
    fields_by_column,
    left_out_by_rename,
    mapping_faults,
    misspelt_fields,
    misspelt_name,
    unknown_fields,
)
from claimflow.flows.samples.files import find_files, shown_path
from claimflow.flows.samples.formats import read_records
from claimflow.flows.samples.records import (
    Origin,
    Record,
    RecordError,
    SlowPatternError,
)
from claimflow.flows.samples.temporary import copies_folder
from claimflow.flows.store.fingerprint import Digest
from claimflow.stages.rows import Sample, content_key
from claimflow.stages.tables import schema

if TYPE_CHECKING:
    # The schema loads all stages.
    from claimflow.flows.pipeline.schema import EarlierTurns
    from claimflow.flows.samples.redaction import Redactor

_BATCH_ROWS: Final = 2_000
"""Samples in a table at most: each table costs the thread that buffers it some waiting."""

_BATCH_CHARACTERS: Final = 8 << 20
"""Characters of the texts of a table, but for those of its last sample: they are in memory."""

_NOT_CONTENT: Final = ("sample_id", "response_claims", "reference_claims")
"""A sample whose supplied claims are corrected keeps its id."""

_OF_MESSAGES: Final = ("user_input", "response", "reference", "retrieved_contexts")
"""The fields that a list of messages can fill."""

_CONTENT: Final = tuple(name for name in Sample.model_fields if name not in _NOT_CONTENT)

_TYPES: Final = schema(Sample)


@dataclass(frozen=True)
class SampleSource:
    """The checked samples of the files that `path` names, or of an object in memory.

    `mapping` is the input column that fills each field, `present` the fields that at least one
    sample has a value for (an empty text or list is one), `metadata` all other columns, and
    `misspelt` the column that is probably meant for a field that is not present. `warnings` are the
    samples that were left out as unusable, and fields that are misspelt in some samples. `count`
    is the number of samples, `available` the number in the files, and `selection` the options that
    left some out, None where none did. `size` is their bytes in memory and `digest` that of their
    table. `faults` is everything wrong with the input; with faults, samples are missing. They are
    `incomplete` where a file is damaged before its end, so that earlier ones may be missing. The
    samples are a copy: files that change later have no effect.
    """

    path: str
    mapping: Mapping[str, str]
    present: frozenset[str]
    metadata: frozenset[str]
    misspelt: Mapping[str, str]
    warnings: tuple[Fault, ...]
    count: int
    available: int
    selection: str | None
    size: int
    digest: str
    faults: tuple[Fault, ...]
    _buffer: "_SampleBuffer"
    incomplete: bool = False

    def shards(self, size: int) -> Iterator[pl.DataFrame]:
        """The samples in the order of the files, as tables of at most `size` rows."""
        waiting: list[pl.DataFrame] = []
        count = 0
        for table in self._buffer:
            waiting.append(table)
            count += table.height
            if count >= size:
                rest = pl.concat(waiting)
                while rest.height >= size:
                    yield rest.head(size)
                    rest = rest.slice(size)
                waiting, count = [rest], rest.height
        if count:
            yield pl.concat(waiting)

    def only(self, ids: Collection[str], *, selection: str) -> "SampleSource":
        """The samples whose ids are in `ids`, in the same order; `selection` is what chose them."""
        kept = _buffered(
            selected
            for table in self._buffer
            if (selected := table.filter(pl.col("sample_id").is_in(ids))).height
        )
        options = [self.selection, selection if kept.rows < self.count else None]
        return self._kept(kept, " ".join(filter(None, options)) or None)

    def first(self, count: int, *, selection: str) -> "SampleSource":
        """The first `count` samples; `selection` is what asks for them."""
        kept = self.where(pl.int_range(self.count, eager=True) < count)
        options = [self.selection, selection]
        return replace(kept, selection=" ".join(filter(None, options)))

    def where(self, keep: pl.Series) -> "SampleSource":
        """The samples for which `keep` is true, which has a value for each in their order.

        They are what the pipeline asks for: `selection` stays as it is.
        """
        return self._kept(_buffered(self._filtered(keep)), self.selection)

    def _filtered(self, keep: pl.Series) -> Iterator[pl.DataFrame]:
        first = 0
        for table in self._buffer:
            selected = table.filter(keep.slice(first, table.height))
            first += table.height
            if selected.height:
                yield selected

    def _kept(self, kept: "_SampleBuffer", selection: str | None) -> "SampleSource":
        digest = kept.digest.value()
        return replace(
            self, count=kept.rows, selection=selection, size=kept.size, digest=digest, _buffer=kept
        )


def read_samples(
    path: str,
    *,
    base: Path,
    rename: Mapping[str, str],
    contexts_separator: str | None = None,
    earlier_turns: "EarlierTurns" = "history",
    limit: int | None = None,
    skip_unusable: bool = False,
    redactor: "Redactor | None" = None,
) -> SampleSource:
    """Read and check the samples of `path`: a path or glob below `base`, or one on S3.

    `rename` maps input columns to fields of a sample and takes precedence over the known names.
    A text of contexts is split at `contexts_separator`. A conversation gives a sample for each
    turn; with `earlier_turns: contexts` those before it are further contexts. `limit` reads the
    first records only, of which a conversation is one; the rest is counted and not checked.
    `skip_unusable` leaves out records that cannot be used, where the file can be read on behind
    them. `redactor` replaces texts before they are kept. A sample without `sample_id` gets one made
    from its content, and from its number among samples with the same content. Messages call files
    as `base` is given, relative to the working directory or not. Raises nothing for bad input: all
    faults are in the result.
    """
    with copies_folder() as folder:
        files, faults = find_files(path, base, folder)
        records = read_records(files, faults, required="samples")
        return checked_samples(
            records,
            faults,
            path=shown_path(path, base),
            rename=rename,
            contexts_separator=contexts_separator,
            earlier_turns=earlier_turns,
            limit=limit,
            skip_unusable=skip_unusable,
            redactor=redactor,
        )


def checked_samples(  # noqa: PLR0913
    records: Iterator[tuple[Origin, Record]],
    faults: list[Fault],
    *,
    path: str,
    rename: Mapping[str, str],
    contexts_separator: str | None = None,
    earlier_turns: "EarlierTurns" = "history",
    limit: int | None = None,
    skip_unusable: bool = False,
    redactor: "Redactor | None" = None,
) -> SampleSource:
    """The samples of `records`, checked; what is wrong with them is added to `faults`.

    `path` is what the samples were read from, for messages. The options are those of
    `read_samples`.
    """
    by_column = fields_by_column(rename)
    conversations = ConversationReader(by_column, contexts_separator)
    reader = _SampleReader(
        by_column,
        conversations,
        NestedMetadata(by_column, rename, MESSAGE_COLUMNS),
        faults,
        rename=rename,
        earlier_turns=earlier_turns,
        skip_unusable=skip_unusable,
        redactor=redactor,
    )
    kept = _buffered(reader.tables(islice(records, limit)))
    rest = _count_rest(records, conversations, faults) if limit is not None else 0
    faults += unknown_fields(rename)
    columns = reader.fields.columns
    if columns:
        faults += mapping_faults(reader.fields, rename)
    given = reader.fields.mapping()
    for column in sorted(conversations.columns):
        given |= {name: column for name in _OF_MESSAGES if name in kept.present - given.keys()}
    missing = {field for field in FIELDS if field not in given or field not in kept.present}
    skipped = reader.skipped
    if skipped and not kept.rows and not faults:
        faults += reader.first_skipped
        faults.append(Fault(path, "no sample can be used", "correct one or more"))
    left_out = {f"--limit {limit}": rest, "--skip-unusable": skipped}
    return SampleSource(
        path=path,
        mapping={field: given[field] for field in FIELDS if field in given},
        present=frozenset(kept.present),
        metadata=frozenset(columns - by_column.keys() - conversations.columns | conversations.made),
        misspelt=misspelt_fields(columns, rename, missing),
        warnings=tuple(reader.warnings(missing)),
        count=kept.rows,
        available=kept.rows + skipped + rest + (redactor.too_slow if redactor else 0),
        selection=" ".join(option for option, count in left_out.items() if count) or None,
        size=kept.size,
        digest=kept.digest.value(),
        faults=tuple(faults),
        _buffer=kept,
    )


def _count_rest(
    records: Iterable[tuple[Origin, Record]],
    conversations: ConversationReader,
    faults: list[Fault],
) -> int:
    """How many samples follow; their faults are dropped, since they are not in the run."""
    known = len(faults)
    count = sum(
        1
        if isinstance(record.values, RecordError)
        else conversations.count(record.values, cells=origin.cells)
        for origin, record in records
    )
    del faults[known:]
    return count


def _batches(samples: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The samples in lists of a bounded number, and of texts of a bounded length."""
    rows: list[dict[str, Any]] = []
    characters = 0
    for sample in samples:
        rows.append(sample)
        characters += sum(
            len(value) if isinstance(value, str) else sum(map(len, value))
            for value in sample.values()
            if value
        )
        if len(rows) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
            yield rows
            rows, characters = [], 0
    if rows:
        yield rows


class _SampleReader:
    """Records to samples with ids; collects the columns as `fields` and adds to `faults`.

    With `skip_unusable`, records that are no sample are counted as `skipped` instead.
    """

    def __init__(
        self,
        by_column: Mapping[str, str],
        conversations: ConversationReader,
        nested: NestedMetadata,
        faults: list[Fault],
        *,
        rename: Mapping[str, str],
        earlier_turns: "EarlierTurns",
        skip_unusable: bool,
        redactor: "Redactor | None",
    ) -> None:
        self.fields = FieldColumns(by_column)
        self.skipped = 0
        self.first_skipped: list[Fault] = []
        self._faults = faults
        self._by_column = by_column
        self._conversations = conversations
        self._nested = nested
        self._rename = rename
        self._earlier_turns = earlier_turns
        self._skip_unusable = skip_unusable
        self._redactor = redactor
        self._places: dict[str, tuple[Origin, int]] = {}
        self._turns: dict[tuple[str, int], tuple[Origin, int]] = {}
        self._copies: dict[str, int] = {}
        # Column -> the name that it is probably a misspelling of, and where it is used instead.
        self._misspelt: dict[str, str | None] = {}
        self._misspelt_at: dict[str, tuple[str, int]] = {}

    def warnings(self, missing: Collection[str]) -> Iterator[Fault]:
        """What was left out, misspelt names of fields not in `missing`, and ignored metadata."""
        if self.first_skipped:
            place, what, hint = self.first_skipped[0]
            more = f" (and {self.skipped - 1:,} more)" if self.skipped > 1 else ""
            yield Fault(place, f"left out as unusable{more}: {what}", hint)
        for column, (first, count) in self._misspelt_at.items():
            name = self._misspelt[column]
            if name and self._by_column[name] not in missing:
                field = self._by_column[name]
                more = f" (and {count - 1:,} more)" if count > 1 else ""
                what = f"the sample has {column!r} and no {field!r}{more}"
                hint = f"did you mean {name!r}?"
                if left_out_by_rename(column, self._rename):
                    what = (
                        f"the sample has no {field!r}, since rename takes that from {name!r}{more}"
                    )
                    hint = f"add {column}: {field} to rename, so that {column!r} fills it, too"
                yield Fault(first, what, hint)
        yield from self._nested.warnings()

    def tables(self, records: Iterable[tuple[Origin, Record]]) -> Iterator[pl.DataFrame]:
        """The samples without a fault, in tables of a bounded size."""
        for rows in _batches(chain.from_iterable(starmap(self._samples, records))):
            columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _TYPES}
            if not any(columns["other_references"]):
                # Polars takes as long for each empty list as for a list of texts.
                kind = _TYPES["other_references"]
                columns["other_references"] = pl.repeat([], len(rows), dtype=kind, eager=True)
            yield pl.DataFrame(columns, schema=_TYPES)

    def _samples(self, origin: Origin, record: Record) -> list[dict[str, Any]]:
        """The samples of a record, none where something is wrong with it."""

        def place() -> str:
            return origin.place(record.number)

        if isinstance(record.values, RecordError):
            self._add_faults(origin, record, [record.values])
            return []
        try:
            values = self._nested.moved(record.values, place)
        except RecordError as error:
            self._add_faults(origin, record, [error])
            return []
        self.fields.add(values, place)
        turns, errors = self._conversations.read(values, cells=origin.cells)
        if not errors:
            # Before anything is kept, also an id that is made of the content.
            turns = self._redacted(turns, place)
        for turn in turns:
            if turn.fields["sample_id"] is None and not errors:
                turn.fields["sample_id"] = self._content_id(turn.fields)
        if not (errors and self._skip_unusable):
            errors += self._repeated(turns, origin, record.number)
        if errors:
            self._add_faults(origin, record, errors)
            return []
        samples = [
            # After its id was made, so that the setting does not change it.
            turn.fields if self._earlier_turns == "history" else turn.with_earlier_turns()
            for turn in turns
        ]
        for sample in samples:
            self._note_misspelt(sample, values, origin.place, record.number)
        return samples

    def _redacted(self, turns: list[TurnSample], place: Callable[[], str]) -> list[TurnSample]:
        """The samples of the record at `place` redacted; none where that cannot be done."""
        if self._redactor is None:
            return turns
        try:
            return [self._redactor.redacted(turn) for turn in turns]
        except SlowPatternError:
            # The text may be a stranger's, who must not be able to end a run.
            self._redactor.too_slow += len(turns)
        except RecordError as error:
            # Also with `skip_unusable`: the function is to be mended, not the sample.
            # One function fails for many samples in one way: told once.
            if error.what not in self._redactor.failures:
                self._redactor.failures.add(error.what)
                self._faults.append(Fault(place(), error.what, error.hint))
        return []

    def _note_misspelt(
        self,
        sample: Mapping[str, Any],
        columns: Iterable[str],
        place: Callable[[int], str],
        number: int,
    ) -> None:
        """Note columns that are probably meant for a field that this sample does not have."""
        for column in columns:
            if column in self._by_column:
                continue
            if column not in self._misspelt:
                field = left_out_by_rename(column, self._rename)
                names = [name for name, filled in self._rename.items() if filled == field]
                self._misspelt[column] = (
                    names[0] if names else misspelt_name(column, self._by_column)
                )
            name = self._misspelt[column]
            if name and sample[self._by_column[name]] is None:
                first, count = self._misspelt_at.get(column) or (place(number), 0)
                self._misspelt_at[column] = first, count + 1

    def _repeated(
        self, turns: Iterable[TurnSample], origin: Origin, number: int
    ) -> list[RecordError]:
        """The first error of a record whose ids or turns another record has."""
        here = (origin, number)
        found: list[RecordError] = []
        for turn in turns:
            sample_id = turn.fields["sample_id"]
            first = here if sample_id is None else self._places.setdefault(sample_id, here)
            if first != here:
                what = f"sample_id {sample_id!r} is already at {first[0].place(first[1])}"
                found.append(RecordError(what, "give every sample an id of its own"))
            first = self._turns.setdefault(turn.turn, here) if turn.turn else here
            if first != here and turn.turn:
                name, place = turn.turn
                what = f"turn {place} of conversation {name!r} is already at "
                what += first[0].place(first[1])
                found.append(RecordError(what, "give every turn a number of its own"))
        return found[:1]

    def _add_faults(self, origin: Origin, record: Record, errors: Sequence[RecordError]) -> None:
        place = origin.place(record.number)
        shown = self._redactor.message if self._redactor is not None else str
        faults = [Fault(place, shown(error.what), error.hint) for error in errors]
        if not self._skip_unusable or record.ends_file:
            self._faults += faults
        elif faults:
            self.skipped += 1
            self.first_skipped = self.first_skipped or faults

    def _content_id(self, sample: Mapping[str, Any]) -> str:
        """Key of the content, and of the number of earlier samples with that content."""
        content = [sample[name] for name in _CONTENT]
        first = content_key("sample", *content, 0)
        copy = self._copies.get(first, 0)
        self._copies[first] = copy + 1
        return content_key("sample", *content, copy) if copy else first


class _SampleBuffer(TableBuffer):
    """Tables of samples in order, and their totals. `present` are the columns with a value."""

    def __init__(self) -> None:
        super().__init__()
        self.present: set[str] = set()
        self.rows = self.size = 0
        self.digest = Digest(Sample)

    def add(self, table: pl.DataFrame) -> None:
        super().add(table)
        self.digest.add(table)
        self.rows += table.height
        self.size += int(table.estimated_size())
        self.present |= {column.name for column in table if column.null_count() < table.height}


def _buffered(tables: Iterable[pl.DataFrame]) -> _SampleBuffer:
    """Buffer each table on a thread while the next is made, which takes about as long."""
    buffer = _SampleBuffer()
    with ThreadPoolExecutor(1, thread_name_prefix="sample-buffer") as pool:
        adding: Future[None] | None = None
        for table in tables:
            if adding:
                adding.result()
            adding = pool.submit(buffer.add, table)
        if adding:
            adding.result()
    return buffer
