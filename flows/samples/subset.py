"""Some of the samples: by a file of ids, by an SQL query, or one of several disjoint parts."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import is_file
from claimflow.flows.pipeline.rerun import Part
from claimflow.flows.samples.formats import SampleFile, format_of, read_records
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.samples.records import RecordError
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key

_OPTION: Final = "--samples"
_COLUMN: Final = "sample_id"
_QUERY_SECONDS: Final = 60.0
_SHOWN: Final = 5
_SQL: Final = ("select", "with", "from")
_PART_COLUMNS: Final = (_COLUMN, "user_input", "reference", "retrieved_contexts")


def select_samples(samples: SampleSource, selection: str, store: Store) -> SampleSource:
    """Those of `samples` that `selection` names, in their own order.

    `selection` is the path of a file, or a SELECT on `store` that answers a column sample_id.
    The file has such a column where its ending is that of a samples file, else one id a line.
    Raises `InputError` for ids that no sample has, and where no id is named.
    """
    path = Path(selection)
    first, *more = selection.split() or [""]
    # A query may be too long for a file's name.
    is_query = bool(more) and first.lower() in _SQL and not is_file(path)
    ids = dict.fromkeys(_ids_by_query(selection, store) if is_query else _ids_in_file(path))
    if not ids:
        raise InputError([Fault(_OPTION, "names no sample", "name at least one")])
    selected = samples.only(ids, selection=f"{_OPTION} {selection}")
    if selected.count < len(ids):
        known = {sample_id for table in selected.shards(2_000) for sample_id in table[_COLUMN]}
        raise InputError([_unknown([one for one in ids if one not in known], samples)])
    return selected


def select_part(samples: SampleSource, part: Part) -> SampleSource:
    """The samples of `part` in their own order.

    The question and the reference, or the contexts where there is none, decide, and the id where
    there is neither: samples that share texts are in the same part, and a sample is in the same
    part every night, whatever other samples there are.
    """
    kept = [
        UUID(_part_key(row)).int % part.of == part.number - 1
        for table in samples.shards(2_000)
        for row in table.select(_PART_COLUMNS).iter_rows(named=True)
    ]
    chosen = samples.where(pl.Series(kept, dtype=pl.Boolean))
    options = " ".join(filter(None, (samples.selection, f"--part {part}")))
    return replace(chosen, selection=options)


def _part_key(row: dict[str, Any]) -> str:
    shared = row["reference"] or row["retrieved_contexts"]
    if shared:
        return content_key("part", row["user_input"], shared)
    return content_key("part", row[_COLUMN])


def _ids_by_query(sql: str, store: Store) -> list[str]:
    answer = query(store, sql, seconds=_QUERY_SECONDS)
    if _COLUMN not in answer.columns:
        what = f"the query returns {', '.join(answer.columns)}"
        raise InputError([Fault(_OPTION, what, f"return a column {_COLUMN}")])
    return [str(sample_id) for sample_id in answer[_COLUMN].drop_nulls()]


def _ids_in_file(path: Path) -> list[str]:
    if not is_file(path):
        hint = "name a file of sample ids, or write a SELECT"
        raise InputError([Fault(_OPTION, f"there is no file {str(path)!r}", hint)])
    file_format = format_of(path)
    if file_format is None:
        return _lines(path)
    ids: list[str] = []
    faults: list[Fault] = []
    for file, record in read_records([SampleFile(str(path), path, file_format)], faults):
        try:
            ids.append(_sample_id(record.values))
        except RecordError as error:
            faults.append(Fault(file.place(record.number), error.what, error.hint))
    if faults:
        raise InputError(faults)
    return ids


def _lines(path: Path) -> list[str]:
    try:
        # Other separators of Unicode may be in an id.
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        what = f"cannot be read ({error})"
        hint = "write one id a line, as UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
    return [line.strip() for line in lines if line.strip()]


def _sample_id(values: dict[str, Any] | RecordError) -> str:
    if isinstance(values, RecordError):
        raise values
    found = values.get(_COLUMN)
    if isinstance(found, str | int) and not isinstance(found, bool):
        return str(found)
    raise RecordError(f"has no {_COLUMN}", "write one")


def _unknown(ids: list[str], samples: SampleSource) -> Fault:
    shown = ", ".join(repr(sample_id) for sample_id in ids[:_SHOWN])
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    are = "is not a sample" if len(ids) == 1 else f"are not samples ({len(ids):,} of them)"
    return Fault(_OPTION, f"{shown}{more} {are} of {samples.path}", "use ids of those samples")
