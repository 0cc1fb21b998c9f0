"""Samples from Python objects: tables, lists of mappings, and datasets of other libraries.

Nothing of the optional libraries is imported: their objects are recognised by their class or by
the methods that they are read with, and are not changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from claimflow.flows.errors import Fault
from claimflow.flows.samples.reader import SampleSource, checked_samples, read_samples
from claimflow.flows.samples.records import (
    Record,
    RecordError,
    json_object,
    ragchecker_sample,
    too_many_columns,
)
from claimflow.flows.samples.table_files import frame_rows

if TYPE_CHECKING:
    # The schema loads all stages.
    from claimflow.flows.pipeline.schema import EarlierTurns
    from claimflow.flows.samples.redaction import Redactor

_BATCH_ROWS: Final = 250
_HINT: Final = "give a table, a list of dicts, a dataset, or the path of a file"


class _Answers(NamedTuple):
    """The object that rows come from: its `name` for messages, and how a row becomes a record."""

    name: str
    row: str = "[{number}]"
    record: Callable[[Any], dict[str, Any]] = json_object
    # As in CSV: tables and dicts often come from such files, with lists as text.
    cells: bool = True

    def place(self, number: int) -> str:
        return self.name + self.row.format(number=number)

    def read(self, number: int, row: Any) -> Record:
        if isinstance(row, RecordError):
            return Record(number, row)
        try:
            return Record(number, self.record(row))
        except RecordError as error:
            return Record(number, error)


class _UnusableError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def samples_from(
    answers: Any,
    *,
    rename: Mapping[str, str] | None = None,
    contexts_separator: str | None = None,
    earlier_turns: "EarlierTurns" = "history",
    limit: int | None = None,
    skip_unusable: bool = False,
    redactor: "Redactor | None" = None,
    name: str = "answers",
) -> SampleSource:
    """Read and check the samples in `answers`, as `read_samples` does for files.

    `answers` is the path of a file (relative to the working directory, or s3://), or an object:
    a Polars DataFrame or LazyFrame, a pandas DataFrame, a table of Arrow or any object that gives
    an Arrow stream, a `Dataset` of Hugging Face, an `EvaluationDataset` of ragas, the results of
    RAGChecker, or an iterable of mappings, pydantic models, dataclasses or named tuples. A mapping
    with one table or dataset, such as a `DatasetDict` with one split, is that one.

    The rows give the same samples, ids and digest as in a JSON Lines file. NaN, NA and NaT are
    missing values; dates become ISO 8601; a text that is a list in JSON or Python notation is
    read as the list where a field takes one, as in CSV. Messages call row 3 `answers[3]`, where
    `name` is the name to use. Raises nothing for bad input: all faults are in the result.
    Exceptions of an iterable or a lazy query are those of the caller.
    """
    if isinstance(answers, str | Path):
        return read_samples(
            str(answers),
            base=Path(),
            rename=rename or {},
            contexts_separator=contexts_separator,
            earlier_turns=earlier_turns,
            limit=limit,
            skip_unusable=skip_unusable,
            redactor=redactor,
        )
    faults: list[Fault] = []
    origin = _Answers(name)
    rows: Iterable[Any] = ()
    try:
        origin, rows = _rows(answers, origin)
    except _UnusableError as error:
        faults.append(error.fault)
    records = ((origin, origin.read(number, row)) for number, row in enumerate(rows))
    found = checked_samples(
        records,
        faults,
        path=name,
        rename=rename or {},
        contexts_separator=contexts_separator,
        earlier_turns=earlier_turns,
        limit=limit,
        skip_unusable=skip_unusable,
        redactor=redactor,
    )
    if found.available or found.faults:
        return found
    return replace(found, faults=(Fault(name, "no samples", "give at least one"),))


def _rows(answers: Any, origin: _Answers) -> tuple[_Answers, Iterable[Any]]:
    """(places, rows as mappings) of `answers`; raises `_UnusableError` where it has none."""
    if isinstance(answers, pl.LazyFrame):
        _check_width(answers.collect_schema().len(), origin.name)
        batches = answers.collect_batches(chunk_size=_BATCH_ROWS, lazy=True)
        return origin, (row for batch in batches for row in _frame_rows(batch, origin.name))
    if isinstance(answers, pl.DataFrame):
        return origin, _frame_rows(answers, origin.name)
    if _is_pandas(answers):
        return origin._replace(row=".iloc[{number}]"), _pandas_rows(answers, origin.name)
    if hasattr(answers, "__arrow_c_stream__"):
        return origin, _frame_rows(_arrow_frame(answers, origin.name), origin.name)
    if isinstance(answers, Mapping):
        return _rows_of_mapping(answers, origin)
    if hasattr(answers, "with_format") and hasattr(answers, "column_names"):
        # Hugging Face: rows as Python objects, whatever format the user has chosen.
        return origin, answers.with_format(None)
    if hasattr(answers, "samples") and hasattr(answers, "to_list"):
        return origin, answers.to_list()
    results = getattr(answers, "results", None)
    if isinstance(results, list) and type(answers).__name__ == "RAGResults":
        return _rows_of_results(results, origin)
    if isinstance(answers, bytes) or not isinstance(answers, Iterable):
        raise _UnusableError(Fault(origin.name, f"is of type {type(answers).__name__}", _HINT))
    return origin, answers


def _rows_of_mapping(
    answers: Mapping[Any, Any], origin: _Answers
) -> tuple[_Answers, Iterable[Any]]:
    if isinstance(answers.get("results"), list):
        return _rows_of_results(answers["results"], origin)
    if not answers or any(isinstance(value, str | list | None) for value in answers.values()):
        what, hint = "is one mapping instead of many", f"put it into a list: [{origin.name}]"
        lengths = {len(value) if isinstance(value, list) else None for value in answers.values()}
        if len(answers) > 1 and len(lengths) == 1 and None not in lengths:
            what = "is one mapping, of columns"
            hint = f"give a table of them: polars.DataFrame({origin.name})"
        raise _UnusableError(Fault(origin.name, what, hint))
    (split, only), *others = answers.items()
    if others:
        what = f"holds several datasets: {', '.join(map(repr, answers))}"
        hint = f"give one of them, such as {origin.name}[{split!r}]"
        raise _UnusableError(Fault(origin.name, what, hint))
    return _rows(only, origin._replace(name=f"{origin.name}[{split!r}]"))


def _rows_of_results(results: list[Any], origin: _Answers) -> tuple[_Answers, Iterable[Any]]:
    def record(row: Any) -> dict[str, Any]:
        return ragchecker_sample(json_object(row))

    return origin._replace(name=f"{origin.name}['results']", record=record), results


def _check_width(columns: int, name: str) -> None:
    if error := too_many_columns(columns):
        raise _UnusableError(Fault(name, error.what, error.hint))


def _arrow_frame(answers: Any, name: str) -> pl.DataFrame:
    try:
        return pl.DataFrame(answers)
    except pl.exceptions.DuplicateError as error:
        what = f"two columns have one name ({error})"
        raise _UnusableError(Fault(name, what, "name every column once")) from None


def _frame_rows(frame: pl.DataFrame, name: str) -> Iterator[dict[str, Any] | RecordError]:
    _check_width(frame.width, name)
    return frame_rows(frame)


def _is_pandas(answers: Any) -> bool:
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
        for kind in type(answers).__mro__
    )


def _pandas_rows(frame: Any, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a pandas DataFrame; the levels of its index that have a name are columns."""
    levels = [n for n, level in enumerate(frame.index.names) if level is not None]
    names = [str(frame.index.names[n]) for n in levels] + [str(column) for column in frame.columns]
    _check_width(len(names), name)
    if len(set(names)) < len(names):
        repeated = next(column for column in names if names.count(column) > 1)
        what = f"two columns are named {repeated!r}"
        raise _UnusableError(Fault(name, what, "name every column once"))
    return _pandas_batches(frame, levels, names)


def _pandas_batches(frame: Any, levels: list[int], names: list[str]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(frame), _BATCH_ROWS):
        part = frame.iloc[start : start + _BATCH_ROWS]
        columns = [part.index.get_level_values(n).tolist() for n in levels]
        columns += [part.iloc[:, n].tolist() for n in range(part.shape[1])]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
