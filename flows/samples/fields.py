"""Columns of the input mapped to fields of a sample, and values checked."""

import ast
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from claimflow.flows.errors import Fault, nearest, one_of
from claimflow.flows.pipeline.limits import ID_CHARACTERS, LIST_TEXTS, TEXT_CHARACTERS, too_many
from claimflow.flows.samples.json_files import VALUE_KINDS, replace_lone_surrogates
from claimflow.flows.samples.records import TOO_DEEP, RecordError, json_value, too_many_columns
from claimflow.stages.rows import Sample, canonical

FIELDS: Final = tuple(name for name in Sample.model_fields if name != "metadata")
"""The fields of a sample that a column can fill; every other column becomes metadata."""

METADATA: Final = "metadata"
"""The column whose members, where it holds an object, are metadata like other columns."""

ALIASES: Final[Mapping[str, str]] = {
    "id": "sample_id",
    "question": "user_input",
    "query": "user_input",
    "input": "user_input",
    "answer": "response",
    "actual_output": "response",
    "ground_truth": "reference",
    "ground_truths": "reference",
    "ground_truth_answers": "reference",
    "gt_answer": "reference",
    "expected_output": "reference",
    "contexts": "retrieved_contexts",
    "retrieved_context": "retrieved_contexts",
    "retrieval_context": "retrieved_contexts",
}
"""The names of these fields in ragas, DeepEval, continuous-eval and RAGChecker."""

_PASSAGE_KEYS: Final = ("text", "page_content", "content", "doc")
"""The key of the text in a retrieved context that is an object."""

_CLAIM_FIELDS: Final = ("response_claims", "reference_claims")
_LIST_FIELDS: Final = ("reference", "other_references", "retrieved_contexts", *_CLAIM_FIELDS)
"""The fields that a list of texts can fill."""

_MISSPELT: Final = 0.82
"""Least similarity of a misspelt name: that of `anwser`, but not of `ids` or `response_id`."""

_TOLD_MEMBERS: Final = 20
"""Names that are warned of: strangers may choose them."""

_LIST_HINT: Final = "write a list of texts"
_JSON_LIST_HINT: Final = 'write it as JSON: ["one", "two"]'

_PYTHON_CHARACTERS: Final = 1_000_000
"""Longest list in Python's notation that is read: its syntax tree takes a hundred times as much."""

_PYTHON_START: Final = re.compile(r"\[\s*['\"{]")
_PYTHON_STRINGS: Final = re.compile(r"\[\s*['\"].*['\"]\s*\]\s*", re.DOTALL)
_STRING: Final = r"""
    '(?:[^'\\\n]|\\(?:[\\'"nrtabfv]|x..|u.{4}|U.{8}))*+'
    | "(?:[^"\\\n]|\\(?:[\\'"nrtabfv]|x..|u.{4}|U.{8}))*+"
"""
_PYTHON_STRING: Final = re.compile(_STRING, re.VERBOSE)
# What `repr` writes for lists, dicts, strings, numbers and constants; anything else, such as an
# invalid escape, could make the parser warn.
_PYTHON_VALUES: Final = re.compile(
    rf"(?:{_STRING} | [\s,:\[\]{{}}] | (?:True|False|None|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?!\w))*+",
    re.VERBOSE,
)


def fields_by_column(rename: Mapping[str, str]) -> dict[str, str]:
    """Column name -> field that it fills, for every known name.

    A field that `rename` fills is filled by no other column: a column with its own name or an
    alias of it becomes metadata.
    """
    known = {name: name for name in FIELDS} | dict(ALIASES)
    renamed = set(rename.values())
    return {name: field for name, field in known.items() if field not in renamed} | dict(rename)


def unknown_fields(rename: Mapping[str, str]) -> Iterator[Fault]:
    """A fault for every value of `rename` that is not a field of a sample."""
    for column, field in rename.items():
        if field not in FIELDS:
            what = f"{field!r} is not a field of a sample"
            yield Fault(f"rename.{column}", what, one_of(field, FIELDS))


