"""Segments: the rows of one sample in one table, stored once however many artifacts have them.

`stored.claims` and so on hold the rows, each with the number of its segment. A part of an artifact
is a list of segments in `audit.parts`, in ranges, which other artifacts with the same list have:
`audit.artifact_parts` names the parts of each. `audit.segments` has the digest of each segment, by
which the rows of an unchanged sample are found again.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import duckdb
import polars as pl

from claimflow.flows.store.arrow import insert, read_table
from claimflow.stages.rows import Claim, Row, Sample, Score
from claimflow.stages.tables import python_type

# No field of a row begins with an underscore.

_SUBJECT: Final = "_subject"
"""The sample of a row, or what stands for it."""

_PLACE: Final = "_place"
"""The place of the segment of a row in its part."""

_OWN: Final = "_own"
"""The number of the segment that the sample of a row has in the table of the samples."""


def rows_of(row: type[Row]) -> str:
    """SQL for the stored rows of a kind with the artifacts that have them, and their places."""
    placed = (
        "SELECT artifact_id, shard, place, segment FROM audit.artifact_segments "
        f"WHERE kind = '{row.table}'"
    )
    return f"stored.{row.table} AS rows JOIN ({placed}) AS placed USING (segment)"


def stored_lists(row: type[Row]) -> list[str]:
    """The columns that hold lists of texts, which are stored as JSON text: DuckDB compresses a list
    of texts to three times the size."""
    return [name for name in row.model_fields if python_type(row, name) == list[str]]


def columns_of(row: type[Row], names: Iterable[str]) -> str:
    """SQL for columns of `rows_of(row)`."""
    lists = stored_lists(row)
    return ", ".join(
        f'from_json(rows."{name}", \'["VARCHAR"]\') AS "{name}"'
        if name in lists
        else f'rows."{name}"'
        for name in names
    )


IN_ORDER: Final = "ORDER BY placed.shard, placed.place, rows.rowid"
"""The order of the rows of an artifact."""


def in_digest_order(row: type[Row], part: pl.DataFrame) -> pl.DataFrame:
    """A part as `write_parts` returns it, in the order in which its rows count for a digest.

    Of scores the first rows of all samples come first, then the second, and so on: metric by
    metric, as most stages make them, and as they were stored before schema version 11.
    """
    if row is not Score:
        return part
    return part.sort(pl.int_range(pl.len()).over("sample_id"), maintain_order=True)


_PARTS_AT_ONCE: Final = 5
"""Parts of a table that are in memory at the same time."""


def groups_of_parts(shards: int) -> Iterator[range]:
    """The numbers of the parts of a table, in groups that are small enough for memory."""
    for first in range(0, shards, _PARTS_AT_ONCE):
        yield range(first, min(first + _PARTS_AT_ONCE, shards))


def by_shard(table: pl.DataFrame, shards: Sequence[int]) -> list[pl.DataFrame]:
    """The rows of each of `shards`, without the column `shard`."""
    found = table.partition_by("shard", as_dict=True, include_key=False, maintain_order=True)
    return [found.get((shard,), table.clear().drop("shard")) for shard in shards]


def write_parts(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact_id: str,
    first: int,
    frames: Sequence[pl.DataFrame],
) -> list[pl.DataFrame]:
    """Write parts `first`, `first` + 1 and so on of an artifact that is in `audit.artifacts`.

    Only segments and lists of segments that are not in the store are written. Returns the parts as
    they will be read: samples in their order in the table of the samples, and the rows of each
    sample together, in the order in which they are in `frames`.
    """
    shards = range(first, first + len(frames))
    rows = pl.concat(
        frame.select(pl.lit(shard, pl.Int32).alias("shard"), *row.model_fields)
        for shard, frame in zip(shards, frames, strict=True)
    )
    samples = _samples(connection, row, artifact_id, shards)
    rows, segments = _cut(connection, row, artifact_id, rows, samples)
    if segments.height:
        numbered = _numbered(connection, row, segments)
        new = numbered.filter("new").select("shard", _PLACE, "segment", "digest")
        insert(connection, "audit.segments", new.select("segment", "digest"), kind=row.table)
        new_rows = rows.join(new, on=["shard", _PLACE], how="inner", maintain_order="left")
        # Scores metric by metric: they compress to a fraction of the size.
        insert(
            connection,
            f"stored.{row.table}",
            in_digest_order(row, new_rows).select("segment", *row.model_fields),
            as_json=stored_lists(row),
        )
        _write_lists(connection, row, artifact_id, numbered)
    return by_shard(rows.select("shard", *row.model_fields), shards)


def _samples(
    connection: duckdb.DuckDBPyConnection, row: type[Row], artifact_id: str, shards: range
) -> pl.DataFrame:
    """The samples of parts of an artifact, in their order: shard, subject and own number.

    They are in its inputs. Empty for rows that are not of samples.
    """
    if row is Sample or not {"sample_id", "claim_id"} & row.model_fields.keys():
        return pl.DataFrame(schema={"shard": pl.Int32, _SUBJECT: pl.String, _OWN: pl.Int64})
    return read_table(connection, _SAMPLES, id=artifact_id, first=shards[0], last=shards[-1])


# A table with edits applied has the table that it was made from as its input.
_INPUTS: Final = """
WITH RECURSIVE sources AS (
  SELECT artifact_id, inputs, shards FROM audit.artifacts WHERE artifact_id = $id
  UNION ALL
  SELECT artifacts.artifact_id, artifacts.inputs, artifacts.shards FROM audit.artifacts
  JOIN sources ON artifacts.artifact_id = try_cast(sources.inputs ->> '$.base' AS UUID)
),
named AS (
  SELECT shards, unnest((inputs ->> '$.*') || (inputs ->> '$.*.*')) AS artifact_id FROM sources
),
inputs AS (
  SELECT DISTINCT artifacts.artifact_id, artifacts.kind, named.shards = artifacts.shards AS by_part
  FROM named JOIN audit.artifacts ON artifacts.artifact_id = try_cast(named.artifact_id AS UUID)
)
"""

# A stage that gets all samples at once makes one part.
_SAMPLES: Final = f"""
{_INPUTS}
SELECT CASE WHEN by_part THEN shard ELSE 0 END::INTEGER AS shard,
       sample_id AS {_SUBJECT}, segment AS {_OWN}
