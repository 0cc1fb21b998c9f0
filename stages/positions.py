"""Positions: keys looked up once, so that what follows counts by number."""

import numpy as np
import polars as pl


def positions(keys: pl.Series, among: pl.Series) -> pl.Series:
    """For each of `keys` its position in `among`, where it occurs at most once; else NULL.

    Runs of equal keys, as the verdicts on one claim are, are looked up once.
    """
    first = (keys != keys.shift(1)).fill_null(True)
    sought = keys.filter(first).alias("key").to_frame()
    places = among.alias("key").to_frame().with_row_index("place")
    found = sought.join(places, on="key", how="left", maintain_order="left")["place"]
    return found.gather(first.cum_sum() - 1)


def tally(places: pl.Series, size: int) -> pl.Series:
    """How often each position below `size` occurs in `places`, which holds no NULL."""
    return pl.Series(np.bincount(places.to_numpy(), minlength=size), dtype=pl.Int64)
