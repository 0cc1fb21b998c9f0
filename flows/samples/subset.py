"""A part of the samples, chosen by a file of ids or a query."""

from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import is_file
from claimflow.flows.samples.files import FORMATS, SampleFile, unreadable
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.samples.records import RecordError
from claimflow.flows.store.query import query
from claimflow.flows.store.store import Store

_OPTION: Final = "--samples"
_COLUMN: Final = "sample_id"
_SECONDS: Final = 60.0
_TOLD: Final = 5
_SQL: Final = ("select", "with", "from")


def select_samples(samples: SampleSource, words: str, store: Store) -> SampleSource:
    """Those of `samples` that `words` name, in their own order.

    `words` are the path of a file, which holds one id a line or, where its name ends as
    that of a samples file, a column sample_id, or else a SELECT on `store` that answers one.
    Raises `InputError` for ids that no sample has, and where there is none.
    """
    path = Path(words)
    first, *more = words.split() or [""]
    # A query may be too long for a file's name.
    is_query = bool(more) and first.lower() in _SQL and not is_file(path)
    wanted = dict.fromkeys(_queried(words, store) if is_query else _listed(path))
    if not wanted:
        raise InputError([Fault(_OPTION, "names no sample", "name one at least")])
    chosen = samples.only(wanted)
    if chosen.count < len(wanted):
        known = {name for table in chosen.shards(2_000) for name in table[_COLUMN]}
        raise InputError([_unknown([name for name in wanted if name not in known], samples)])
    return chosen


def _queried(sql: str, store: Store) -> list[str]:
    answer = query(store, sql, seconds=_SECONDS)
    if _COLUMN not in answer.columns:
        what = f"the query answers {', '.join(answer.columns)}"
        raise InputError([Fault(_OPTION, what, f"let it answer a column {_COLUMN}")])
    return [str(name) for name in answer[_COLUMN].drop_nulls()]


def _listed(path: Path) -> list[str]:
    if not is_file(path):
        hint = "name a file of sample ids, or write a SELECT"
        raise InputError([Fault(_OPTION, f"there is no file {str(path)!r}", hint)])
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        return _lines(path)
    file = SampleFile(str(path), path, form)
    try:
        found = [(file.place(number), _id(values)) for number, values in form.read(path)]
    except (pl.exceptions.PolarsError, duckdb.Error, OSError, UnicodeError) as error:
        raise InputError([unreadable(file, error)]) from error
    wrong = [(place, one) for place, one in found if isinstance(one, RecordError)]
    if wrong:
        raise InputError([Fault(place, error.what, error.hint) for place, error in wrong])
    return [one for _, one in found if isinstance(one, str)]


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeError) as error:
        what = f"cannot be read ({error})"
        hint = "write one id a line, as UTF-8"
        raise InputError([Fault(str(path), what, hint)]) from error
    return [line.strip() for line in lines if line.strip()]


def _id(values: dict[str, Any] | RecordError) -> str | RecordError:
    if isinstance(values, RecordError):
        return values
    found = values.get(_COLUMN)
    if isinstance(found, str | int) and not isinstance(found, bool):
        return str(found)
    return RecordError(f"has no {_COLUMN}", "write one")


def _unknown(names: list[str], samples: SampleSource) -> Fault:
    told = ", ".join(repr(name) for name in names[:_TOLD])
    more = f" and {len(names) - _TOLD:,} more" if len(names) > _TOLD else ""
    are = "is no sample" if len(names) == 1 else f"are no samples ({len(names):,} of them)"
    return Fault(_OPTION, f"{told}{more} {are} of {samples.path}", "name ids that it has")
