"""Canaries from files: pairs of premise and claim with the right label."""

from pathlib import Path
from typing import Any, Final, NamedTuple, cast, get_args

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.samples.files import find_files
from claimflow.flows.samples.formats import read_records
from claimflow.flows.samples.records import RecordError
from claimflow.flows.samples.temporary import copies_folder
from claimflow.stages.rows import Label, content_key

_LABELS: Final = get_args(Label)
_FIELDS: Final = ("premise", "claim", "label")


class Canary(NamedTuple):
    """A pair whose right verdict is known to be `label`; `key` is the key of its two texts."""

    key: str
    premise: str
    claim: str
    label: Label


def read_canaries(path: str, *, base: Path) -> tuple[Canary, ...]:
    """The canaries in `path`: a path or glob below the folder `base`, or one on S3.

    Columns other than premise, claim and label are ignored. Raises one `InputError` with every
    fault.
    """
    with copies_folder() as folder:
        files, faults = find_files(path, base, folder)
        canaries: dict[str, Canary] = {}
        places: dict[str, str] = {}
        for file, record in read_records(files, faults, required="canaries"):
            place = file.place(record.number)
            canary = _canary(record.values, place, faults)
            if canary is None:
                continue
            if canary.key in places:
                what = f"the same pair is already at {places[canary.key]}"
                faults.append(Fault(place, what, "delete one of them"))
            places.setdefault(canary.key, place)
            canaries.setdefault(canary.key, canary)
    if faults:
        raise InputError(faults)
    return tuple(canaries.values())


def _canary(values: dict[str, Any] | RecordError, place: str, faults: list[Fault]) -> Canary | None:
    """The canary of a record, or None where faults were added."""
    if isinstance(values, RecordError):
        faults.append(Fault(place, values.what, values.hint))
        return None
    wrong = [fault for name in _FIELDS if (fault := _fault(place, name, values.get(name)))]
    if wrong:
        faults += wrong
        return None
    premise, claim, label = (values[name] for name in _FIELDS)
    key = content_key("canary", premise, claim)
    return Canary(key, premise, claim, cast(Label, label.strip()))


def _fault(place: str, name: str, value: Any) -> Fault | None:
    """What is wrong with the field `name` of a canary, if anything is."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return Fault(place, f"lacks {name!r}", "a canary has premise, claim and label")
    if not isinstance(value, str):
        return Fault(place, f"{name} is not text: {value!r}", "write a text")
    if name == "label" and value.strip() not in _LABELS:
        return Fault(place, f"{value!r} is not a label", one_of(value.strip(), _LABELS))
    return None