FROM {rows_of(Sample)} JOIN inputs USING (artifact_id)
WHERE NOT by_part OR shard BETWEEN $first AND $last
{IN_ORDER}
"""

_CLAIMS: Final = f"""
{_INPUTS}
SELECT DISTINCT claim_id::VARCHAR AS claim_id, sample_id AS {_SUBJECT}
FROM {rows_of(Claim)} JOIN inputs USING (artifact_id)
WHERE NOT by_part OR shard BETWEEN $first AND $last
"""


def _cut(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact_id: str,
    rows: pl.DataFrame,
    samples: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parts of an artifact in their final order, with the place of each row, and their segments.

    A segment has shard, place, the number that its sample has in the table of the samples, and its
    digest, NULL where the sample has no rows.
    """
    shards = rows["shard"]
    if "sample_id" in row.model_fields:
        rows = rows.with_columns(pl.col("sample_id").alias(_SUBJECT))
    elif "claim_id" in row.model_fields:
        first, last = (shards.min(), shards.max()) if rows.height else (0, 0)
        claims = read_table(connection, _CLAIMS, id=artifact_id, first=first, last=last)
        rows = rows.join(claims, on="claim_id", how="left", maintain_order="left")
        rows = rows.with_columns(pl.coalesce(_SUBJECT, "claim_id").alias(_SUBJECT))
    else:
        rows = rows.with_columns(pl.lit("").alias(_SUBJECT))
    listed = pl.concat(
        [samples, rows.select("shard", _SUBJECT, pl.lit(None, pl.Int64).alias(_OWN))]
    ).unique(["shard", _SUBJECT], keep="first", maintain_order=True)
    segments = listed.with_columns(pl.int_range(pl.len()).over("shard").alias(_PLACE))
    rows = rows.join(segments, on=["shard", _SUBJECT], how="left", maintain_order="left").sort(
        "shard", _PLACE, maintain_order=True
    )
    of_each = rows.group_by("shard", _PLACE, maintain_order=True).len()
    digests = pl.Series("digest", list(_digests(row, rows, of_each["len"].to_list())), pl.String)
    digested = of_each.select("shard", _PLACE, digests)
    return rows, segments.join(digested, on=["shard", _PLACE], how="left", maintain_order="left")


_SEGMENTS_AT_ONCE: Final = 1_000
"""Segments whose rows are in memory as JSON at the same time."""


def _digests(row: type[Row], rows: pl.DataFrame, lengths: Sequence[int]) -> Iterator[str]:
    """The digest of each segment over all columns of its rows; `lengths` are their numbers."""
    start = 0
    for first in range(0, len(lengths), _SEGMENTS_AT_ONCE):
        of_each = lengths[first : first + _SEGMENTS_AT_ONCE]
        # JSON escapes line breaks within texts.
        lines = iter(_as_json_lines(row, rows.slice(start, sum(of_each))).split(b"\n"))
        start += sum(of_each)
        for length in of_each:
            of_segment = b"\n".join(islice(lines, length))
            yield hashlib.blake2b(of_segment, digest_size=16).hexdigest()


