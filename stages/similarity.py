"""Embedding similarity: the cosine of two texts of a sample."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

import polars as pl
from pydantic import Field, model_validator

from claimflow.stages.base import Stage
from claimflow.stages.rows import SampleField, SampleText
from claimflow.stages.tables import Samples, Similarities
from claimflow.stages.tools import Embedder


class EmbeddingSimilarity(Stage):
    """Cosine of the embeddings of two texts of a sample, in [-1, 1].

    With a `threshold`, 0.0 included, `similar` says whether the cosine reaches it. A
    missing or blank text is never embedded: its sample is `undefined`, as is that of a text
    whose embedding is the zero vector, which has no direction. A sample whose text the
    embedder gives no embedding for is `failed`.
    """

    use: ClassVar[str] = "embedding_similarity"
    version: ClassVar[int] = 2
    columns: ClassVar = {"samples": ("sample_id", "user_input", "response", "reference")}

    left: SampleText
    right: SampleText
    threshold: Annotated[float, Field(ge=-1, le=1)] | None = None

    @model_validator(mode="after")
    def _two_texts(self) -> Self:
        if self.left == self.right:
            raise ValueError(f"left and right are both {self.left}; compare two different texts")
        return self

    def required_fields(self) -> frozenset[SampleField]:
        """The two texts."""
        return frozenset((self.left, self.right))

    def run(self, samples: Samples, *, embedder: Embedder) -> Similarities:
        """One row per sample."""
        texts = samples.select(
            "sample_id",
            left_text=self.left,
            right_text=self.right,
            undefined=pl.coalesce(_undefined(self.left), _undefined(self.right)),
        )
        comparable = texts.filter(pl.col("undefined").is_null())
        both = pl.concat([comparable["left_text"], comparable["right_text"]])
        embedded = embedder.embed(both.unique(maintain_order=True).to_list())
        measured = self._cosines(comparable, embedded)
        return self._rows(texts.join(measured, on="sample_id", how="left", maintain_order="left"))

    def _cosines(self, texts: pl.DataFrame, embedded: pl.DataFrame) -> pl.DataFrame:
        """`sample_id`, `cosine`, and `lost` and `zero`: the text whose embedding is that, or NULL.

        In 64 bits, and divided by the lengths: those of unit vectors in 32 bits are 1 only up to
        rounding. Equal vectors have the cosine 1.0, since the square root of a square is exact.
        """
        exact = pl.col("embedding").arr.eval(pl.element().cast(pl.Float64))
        for side in ("left", "right"):
            of_side = embedded.select(exact.alias(side), pl.col("text").alias(f"{side}_text"))
            texts = texts.join(of_side, on=f"{side}_text", how="left")
        squares = {side: _dot(side, side) for side in ("left", "right")}
        cosine = _dot("left", "right") / (squares["left"] * squares["right"]).sqrt()
        is_lost = {side: pl.col(side).is_null() for side in squares}
        is_zero = {side: square == 0 for side, square in squares.items()}
        return texts.select(
            "sample_id",
            # Rounding may leave the cosine of nearly equal vectors slightly out of range.
            cosine=cosine.clip(-1.0, 1.0),
            lost=self._field_where(is_lost),
            zero=self._field_where(is_zero),
        )

    def _field_where(self, of_side: Mapping[str, pl.Expr]) -> pl.Expr:
        """The field of the first side where the condition holds, or NULL."""
        return (
            pl.when(of_side["left"])
            .then(pl.lit(self.left))
            .when(of_side["right"])
            .then(pl.lit(self.right))
        )

    def _rows(self, texts: pl.DataFrame) -> pl.DataFrame:
        lost = pl.col("lost")
        zero = pl.when(lost.is_null()).then(pl.format("the embedding of the {} is zero", "zero"))
        undefined = pl.coalesce("undefined", zero)
        cosine = pl.when(lost.is_null() & undefined.is_null()).then("cosine")
        return texts.select(
            "sample_id",
            left=pl.lit(self.left),
            right=pl.lit(self.right),
            cosine=cosine,
            similar=cosine >= pl.lit(self.threshold, pl.Float64),
            status=pl.when(undefined.is_not_null())
            .then(pl.lit("undefined"))
            .when(lost.is_not_null())
            .then(pl.lit("failed"))
            .otherwise(pl.lit("measured")),
            reason=pl.coalesce(undefined, pl.format("the {} has no embedding", lost)),
        )


def _dot(left: str, right: str) -> pl.Expr:
    return (pl.col(left) * pl.col(right)).arr.sum()


def _undefined(field: SampleText) -> pl.Expr:
    """Why a text cannot be compared; NULL when it can."""
    text = pl.col(field)
    return (
        pl.when(text.is_null())
        .then(pl.lit(f"missing: {field}"))
        .when(text.str.strip_chars() == "")
        .then(pl.lit(f"the {field} is empty"))
    )
