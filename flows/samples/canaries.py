"""Canaries from files: pairs of premise and claim with a label."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, cast, get_args

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.samples.files import SampleFile, find_files, unreadable
from claimflow.flows.samples.records import Record, RecordError
from claimflow.stages.rows import Label, content_key

_LABELS: Final = get_args(Label)
_FIELDS: Final = ("premise", "claim", "label")


class Canary(NamedTuple):
    """A pair whose verdict is known: `label`. `key` is that of the two texts."""

    key: str
    premise: str
    claim: str
    label: Label


def read_canaries(path: str, *, base: Path) -> tuple[Canary, ...]:
    """The canaries that `path`, a file below `base`, an object or a glob, names.

    Other columns than premise, claim and label are left alone. Raises one `InputError` with
    every fault.
    """
    with TemporaryDirectory(prefix="claimflow-") as folder:
        files, faults = find_files(path, base, Path(folder))
        found: dict[str, Canary] = {}
        places: dict[str, str] = {}
        for file, record in _records(files, faults):
            place = file.place(record.number)
            canary = _canary(record, place, faults)
            if canary is None:
                continue
            if canary.key in places:
                what = f"the same pair stands already at {places[canary.key]}"
                faults.append(Fault(place, what, "delete one of them"))
            places.setdefault(canary.key, place)
            found.setdefault(canary.key, canary)
    if faults:
        raise InputError(faults)
    return tuple(found.values())


def _records(
    files: Sequence[SampleFile], faults: list[Fault]
) -> Iterator[tuple[SampleFile, Record]]:
    for file in files:
        record = None
        try:
            for record in file.format.read(file.path):
                yield file, record
        except (pl.exceptions.PolarsError, duckdb.Error, OSError, UnicodeError) as error:
            faults.append(unreadable(file, error))
        else:
            if record is None:
                faults.append(Fault(file.name, "no canaries", "write at least one"))


def _canary(record: Record, place: str, faults: list[Fault]) -> Canary | None:
    if isinstance(record.values, RecordError):
        faults.append(Fault(place, record.values.what, record.values.hint))
        return None
    wrong = [Fault(place, *_wrong(name, record.values.get(name))) for name in _FIELDS]
    faults += [fault for fault in wrong if fault.what]
    if any(fault.what for fault in wrong):
        return None
    premise, claim, label = (record.values[name] for name in _FIELDS)
    key = content_key("canary", premise, claim)
    return Canary(key, premise, claim, cast(Label, label.strip()))


def _wrong(name: str, given: Any) -> tuple[str, str]:
    """(what is wrong with a field of a canary, what would be right); blank where nothing is."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return f"lacks {name!r}", "a canary has premise, claim and label"
    if not isinstance(given, str):
        return f"{name} is no text: {given!r}", "write a text"
    if name == "label" and given.strip() not in _LABELS:
        return f"the label {given!r} is none", one_of(given.strip(), _LABELS)
    return "", ""
