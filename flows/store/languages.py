"""The languages of the texts of samples, and what read them without having been taught them."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.schema import has_table
from claimflow.flows.store.segments import columns_of, groups_of_parts, rows_of
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Sample, SampleField
from claimflow.stages.text.languages import language_of

TEXT_FIELDS: Final[tuple[SampleField, ...]] = (
    "user_input",
    "response",
    "reference",
    "retrieved_contexts",
)
"""The fields of a sample whose language is detected; the contexts are one text."""

_LONGEST: Final = 1_000
"""Characters of a text that are read: enough to tell its language."""


class Reader(NamedTuple):
    """A model (`entailment`, `embedder`, `parser`) or the `rules` of a step that read `fields`.

    `languages` are those that it was taught, as `language_of` names them.
    """

    step: str
    reader: str
    fields: tuple[str, ...]
    languages: frozenset[str]


RULES: Final = "rules"
"""The reader of a step without a model. Rules that do not know a language keep its sentences whole,
which is no reason to distrust a figure."""


class UntaughtTexts(NamedTuple):
    """Texts that models read without having been taught their language.

    `samples` have at least one, of `every`. `languages` are the samples with a text of each, the
    most frequent first; `steps` are those that read such texts, in their order, and `readers` the
    models.
    """

    samples: int
    every: int
    languages: dict[str, int]
    steps: tuple[str, ...]
    readers: tuple[str, ...]


def detected_languages(
    samples: pl.DataFrame, fields: Collection[str], *, key: str = "sample_id"
) -> pl.DataFrame:
    """`key`, `field` and `language` of each text of `samples` that is not blank.

    The language is NULL where it is not certain.
    """
    read = [field for field in TEXT_FIELDS if field in fields]
    rows = [
        (one, field, language_of(text[:_LONGEST]))
        for one, *texts in samples.select(key, *read).iter_rows()
        for field, value in zip(read, texts, strict=True)
        if (text := _text(value)).strip()
    ]
    schema: dict[str, Any] = {key: samples.schema[key], "field": pl.String, "language": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _text(value: str | list[str | None] | None) -> str:
    """A field as one text; of many contexts only the beginning."""
    if not isinstance(value, list):
        return value or ""
    return "\n".join(filter(None, value[:_LONGEST]))


def stored_languages(store: Store, samples: Artifact) -> pl.DataFrame:
    """As `detected_languages`, of the samples of a table whose languages are in the store."""
    with store.reading() as connection:
        return read_table(connection, _LANGUAGES, id=samples.artifact_id)


def samples_without_languages(store: Store, samples: Artifact) -> Iterator[pl.DataFrame]:
    """The samples of a table whose languages are not in the store, in parts, with `segment`."""
    for shards in groups_of_parts(samples.shards):
        ends = {"first": shards[0], "last": shards[-1]}
        with store.reading() as connection:
            part = read_table(connection, _WITHOUT_LANGUAGES, id=samples.artifact_id, **ends)
        yield part


def record_languages(store: Store, found: Iterable[pl.DataFrame]) -> None:
    """Record the languages of samples by `segment`, all or none.

    Those that another run has recorded meanwhile are skipped.
    """
    tables = [table for table in found if table.height]
    if tables:
        with store.writing() as connection:
            new = read_table(
                connection,
                "FROM incoming ANTI JOIN audit.languages USING (segment)",
                pl.concat(tables),
            )
            insert(connection, "audit.languages", new)


def record_readers(
    connection: duckdb.DuckDBPyConnection, run_id: str, readers: Iterable[Reader]
) -> None:
    """Record what read texts in a step of a run."""
    for one in readers:
        connection.execute(
            "INSERT INTO audit.readers VALUES ($run, $step, $reader, $fields, $languages)",
            {
                "run": run_id,
                "step": one.step,
                "reader": one.reader,
                "fields": list(one.fields),
                "languages": sorted(one.languages),
            },
        )


def untaught_texts(store: Store, run_id: str) -> UntaughtTexts | None:
    """The texts that models of a run were not taught the language of; None if there are none.

    None also for runs of older releases, which did not record it.
    """
    with store.reading() as connection:
        if not has_table(connection, "readers"):
            return None
        found = read_table(connection, _UNTAUGHT, run=run_id)
        samples = "SELECT count(*) FROM samples WHERE run_id = $run"
        [(every,)] = connection.execute(samples, {"run": run_id}).fetchall()
    return _counted(found, every)


_LANGUAGES: Final = f"""
SELECT sample_id, field, language
FROM {rows_of(Sample)} JOIN audit.languages USING (segment) WHERE artifact_id = $id
"""

_WITHOUT_LANGUAGES: Final = f"""
SELECT segment, sample_id, {columns_of(Sample, TEXT_FIELDS)}
FROM {rows_of(Sample)}
ANTI JOIN audit.languages USING (segment)
WHERE artifact_id = $id AND shard BETWEEN $first AND $last
"""

_UNTAUGHT: Final = """
SELECT DISTINCT sample_id, language, step, reader, position
FROM untaught_texts JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run AND reader <> 'rules'
"""


def count_untaught(
    languages: Iterable[pl.DataFrame], readers: Collection[Reader], every: int
) -> UntaughtTexts | None:
    """As `untaught_texts`, of `detected_languages` in parts and what would read the texts.

    `every` is the number of samples.
    """
    read = pl.DataFrame(
        [
            (position, one.step, one.reader, field, [*one.languages])
            for position, one in enumerate(readers)
            for field in one.fields
            if one.reader != RULES
        ],
        schema={
            "position": pl.Int64,
            "step": pl.String,
            "reader": pl.String,
            "field": pl.String,
            "languages": pl.List(pl.String),
        },
        orient="row",
    )
    found = [
        table.drop_nulls("language")
        .join(read, on="field")
        .filter(~pl.col("language").is_in("languages"))
        .select("sample_id", "language", "step", "reader", "position")
        for table in languages
    ]
    return _counted(pl.concat(found), every) if found else None


def _counted(found: pl.DataFrame, every: int) -> UntaughtTexts | None:
    """The counts of `found`: `sample_id`, `language`, `step`, `reader`, `position` of the step."""
    if found.is_empty():
        return None
    by_language = (
        found.group_by("language")
        .agg(pl.col("sample_id").n_unique())
        .sort("sample_id", "language", descending=[True, False])
    )
    return UntaughtTexts(
        found["sample_id"].n_unique(),
        every,
        dict(by_language.iter_rows()),
        tuple(found.sort("position")["step"].unique(maintain_order=True)),
        tuple(sorted(set(found["reader"]), reverse=True)),
    )
