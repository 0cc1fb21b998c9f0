"""Polars tables of row models: their annotations, schemas and checks."""

import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import polars as pl

from claimflow.stages.rows import (
    AUDIT,
    Citation,
    Claim,
    Row,
    RubricVerdict,
    Sample,
    Score,
    SentenceMatch,
    Similarity,
    Summary,
    Verdict,
)

Samples = Annotated[pl.DataFrame, Sample]
Claims = Annotated[pl.DataFrame, Claim]
Citations = Annotated[pl.DataFrame, Citation]
Verdicts = Annotated[pl.DataFrame, Verdict]
RubricVerdicts = Annotated[pl.DataFrame, RubricVerdict]
Similarities = Annotated[pl.DataFrame, Similarity]
SentenceMatches = Annotated[pl.DataFrame, SentenceMatch]
Scores = Annotated[pl.DataFrame, Score]
Summaries = Annotated[pl.DataFrame, Summary]

_POLARS: dict[Any, Any] = {
    str: pl.String,
    int: pl.Int64,
    float: pl.Float64,
    bool: pl.Boolean,
    UUID: pl.String,
    list[str]: pl.List(pl.String),
}


class TableError(ValueError):
    """A table that is not a valid table of its kind of row; the message names every fault."""


@cache
def schema(row: type[Row]) -> pl.Schema:
    """Polars schema of a table of `row`; a UUID is a string of 36 characters."""
    return pl.Schema({name: _POLARS[_field_type(row, name)[0]] for name in row.model_fields})


@cache
def content_columns(row: type[Row]) -> tuple[str, ...]:
    """The columns that stages may read and that a table's digest covers: all without `AUDIT`."""
    fields = row.model_fields.items()
    return tuple(name for name, field in fields if AUDIT not in field.metadata)


def python_type(row: type[Row], name: str) -> Any:
    """The type of a field without `None`: `str | None` is `str`, a `Literal` is `str`."""
    return _field_type(row, name)[0]


def build(row: type[Row], rows: Iterable[Row | Mapping[str, Any]]) -> pl.DataFrame:
    """Table of `rows`, each a `row` or a mapping of its fields; missing fields get their default.

    Raises pydantic's `ValidationError` for a mapping that is not a valid row.
    """
    models = [r if isinstance(r, row) else row.model_validate(r) for r in rows]
    return pl.DataFrame(
        [model.model_dump(mode="json") for model in models],
        schema=schema(row),
        orient="row",
    )


def conform(row: type[Row], frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `row` in order: defaults added, types cast, then checked.

    Raises `TableError` naming every column that is unknown, missing or of the wrong type,
    every NULL and non-finite number where none may be, and repeated keys.
    """
    expected = schema(row)
    unknown = [f"unknown column {c!r}" for c in frame.columns if c not in expected]
    missing = [
        f"missing column {name!r}"
        for name, field in row.model_fields.items()
        if name not in frame.columns and field.is_required()
    ]
    if unknown or missing:
        raise _error(row, unknown + missing)
    added = {
        name: pl.lit(field.get_default(call_default_factory=True), dtype=expected[name])
        for name, field in row.model_fields.items()
        if name not in frame.columns
    }
    try:
        table = frame.with_columns(**added).select(
            pl.col(name).cast(dtype) for name, dtype in expected.items()
        )
    except pl.exceptions.PolarsError as error:
        raise _error(row, [str(error).splitlines()[0]]) from error
    faults = _value_faults(row, table)
    if faults:
        raise _error(row, faults)
    return table


def _value_faults(row: type[Row], table: pl.DataFrame) -> list[str]:
    faults = []
    for name, dtype in table.schema.items():
        kind, optional, values = _field_type(row, name)
        column = table[name]
        if not optional and column.null_count():
            faults.append(f"NULL in column {name!r}")
        if kind is float and not column.drop_nulls().is_finite().all():
            faults.append(f"NaN or infinity in column {name!r}")
        if values and dtype == pl.String:
            found = column.drop_nulls().unique()
            unknown = found.filter(~found.is_in(values))
            faults += [
                f"{name!r} is {value!r}, not one of {', '.join(values)}" for value in unknown
            ]
    repeated = table.height - table.select(row.key).n_unique()
    if table.height and repeated:
        faults.append(f"{repeated} rows repeat a key ({', '.join(row.key)})")
    return faults


def _error(row: type[Row], faults: list[str]) -> TableError:
    return TableError(f"not a table of {row.table}: " + "; ".join(faults))


def _field_type(row: type[Row], name: str) -> tuple[Any, bool, tuple[str, ...]]:
    """(type without `None`, may be NULL, allowed values of a `Literal`) of a field."""
    annotation = row.model_fields[name].annotation
    optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        options = [a for a in get_args(annotation) if a is not type(None)]
        optional = len(options) < len(get_args(annotation))
        (annotation,) = options
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return str, optional, get_args(annotation)
    return annotation, optional, ()
