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

_TEXTS: Final = [
    *(
        # The hash of null is a number.
        pl.when(pl.col(name) != "").then(pl.col(name).hash()).alias(name)
        for name in ("response", "reference")
    ),
    # A list of one context is not the same as that text.
    pl.when(pl.col("retrieved_contexts").list.len() > 0).then(
        pl.col("retrieved_contexts").list.join("\0").hash(1)
    ),
]
"""Hashes of the texts of a sample that models are asked about."""

_MOST: Final = 100
"""A text of more samples, such as "Yes.", does not keep them together: asking about it once on each
machine costs little."""


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


def select_part(samples: SampleSource, part: Part) -> tuple[SampleSource, int]:
    """The samples of `part` in their own order, and the size of the largest group of all samples.

    Samples with the same response, reference or contexts are a group, which is in one part: what is
    asked about such a text is asked by one machine, unless more than 100 have it. Otherwise ids
    decide, so that a sample is in the same part every night, whatever other samples there are.
    """
    drawn, texts = list[int](), list[pl.DataFrame]()
    for table in samples.shards(2_000):
        drawn += (UUID(content_key("part", one)).int for one in table[_COLUMN])
        texts.append(table.select(_TEXTS))
    groups = _groups(pl.concat(texts) if texts else pl.DataFrame(), samples.count)
    of_group: dict[int, int] = {}
    for group, number in zip(groups, drawn, strict=True):
        of_group[group] = min(number, of_group.get(group, number))
    chosen = [of_group[group] % part.of == part.number - 1 for group in groups]
    kept = samples.where(pl.Series(chosen, dtype=pl.Boolean))
    options = " ".join(filter(None, (samples.selection, f"--part {part}")))
    sizes = pl.Series(groups, dtype=pl.Int64).value_counts()["count"]
    return replace(kept, selection=options), int(sizes.max() or 0)  # type: ignore[arg-type]


def _groups(texts: pl.DataFrame, count: int) -> list[int]:
    """For each of `count` samples the first one of its group: with a hash in common, or linked."""
    root = list(range(count))

    def root_of(place: int) -> int:
        while root[place] != place:
            root[place] = place = root[root[place]]
        return place

    if count:
        long = texts.with_row_index("place").unpivot(index="place", value_name="text").drop_nulls()
        shared = long.filter(pl.len().over("text").is_between(2, _MOST)).sort("text", "place")
        for _, places in shared.group_by("text", maintain_order=True).agg("place").iter_rows():
            first = root_of(places[0])
            for place in places[1:]:
                other = root_of(place)
                first, later = min(first, other), max(first, other)
                root[later] = first
    return [root_of(place) for place in range(count)]


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