def _as_json_lines(row: type[Row], rows: pl.DataFrame) -> bytes:
    """A line of JSON for each row, without fields that are NULL, but for the first.

    A column that a later version adds holds NULL in older rows, and must not change digests.
    """
    first, *others = row.model_fields
    nulls = {name: rows[name].null_count() for name in others}
    written = io.BytesIO()
    rows.select(first, *(one for one in others if nulls[one] < rows.height)).write_ndjson(written)
    content = written.getvalue()
    # Quotation marks within texts are escaped, so only fields match.
    for name in others:
        if 0 < nulls[name] < rows.height:
            content = content.replace(f',"{name}":null'.encode(), b"")
    return content


def _numbered(
    connection: duckdb.DuckDBPyConnection, row: type[Row], segments: pl.DataFrame
) -> pl.DataFrame:
    """`segments` with the number of each, `segment`, and whether it is `new`.

    A new segment gets the number of its sample where the kind does not have it yet, so that the
    lists of several tables are the same. A sample without rows is left out where it has it.
    """
    found = read_table(connection, _FOUND, segments, kind=row.table)
    ((newest,),) = connection.execute(
        "SELECT coalesce(max(segment), 0) FROM audit.segments"
    ).fetchall()
    place = ["shard", _PLACE]
    chosen = segments.join(found.unique(place), on=place, maintain_order="left").with_columns(
        new=pl.col("known").is_null() & ~pl.col("same").fill_null(value=False),
        segment=pl.coalesce("known", pl.when(pl.col("same").fill_null(value=True)).then(_OWN)),
    )
    chosen = chosen.filter(pl.col("segment").is_not_null() | pl.col("digest").is_not_null())
    fresh = pl.col("segment").is_null()
    return chosen.with_columns(segment=pl.coalesce("segment", newest + fresh.cum_sum()))


# `same` is NULL where the kind has no segment of the own number, true where neither has rows.
_FOUND: Final = f"""
WITH stored AS (SELECT segment, digest FROM audit.segments WHERE kind = $kind)
SELECT shard, {_PLACE}, equal.segment AS known,
       CASE WHEN own.segment IS NOT NULL
            THEN own.digest IS NULL AND incoming.digest IS NULL END AS same
FROM incoming
LEFT JOIN stored AS equal ON equal.digest = incoming.digest::UUID
LEFT JOIN stored AS own ON own.segment = {_OWN}
"""


def segment_digests(row: type[Row], rows: pl.DataFrame) -> pl.DataFrame:
    """The columns `segment` and `digest` of rows with their `segment`, in the order of a table."""
    lengths = rows.group_by("segment", maintain_order=True).len()
    digests = pl.Series("digest", list(_digests(row, rows, lengths["len"].to_list())), pl.String)
    return lengths.select("segment", digests)


def list_digest(segments: list[int]) -> str:
    """The digest of a list of segments."""
    return hashlib.blake2b(repr(segments).encode(), digest_size=16).hexdigest()


def _write_lists(
    connection: duckdb.DuckDBPyConnection,
    row: type[Row],
    artifact_id: str,
    numbered: pl.DataFrame,
) -> None:
    """Write the list of segments of each part, unless an artifact has the same."""
    shards = numbered.group_by("shard", maintain_order=True).agg("segment")
    digests = [list_digest(numbers) for numbers in shards["segment"].to_list()]
    lists = shards.select("shard", pl.Series("digest", digests))
    known = read_table(
        connection,
        "SELECT incoming.shard, min(part) AS part FROM incoming "
        "JOIN audit.artifact_parts AS stored ON stored.digest = incoming.digest::UUID "
        "SEMI JOIN audit.parts USING (part) GROUP BY incoming.shard",
        lists,
    )
    # Where a list is lost its number must not be given to another one.
    ((newest,),) = connection.execute(
        "SELECT coalesce(max(part), 0) FROM "
        "(SELECT part FROM audit.parts UNION ALL SELECT part FROM audit.artifact_parts)"
    ).fetchall()
    lists = lists.join(known, on="shard", how="left", maintain_order="left")
    is_new = pl.col("part").is_null()
    lists = lists.with_columns(pl.coalesce("part", newest + is_new.cum_sum()), new=is_new)
    new = numbered.join(lists.filter("new"), on="shard", how="inner", maintain_order="left")
    insert(connection, "audit.parts", _ranges(new.select("part", "segment", place=_PLACE)))
    insert(
        connection,
        "audit.artifact_parts",
        lists.select("shard", "part", "digest"),
        artifact_id=artifact_id,
        kind=row.table,
    )


def _ranges(lists: pl.DataFrame) -> pl.DataFrame:
    """The rows of `audit.parts` for lists of segments with their places, one part after another.

    Most samples of a night are as the night before, so that their segments follow each other.
    """
    goes_on = (
        (pl.col("part").diff() == 0)
        & (pl.col("place").diff() == 1)
        & (pl.col("segment").diff() == 1)
    )
    return (
        lists.group_by(
            (~goes_on.fill_null(value=False)).cum_sum().alias("range"), maintain_order=True
        )
        .agg(pl.col("part", "place", "segment").first(), length=pl.len().cast(pl.Int64))
        .drop("range")
    )
