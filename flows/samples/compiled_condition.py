"""The process that asks a `Condition`: its SQL checked, compiled and executed.

This module starts in a fifth of a second, so it imports no Polars and no models of rows.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import duckdb

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.store.limited_process import end_with_parent, limit_process, limit_time, served

SIMPLER: Final = "write a simpler one"

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": "512MB",
    "enable_external_access": False,
    "temp_directory": "",
}
"""No files, no network, little memory."""

_PROCESS_BYTES: Final = 2**30
"""The memory of the process: DuckDB counts not all that its functions take."""

_INCOMING: Final = "incoming"
_PREFIX: Final = "SELECT "
_VOLATILE: Final = frozenset({"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval"})
_REFUSED: Final = {
    "SUBQUERY": "holds a query",
    "PARAMETER": "holds a parameter",
    "STAR": "names all columns",
    "WINDOW": "looks at other samples",
}
_NO_MEMORY: Final = "needs too much memory"
_UNKNOWN: Final = re.compile(r'Referenced (?:column|table) "(.+?)"')
_SHOWN: Final = 300
_SEVERAL: Final = "is more than one SQL condition"
_HINT: Final = "write a condition such as model = 'x' AND latency_ms > 1000"


def answer() -> None:
    """Compile and ask one `Condition`, until it ends this process or something is wrong."""
    connection = served()
    end_with_parent()
    limit_process(_PROCESS_BYTES)
    text, place, fields, metadata, left = connection.recv()
    try:
        limit_time(left)
        compiled = _Compiled(text, place, fields, metadata)
        found: Any = compiled.columns, compiled.needs_types
        while True:
            # The time between two questions is not its own. 0 would be no limit.
            left = max(limit_time(0), 0.01)
            connection.send(found)
            what, columns = connection.recv()
            limit_time(left)
            found = None
            if what == "learn":
                compiled.learn(columns)
            else:
                found = compiled.holds(columns)
    except InputError as error:
        connection.send(error)
    except MemoryError:
        connection.send(InputError([Fault(place, _NO_MEMORY, SIMPLER)]))
    except (EOFError, OSError):
        pass  # The process that asks is gone.
    # At once, since nothing needs to be closed in order.
    os._exit(0)


class _Compiled:
    """A condition with a database of its own, in the process that asks it."""

    def __init__(
        self, text: str, place: str, fields: Mapping[str, str], metadata: Collection[str]
    ) -> None:
        """Compile `text`, where `fields` are those of a sample and their types in SQL.

        Raises `InputError`.
        """
        self._text, self._place = text, place
        self._fields = fields
        self._database = duckdb.connect(config=_CONFIG)
        self._database.execute("SET errors_as_json = true")
        self._database.execute("SET lock_configuration = true")
        self._names = self._checked_names()
        self._known = {*fields, *metadata}
        # A column of our own, which no condition can name.
        self._row = "_row"
        while self._row in {name.casefold() for name in (*self._names, *metadata)}:
            self._row += "_"
        self._columns = self._resolved(metadata)
        self._types: dict[str, str] = {}

    @property
    def needs_types(self) -> bool:
        """Whether it must `learn` from all samples before it can be asked."""
        return any(field is not None for field in self._columns.values())

    @property
    def columns(self) -> list[str]:
        """The columns of the samples that it reads; one where it reads none, for their number."""
        named = (name if field is None else "metadata" for name, field in self._columns.items())
        return list(dict.fromkeys(named)) or ["sample_id"]

    def learn(self, columns: Mapping[str, list[Any]]) -> None:
        """As `Condition.learn`, of the values of each column."""
        for column, field in self._columns.items():
            if field is None:
                continue
            path = _quoted(_path(field), "'")
            kind = f"json_type(metadata, {path})"
            # DuckDB calls every whole number from 0 to 2^64 - 1 so.
            narrow = f"try_cast(json_extract_string(metadata, {path}) AS BIGINT) IS NOT NULL"
            wide = f"CASE WHEN {kind} <> 'UBIGINT' OR {narrow} THEN {kind} ELSE 'HUGEINT' END"
            query = f"SELECT DISTINCT {wide} FROM {_INCOMING}"
            for (found,) in self._answer(query, columns):
                before = self._types.get(column, found or "NULL")
                self._types[column] = _joined(before, found or "NULL")

    def holds(self, columns: Mapping[str, list[Any]]) -> set[int]:
        """The places of the samples for which it is true. Raises `InputError`."""
        own = [self._column(name, field) for name, field in self._columns.items()]
        asked = f"SELECT {', '.join([self._row, *own])} FROM {_INCOMING}"
        query = f"SELECT {self._row} FROM ({asked}) WHERE (\n{self._text}\n)"
        try:
            return {row for (row,) in self._answer(query, columns)}
        except duckdb.Error as error:
            raise InputError([self._fault(error)]) from None

    def _answer(self, query: str, columns: Mapping[str, list[Any]]) -> list[tuple[Any, ...]]:
        """The rows of a query on the samples with these values, which it calls `_INCOMING`."""
        rows = range(len(next(iter(columns.values()))))
        values = {f"c{place}": column for place, column in enumerate(columns.values())}
        incoming = [f"unnest($rows::BIGINT[]) AS {self._row}"]
        incoming += [
            f"unnest(${value}::{self._fields[name]}[]) AS {name}"
            for value, name in zip(values, columns, strict=True)
        ]
        query = f"WITH {_INCOMING} AS (SELECT {', '.join(incoming)}) {query}"
        return self._database.execute(query, {"rows": list(rows), **values}).fetchall()

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
            if folded in self._fields:
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
        if isinstance(error, duckdb.OutOfMemoryException):
            return Fault(self._place, _NO_MEMORY, SIMPLER)
        try:
            # DuckDB writes `Binder Error: {...}`, or no JSON where it is another one's error.
            told = json.loads(str(error)[str(error).index("{") :])["exception_message"]
        except (ValueError, KeyError):
            told = str(error)
        message = next((line for line in told.splitlines() if line.strip()), type(error).__name__)
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
    "HUGEINT": "HUGEINT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
}

_NUMBERS: Final = ("BIGINT", "HUGEINT", "DOUBLE")
"""From the narrowest to the widest."""


def _joined(one: str, other: str) -> str:
    """The SQL type for values of two types of JSON; `one` may be an SQL type already."""
    kinds = {_KINDS.get(kind, "VARCHAR") for kind in (one, other) if kind != "NULL"}
    if not kinds:
        return "NULL"
    if kinds <= {*_NUMBERS}:
        return max(kinds, key=_NUMBERS.index)
    return kinds.pop() if len(kinds) == 1 else "VARCHAR"
