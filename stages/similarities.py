"""The similarity of response and reference beside what each sample lacks."""

from typing import Final

import polars as pl

from claimflow.stages.nothing import texts_in
from claimflow.stages.tables import TableError

ZERO: Final = pl.col("zero")
NOTHING: Final = pl.col("similarity_nothing")


def with_similarity(
    frame: pl.DataFrame, samples: pl.DataFrame, similarity: pl.DataFrame | None
) -> pl.DataFrame:
    """`frame` with `cosine`, `similarity_failure`, `similarity_nothing`, `zero` and `raises`.

    `zero` says that texts which are not blank have no similarity: an embedding is zero.
    """
    blank = (texts_in("response") == 0) | (texts_in("reference") == 0)
    frame = frame.with_columns(samples.select(blank=blank), raises=pl.lit(None, pl.String))
    if similarity is None:
        nulls = dict.fromkeys(("similarity_failure", "similarity_nothing"), pl.lit(None, pl.String))
        return frame.with_columns(cosine=pl.lit(None, pl.Float64), zero=pl.lit(False), **nulls)
    if similarity.filter((pl.col("left") != "response") | (pl.col("right") != "reference")).height:
        raise TableError("expected similarities of response and reference, found others")
    status = pl.col("status")
    said = pl.concat_str(
        pl.format("similarity {}", status), "reason", separator=": ", ignore_nulls=True
    )
    measured = similarity.select(
        "sample_id",
        "cosine",
        arrived=pl.lit(True),
        similarity_failure=pl.when(status == "failed").then(said),
        similarity_nothing=pl.when(status == "undefined").then(said),
    )
    lost = pl.when(pl.col("arrived").is_null()).then(pl.lit("no similarity was measured"))
    return frame.join(measured, on="sample_id", how="left", maintain_order="left").with_columns(
        similarity_failure=pl.coalesce("similarity_failure", lost),
        zero=NOTHING.is_not_null() & ~pl.col("blank"),
    )