class FieldColumns:
    """The columns of all records, and which of them fill which field.

    Records of several files may name a field differently: `clashes` has the columns that fill one
    field in the same record, with the first place and the number of such records.
    """

    def __init__(self, by_column: Mapping[str, str]) -> None:
        self.columns: set[str] = set()
        self.clashes: dict[str, tuple[str, set[str], int]] = {}
        self._by_column = by_column
        self._known: tuple[str, ...] = ()
        self._rivals: list[tuple[str, list[str]]] = []

    def add(self, values: Mapping[str, Any], place: Callable[[], str]) -> None:
        """Note the columns of the record at `place`."""
        names = tuple(values)
        if names != self._known:
            # Most records have the columns of the one before.
            self._known = names
            self.columns.update(names)
            filled = self._filled_by(names)
            self._rivals = [(field, found) for field, found in filled.items() if len(found) > 1]
        for field, found in self._rivals:
            given = [name for name in found if values[name] is not None]
            if len(given) > 1:
                first, columns, count = self.clashes.get(field) or (place(), set(), 0)
                self.clashes[field] = first, columns.union(given), count + 1

    def mapping(self) -> dict[str, str]:
        """Field -> the column that fills it, or the columns: `answer or response`."""
        filled = self._filled_by(sorted(self.columns))
        return {field: " or ".join(columns) for field, columns in filled.items()}

    def _filled_by(self, columns: Iterable[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in columns:
            if name in self._by_column:
                found.setdefault(self._by_column[name], []).append(name)
        return found


def mapping_faults(read: FieldColumns, rename: Mapping[str, str]) -> Iterator[Fault]:
    """A fault for each field that two columns fill at once, and each missing renamed column."""
    for field in FIELDS:
        if field in read.clashes:
            place, columns, count = read.clashes[field]
            filling = sorted(columns)
            more = f" (and in {count - 1:,} more)" if count > 1 else ""
            what = f"{' and '.join(map(repr, filling))} fill the same field, {field}{more}"
            hint = f"choose one under rename, such as {{{filling[0]}: {field}}}"
            yield Fault(place, what, hint)
    for column in rename:
        if column not in read.columns:
            hint = one_of(column, read.columns)
            yield Fault(f"rename.{column}", f"no sample has {column!r}", hint)


def left_out_by_rename(column: str, rename: Mapping[str, str]) -> str | None:
    """The field that a column would fill, if `rename` did not have another column fill it."""
    field = fields_by_column({}).get(column)
    return field if field in rename.values() and column not in rename else None


def misspelt_fields(
    columns: Collection[str], rename: Mapping[str, str], missing: Collection[str]
) -> dict[str, str]:
    """Field -> column whose name is probably a misspelling of it, for the fields in `missing`.

    A column that only contains the name of a field, such as `response_id`, is no misspelling.
    """
    by_column = fields_by_column(rename)
    names = [name for name, field in by_column.items() if field in missing]
    found: dict[str, str] = {}
    for column in sorted(set(columns) - by_column.keys()):
        name = misspelt_name(column, names)
        if name:
            found.setdefault(by_column[name], column)
    return found


def misspelt_name(column: str, names: Collection[str]) -> str | None:
    """The one of `names` that `column` is probably a misspelling of, None where there is none."""
    name = nearest(column, names, cutoff=_MISSPELT)
    if name and (column.casefold() == name or f"_{name}_" not in f"_{column.casefold()}_"):
        return name
    return None


class NestedMetadata:
    """Moves the members of an object in the column `metadata` to columns of their own.

    The object may be JSON in a text, as in a cell of CSV. A member stays where it is if the record
    has a column of its name, which counts, and if its name is that of a field or in `kept`: what
    describes a sample does not become its id or its answer. `rename` takes such a member out
    nevertheless.
    """

    def __init__(
        self, by_column: Mapping[str, str], rename: Collection[str], kept: Collection[str]
    ) -> None:
        self._by_column = by_column
        self._renamed = frozenset(rename)
        self._kept = frozenset({*by_column, *kept, METADATA}) - self._renamed
        # Member -> what is told of it, the first place, and the number of records.
        self._ignored: dict[str, tuple[str, str, str, int]] = {}

    def moved(self, values: Mapping[str, Any], place: Callable[[], str]) -> Mapping[str, Any]:
        """The columns of the record at `place`. Raises `RecordError` where they are too many."""
        nested = {} if METADATA in self._by_column else _object_in(values.get(METADATA))
        if error := too_many_columns(len(values) - bool(nested) + len(nested)):
            raise error
        if not nested:
            return values
        columns = {name: value for name, value in values.items() if name != METADATA}
        filled = {
            self._by_column[name]
            for name, value in columns.items()
            if value is not None and name in self._by_column
        }
        stays: dict[str, Any] = {}
        for name, value in nested.items():
            own = columns.get(name)
            if name in self._kept or (own is not None and _differ(own, value)):
                stays[name] = value
                if value is not None:
                    self._note(name, columns, filled, place())
            elif own is None:
                columns[name] = value
        if stays:
            columns[METADATA] = stays
        return columns

    def warnings(self) -> Iterator[Fault]:
        """A warning for each member that does not count, with the first record that has it."""
        for what, hint, place, count in self._ignored.values():
            more = f" (and {count - 1:,} more)" if count > 1 else ""
            yield Fault(place, f"{what}{more}", hint)

    def _note(
        self, name: str, columns: Mapping[str, Any], filled: Collection[str], place: str
    ) -> None:
        field = self._by_column.get(name)
        if name not in self._ignored and len(self._ignored) >= _TOLD_MEMBERS:
            return
        if field is not None and field not in filled:
            what = f"the metadata has {name!r}, which is not taken as {field!r}"
            hint = f"write rename: {{{name}: {field}}}, or a column {name!r}"
        elif field is None and columns.get(name) is not None:
            what = f"the sample and its metadata have another {name!r}; that of the sample counts"
            hint = "keep one of them"
        else:
            return
        *_, first, count = self._ignored.get(name, (what, hint, place, 0))
        self._ignored[name] = what, hint, first, count + 1


def _object_in(value: Any) -> dict[str, Any]:
    """The members of an object, or of the JSON object in a text; empty for other values.

    Numbers that JSON cannot hold are None.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            value = json.loads(
                replace_lone_surrogates(value),
                parse_constant=lambda _: None,
                parse_float=lambda digits: found if math.isfinite(found := float(digits)) else None,
            )
    return value if isinstance(value, dict) else {}


def _differ(one: Any, other: Any) -> bool:
    """Whether two values of JSON differ; True for those too deep to be compared."""
    try:
        return bool(one != other)
    except RecursionError:
        return True


def sample_fields(
    values: Mapping[str, Any],
    by_column: Mapping[str, str],
    *,
    cells: bool,
    contexts_separator: str | None = None,
) -> tuple[dict[str, Any], list[RecordError]]:
    """(fields of the sample, errors) of one record.

    `by_column` maps columns to the fields they fill; the other columns become metadata. With
    `cells` a list may be written as a text. A text of contexts is split at `contexts_separator`;
    blank parts are left out. Values are taken as they are: nothing is trimmed, and a number is not
    accepted as text.
    """
    fields: dict[str, Any] = dict.fromkeys(Sample.model_fields) | {"other_references": []}
    metadata: dict[str, Any] = {}
    errors: list[RecordError] = []
    for column, value in values.items():
        field = by_column.get(column)
        if field is None:
            metadata[column] = value
            continue
        if value is None:
            # Another column may fill it.
            continue
        try:
            found = _parse_list_cell(value) if cells and field in _LIST_FIELDS else value
            if field == "retrieved_contexts":
                found = split_contexts(found, contexts_separator)
            rest = _fill(fields, field, found)
        except RecordError as error:
            errors.append(RecordError(f"{column!r} {error.what}", error.hint))
        else:
            metadata |= {column: rest} if rest else {}
    try:
        fields["metadata"] = canonical(metadata).decode() if metadata else "{}"
    except RecursionError:
        errors.append(TOO_DEEP)
    except ValueError:
        errors.append(RecordError("a number is NaN or beyond 64-bit floats", "write null or text"))
    return fields, errors


def _fill(fields: dict[str, Any], field: str, value: Any) -> Any:
    """Set `field` to `value`; returns the part of the value that belongs to the metadata."""
    match field:
        case "sample_id":
            fields[field] = checked_id(value)
        case "reference":
            texts = checked_texts(value)
            fields[field] = texts[0] if texts else None
            fields["other_references"][:0] = texts[1:]
        case "other_references":
            fields[field] += checked_texts(value)
        case "retrieved_contexts":
            passages, rest = checked_passages(value)
            fields[field] = passages
            return rest
        case "response_claims" | "reference_claims":
            fields[field] = None if value is None else _claims(value)
        case _:
            fields[field] = None if value is None else checked_text(value)
    return None


def split_contexts(value: Any, separator: str | None) -> Any:
    """A text of contexts split at `separator` without blank parts; other values as they are."""
    if not separator or not isinstance(value, str):
        return value
    return [part for part in value.split(separator) if part.strip()]


def checked_text(value: Any) -> str:
    """`value`, which must be a text within the limits; raises `RecordError`."""
    if not isinstance(value, str):
        raise RecordError(f"is {VALUE_KINDS[type(value)]}", "write it as text")
    _check_size([value])
    return value


def _check_size(texts: list[str], most: int = TEXT_CHARACTERS) -> None:
    """Raise `RecordError` for too many texts, and for a text that is too long."""
    if len(texts) > LIST_TEXTS:
        what = f"holds {too_many(len(texts), LIST_TEXTS, 'texts')}"
        raise RecordError(what, "keep those that matter")
    longest = max(map(len, texts), default=0)
    if longest > most:
        what = f"has {too_many(longest, most, 'characters')}"
        raise RecordError(what, "divide it, or write less")


def checked_texts(value: Any) -> list[str]:
    """A text or a list of texts, as a list; None is the empty list."""
    texts, objects = checked_passages(value)
    if objects:
        raise RecordError("holds objects", _LIST_HINT)
    return texts or []


def _claims(value: Any) -> list[str]:
    """A list of texts that are not blank; a single text is refused, it could be many claims.

    A claim that is a list of texts, as RAGChecker writes subject, relation and object, is those
    texts with spaces between them.
    """
    if not isinstance(value, list):
        raise RecordError(f"is {VALUE_KINDS[type(value)]}", _LIST_HINT)
    claims: list[str] = []
    for place, member in enumerate(value, start=1):
        claim = " ".join(member) if member and _is_texts(member) else member
        if not isinstance(claim, str):
            raise RecordError(f"holds {VALUE_KINDS[type(claim)]} in place {place}", _LIST_HINT)
        if not claim.strip():
            raise RecordError(f"holds a blank claim in place {place}", "leave it out")
        claims.append(claim)
    _check_size(claims)
    return claims


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(member, str) for member in value)


def checked_passages(value: Any) -> tuple[list[str] | None, list[Any]]:
    """(texts, the other keys of contexts that are objects) of retrieved contexts."""
    texts, rest = _unbounded_passages(value)
    _check_size(texts or [])
    return texts, rest


def _unbounded_passages(value: Any) -> tuple[list[str] | None, list[Any]]:
    match value:
        case None:
            return None, []
        case str():
            return [value], []
        case list() if _is_texts(value):
            return value, []
        case list():
            pairs = [_passage(member, n) for n, member in enumerate(value, start=1)]
            rests = [rest for _, rest in pairs]
            return [text for text, _ in pairs], rests if any(rests) else []
        case _:
            raise RecordError(f"is {VALUE_KINDS[type(value)]}", _LIST_HINT)


def _passage(member: Any, place: int) -> tuple[str, dict[str, Any]]:
    if isinstance(member, str):
        return member, {}
    if isinstance(member, dict):
        for name in _PASSAGE_KEYS:
            if isinstance(member.get(name), str):
                return member[name], {key: member[key] for key in member if key != name}
    what = f"holds {VALUE_KINDS[type(member)]} in place {place}"
    names = ", ".join(_PASSAGE_KEYS)
    if isinstance(member, dict):
        raise RecordError(f"{what} without a text in it", f"name its text one of {names}")
    raise RecordError(what, _LIST_HINT)


def checked_id(value: Any) -> str | None:
    """The text of an id, which may be a number; raises `RecordError`."""
    if value is None:
        return None
    if isinstance(value, bool | list | dict):
        raise RecordError(f"is {VALUE_KINDS[type(value)]}", "write a text or a number")
    if isinstance(value, str) and not value.strip():
        raise RecordError("is empty", "write an id, or leave it out to have one made")
    try:
        found = str(value)
    except ValueError:
        # Python does not write an integer of thousands of digits.
        what = f"has more than {ID_CHARACTERS:,} digits"
        raise RecordError(what, "divide it, or write less") from None
    _check_size([found], ID_CHARACTERS)
    return found


def _parse_list_cell(cell: Any) -> Any:
    """The list that a cell holds in JSON or in the notation of Python, or else the cell itself.

    Raises `RecordError` for what looks like a list in Python's notation but cannot be read, since
    it would count as one long text.
    """
    if not isinstance(cell, str) or not (cell.startswith("[") and cell.rstrip().endswith("]")):
        return cell
    try:
        found = json.loads(replace_lone_surrogates(cell))
    except (ValueError, RecursionError):
        found = python_list(cell)
    is_list = found is not None and all(isinstance(member, str | dict) for member in found)
    return found if is_list else cell


def python_list(cell: str) -> list[Any] | None:
    """The list that `repr` wrote, or None for another text; raises as `_parse_list_cell` does."""
    if _PYTHON_START.match(cell) is None:
        return None
    strings = [match.span() for match in _PYTHON_STRING.finditer(cell)]
    # Python would join two strings with nothing but blanks between them, as NumPy prints arrays.
    apart = all(cell[end:start].strip() for (_, end), (start, _) in pairwise(strings))
    if apart and len(cell) <= _PYTHON_CHARACTERS and _PYTHON_VALUES.fullmatch(cell):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, RecordError):
            return list(json_value(ast.literal_eval(cell)))
    if _PYTHON_STRINGS.fullmatch(cell):
        raise RecordError("looks like a list as Python prints it", _JSON_LIST_HINT)
    return None
