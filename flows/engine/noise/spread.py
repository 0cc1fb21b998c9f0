"""How far each metric of a pipeline varies over its repeats."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from claimflow.flows.engine.noise.repeats import Cell, Design, Repeats
from claimflow.flows.engine.noise.variance import (
    Parts,
    Source,
    detectable_difference,
    split_variance,
)


class Spread(NamedTuple):
    """How far one metric varies.

    `scored` counts the samples that have a score in every repeat, which `mean` and `parts`
    are of; `failed` those whose score failed in one, `undefined` the others. `varies` names
    what can vary at all. `detectable` is the smallest difference between two runs over `of`
    samples that would show: those of the whole file, as far as they are scored. All three
    are None where no sample is scored.
    """

    step: str
    metric: str
    scored: int
    undefined: int
    failed: int
    varies: frozenset[Source]
    mean: float | None = None
    parts: Parts | None = None
    detectable: float | None = None
    of: int = 0


def spreads(
    walk: Repeats, step: str, tables: Mapping[tuple[str, Cell], pl.DataFrame], *, whole: int
) -> Iterator[Spread]:
    """How far each metric of a step varies.

    `tables` holds its scores at every repeat, `whole` counts the samples of the file.
    """
    varies = walk.sources[step]
    shape = _shape(walk.design, varies)
    stacked = pl.concat(
        tables[step, cell].select("sample_id", "metric", "score", "status", repeat=pl.lit(number))
        for number, cell in enumerate(walk.cells(step))
    )
    for (metric,), rows in stacked.group_by("metric", maintain_order=True):
        by_sample = rows.group_by("sample_id", maintain_order=True).agg(
            pl.col("score").sort_by("repeat"),
            scored=(pl.col("status") == "scored").all(),
            failed=(pl.col("status") == "failed").any(),
        )
        used = by_sample.filter("scored")
        failed = int(by_sample["failed"].sum())
        undefined = by_sample.height - used.height - failed
        spread = Spread(step, str(metric), used.height, undefined, failed, varies)
        if used.height:
            scores = np.array(used["score"].to_list()).reshape(used.height, *shape)
            parts = split_variance(scores)
            of = max(round(whole * used.height / by_sample.height), 1)
            least = detectable_difference(parts, of)
            spread = spread._replace(
                mean=float(scores.mean()), parts=parts, detectable=least, of=of
            )
        yield spread


def _shape(design: Design, varies: frozenset[Source]) -> tuple[int, int]:
    """Decompositions and verifications among the repeats of a table.

    Where only verification varies each repeat of a decomposition is one more of it.
    """
    if varies == {"verification"}:
        return 1, design.decompositions * design.verifications
    verifications = design.verifications if "verification" in varies else 1
    return (design.decompositions if varies else 1), verifications
