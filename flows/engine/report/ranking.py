"""Which samples a report shows: those that matter most come first."""

from collections.abc import Sequence

import polars as pl

from claimflow.flows.engine.compare.comparison import Comparison
from claimflow.flows.engine.storage.store import Store, read_table
from claimflow.stages import LOWER_IS_BETTER


def worst_first(
    store: Store, run_id: str, count: int, *, before: Sequence[str] = ()
) -> pl.DataFrame:
    """Up to `count` samples of a run: sample_id, mean.

    `before` come first, in their order. The others follow by the mean of their scores, the
    lowest first; a score that is best at 0 counts as what it lacks to 1, one that failed as 0,
    and a sample without any as if it were best.
    """
    with store.reading() as connection:
        return read_table(
            connection,
            """
            SELECT sample_id, mean
            FROM (SELECT sample_id FROM samples WHERE run_id = $run)
            LEFT JOIN (SELECT sample_id,
                              avg(CASE WHEN status = 'failed' THEN 0
                                       WHEN list_contains($lower, metric) THEN 1 - score
                                       ELSE score END) AS mean
                       FROM scores WHERE run_id = $run GROUP BY sample_id) USING (sample_id)
            LEFT JOIN (SELECT unnest($before::VARCHAR[]) AS sample_id,
                              generate_subscripts($before::VARCHAR[], 1) AS place)
                      USING (sample_id)
            ORDER BY place NULLS LAST, mean NULLS LAST, sample_id LIMIT $count
            """,
            run=run_id,
            count=count,
            lower=sorted(LOWER_IS_BETTER),
            before=list(before),
        )


def changed_samples(comparison: Comparison) -> list[str]:
    """The samples of run b that are not the same in both, most flipped verdicts first.

    Among those with as many, the largest move of a score comes first.
    """
    flips = comparison.claims.group_by("sample_id").agg(
        flips=(pl.col("change") == "verdict flipped").sum()
    )
    moves = comparison.scores.group_by("sample_id").agg(move=pl.col("difference").abs().max())
    others = comparison.samples.filter(pl.col("state") != "removed").select("sample_id")
    every = pl.concat([flips.select("sample_id"), moves.select("sample_id"), others]).unique()
    return (
        every.join(flips, on="sample_id", how="left")
        .join(moves, on="sample_id", how="left")
        .sort(
            pl.col("flips").fill_null(0),
            pl.col("move").fill_null(0.0),
            "sample_id",
            descending=[True, True, False],
        )["sample_id"]
        .to_list()
    )
