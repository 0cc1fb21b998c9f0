"""An SQL condition over the fields and the metadata of samples, such as `model = 'x'`."""

import json
import re
import threading
import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.store.arrow import Arrow
from claimflow.stages.rows import Sample

_SECONDS: Final = 60.0
"""How long a condition may take for all samples."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": "512MB",
    "enable_external_access": False,
    "temp_directory": "",
}
"""No files, no network, little memory."""

_INCOMING: Final = "incoming"
_PREFIX: Final = "SELECT "
_FIELDS: Final = tuple(Sample.model_fields)
_ENDLESS: Final = {
    "damerau_levenshtein": "takes memory for the product of both lengths: use levenshtein",
    **dict.fromkeys(
        (
            *("repeat", "lpad", "rpad", "format", "printf", "bitstring"),
            *("range", "generate_series", "list_resize", "array_resize"),
        ),
        "can make a value of any length: compare the field itself",
    ),
}
"""Functions whose memory DuckDB does not limit."""

_VOLATILE: Final = frozenset({"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval"})
_REFUSED: Final = {
    "SUBQUERY": "holds a query",
    "PARAMETER": "holds a parameter",
    "STAR": "names all columns",
    "WINDOW": "looks at other samples",
}
_UNKNOWN: Final = re.compile(r'Referenced (?:column|table) "(.+?)"')
_SHOWN: Final = 300
_SEVERAL: Final = "is more than one SQL condition"
_HINT: Final = "write a condition such as model = 'x' AND latency_ms > 1000"


class Condition:
    """A condition of DuckDB that is true or not for a sample, whatever the other samples are.

    Fields of the metadata are numbers where all their values are, else texts; a field of a sample
    comes before one of the metadata with its name. `metadata` is a JSON object. It is compiled for
    the fields that some samples have; use it in a `with`, which ends its database.
    """

    def __init__(self, text: str, place: str, metadata: Collection[str]) -> None:
        """Compile `text`, which stands at `place`; raises `InputError`."""
        self._text, self._place = text, place
        self._left = _SECONDS
        self._database = duckdb.connect(config=_CONFIG)
        try:
            self._database.execute("SET errors_as_json = true")
            self._database.execute("SET lock_configuration = true")
            self._names = self._checked_names()
            self._known = {*_FIELDS, *metadata}
            # A column of our own, which no condition can name.
            self._row = "_row"
            while self._row in {name.casefold() for name in (*self._names, *metadata)}:
                self._row += "_"
            self._columns = self._resolved(metadata)
        except BaseException:
            self._database.close()
            raise
        self._types: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    @property
    def needs_types(self) -> bool:
        """Whether it must `learn` from all samples before it can be asked."""
        return any(field is not None for field in self._columns.values())

    def learn(self, samples: pl.DataFrame) -> None:
        """Look at the values of metadata in a part of the samples, to know their types."""
        for column, field in self._columns.items():
            if field is None:
                continue
            path = _quoted(_path(field), "'")
            query = f"SELECT DISTINCT json_type(metadata, {path}) AS kind FROM {_INCOMING}"
            kinds = self._answer(samples.select("metadata"), query)
            for kind in kinds["kind"].drop_nulls():
                before = self._types.get(column, kind)
                self._types[column] = _joined(before, kind)

    def holds(self, samples: pl.DataFrame) -> pl.Series:
        """For each sample in a part whether the condition is true. Raises `InputError`."""
        columns = [self._column(name, field) for name, field in self._columns.items()]
        asked = f"SELECT {', '.join([self._row, *columns])} FROM {_INCOMING}"
        query = f"SELECT {self._row} FROM ({asked}) WHERE (\n{self._text}\n)"
        incoming = samples.with_row_index(self._row)
        timer = threading.Timer(max(self._left, 0.01), self._database.interrupt)
        began = time.monotonic()
        timer.start()
        try:
            found = self._answer(incoming, query)
        except (duckdb.Error, pl.exceptions.ComputeError, MemoryError) as error:
            raise InputError([self._fault(error)]) from None
        finally:
            timer.cancel()
            self._left -= time.monotonic() - began
        return pl.int_range(samples.height, eager=True).is_in(found[self._row].implode())

    def _answer(self, frame: pl.DataFrame, query: str) -> pl.DataFrame:
        # Without access to files DuckDB finds no variable of Python by its name either.
        self._database.register(_INCOMING, Arrow(frame))
        try:
            return pl.DataFrame(Arrow(self._database.sql(query)))
        finally:
            self._database.unregister(_INCOMING)

    def _checked_names(self) -> dict[str, int]:
        """The columns that the text names, if it is one expression; with their positions."""
        ((answer,),) = self._database.execute(
            "SELECT json_serialize_sql($text)", {"text": f"{_PREFIX}{self._text}\n"}
        ).fetchall()
        try:
            parsed = json.loads(answer)
        except RecursionError:
            raise InputError([Fault(self._place, "is nested too deeply", _HINT)]) from None
        if parsed["error"] and parsed["error_type"] != "parser":
            # Statements other than SELECT.
            raise InputError([Fault(self._place, _SEVERAL, _HINT)])
        if parsed["error"]:
            position = int(parsed.get("position") or len(_PREFIX))
            raise InputError([self._at(parsed["error_message"], position)])
        [*statements] = parsed["statements"]
        node = statements[0]["node"] if len(statements) == 1 else {}
        plain = (
            node.get("type") == "SELECT_NODE"
            and len(node["select_list"]) == 1
            and not node["select_list"][0]["alias"]
            and node["from_table"]["type"] == "EMPTY"
            and not any(
                (
                    node["modifiers"],
                    node["cte_map"]["map"],
                    node["where_clause"],
                    node["group_expressions"],
                    node["having"],
                    node["qualify"],
                    node["sample"],
                )
            )
        )
        if not plain:
            raise InputError([Fault(self._place, _SEVERAL, _HINT)])
        names: dict[str, int] = {}
        for part in _parts(node["select_list"][0]):
            what = _REFUSED.get(part.get("class", ""))
            function = part["function_name"] if part.get("class") == "FUNCTION" else None
            if function in _VOLATILE:
                what = f"{function}() chooses others in each run: use share"
            if function in _ENDLESS:
                what = f"{function}() {_ENDLESS[function]}"
            if what:
                raise InputError([self._at(what, int(part["query_location"]))])
            if part.get("class") == "COLUMN_REF":
                names.setdefault(part["column_names"][0], int(part["query_location"]))
        return names

    def _resolved(self, metadata: Collection[str]) -> dict[str, str | None]:
        """Column as written -> field of the metadata, or None for a field of a sample.

        Names that are neither may be parameters of a lambda; else DuckDB refuses them.
        """
        columns: dict[str, str | None] = {}
        seen: set[str] = set()
        for name in self._names:
            folded = name.casefold()
            if folded in seen:
                continue
            same = [field for field in sorted(metadata) if field.casefold() == folded]
            if folded in _FIELDS:
                columns[folded] = None
            elif name in same or len(same) == 1:
                columns[name] = name if name in same else same[0]
            else:
                continue
            seen.add(folded)
        return columns

    def _column(self, name: str, field: str | None) -> str:
        """SQL for a column of the samples in which the condition is asked."""
        if field is None:
            return "metadata::JSON AS metadata" if name == "metadata" else f'"{name}"'
        path = _quoted(_path(field), "'")
        value = f"json_extract_string(metadata, {path})"
        kind = self._types.get(name, "VARCHAR")
        # A number beyond the type is NULL, not an error of the whole night.
        cast = value if kind in ("VARCHAR", "NULL") else f"TRY_CAST({value} AS {kind})"
        quoted = _quoted(name, '"')
        return f"{cast} AS {quoted}"

    def _fault(self, error: BaseException) -> Fault:
        if isinstance(error, duckdb.InterruptException):
            return Fault(self._place, f"takes more than {_SECONDS:g} s", "write a simpler one")
        try:
            # DuckDB writes `Binder Error: {...}`, or no JSON where it is another one's error.
            told = json.loads(str(error)[str(error).index("{") :])["exception_message"]
        except (ValueError, KeyError):
            told = str(error)
        message = (told.splitlines() or [type(error).__name__])[0]
        named = _UNKNOWN.search(message)
        if named is None or named[1] not in self._names:
            return Fault(self._place, message[:_SHOWN], _HINT)
        name = named[1]
        hint = one_of(name, self._known)
        return self._at(f"no sample has {name!r}", self._names[name], hint)

    def _at(self, what: str, position: int, hint: str = _HINT) -> Fault:
        """A fault at a position in the text behind `_PREFIX`."""
        column = max(position - len(_PREFIX), 0) + 1
        return Fault(f"{self._place}, column {column}", what[:_SHOWN], hint)


def _parts(node: Any) -> Iterator[dict[str, Any]]:
    """The objects in a parsed expression, from the outer ones to the inner ones."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _path(field: str) -> str:
    """The path of a member of a JSON object, as a pointer, in which all names can be written."""
    return "/" + field.replace("~", "~0").replace("/", "~1")


def _quoted(text: str, sign: str) -> str:
    return sign + text.replace(sign, sign * 2) + sign


_KINDS: Final = {
    "UBIGINT": "BIGINT",
    "BIGINT": "BIGINT",
    "HUGEINT": "DOUBLE",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
}


def _joined(one: str, other: str) -> str:
    """The SQL type for values of two types of JSON; `one` may be an SQL type already."""
    kinds = {_KINDS.get(kind, "VARCHAR") for kind in (one, other) if kind != "NULL"}
    if not kinds:
        return "NULL"
    if kinds <= {"BIGINT", "DOUBLE"}:
        return "DOUBLE" if "DOUBLE" in kinds else "BIGINT"
    return kinds.pop() if len(kinds) == 1 else "VARCHAR"
