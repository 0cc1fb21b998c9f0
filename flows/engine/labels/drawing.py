"""Which rows are labelled: drawn at random, or more often where a judge is unsure."""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.stages.keys import content_key

By = Literal["random", "uncertainty"]

EVEN: Final = 0.2
"""Share of a draw by uncertainty that is spread evenly, so that no row is out of reach."""

_WORDS: Final = re.compile(r"(random|uncertainty) (\d{1,9}) of (\d{1,9}), seed (\d{1,9})")


class Draw(NamedTuple):
    """A draw that can be repeated: `size` of `of` rows, in the order that `seed` gives them."""

    by: By
    size: int
    of: int
    seed: int

    def __str__(self) -> str:
        return f"{self.by} {self.size} of {self.of}, seed {self.seed}"


def read_draw(words: str) -> Draw | None:
    """The draw that `str` made the words of; None where it did not."""
    found = _WORDS.fullmatch(words.strip())
    if not found:
        return None
    by: By = "random" if found[1] == "random" else "uncertainty"
    return Draw(by, *map(int, found.groups()[1:]))


def unsure(rows: pl.DataFrame) -> NDArray[np.float64] | None:
    """How unsure the judge was of each row, from 0; None where nothing says so.

    1 less the largest of its three probabilities, or the share of votes that disagreed; 1
    where it gave no verdict.
    """
    likeliest = pl.max_horizontal("p_entailed", "p_contradicted", "p_neutral")
    doubt = rows.select(1 - pl.coalesce(likeliest, "agreement"))[:, 0]
    if doubt.null_count() == rows.height:
        return None
    return doubt.fill_null(1.0).to_numpy().astype(np.float64)


def drawn(rows: pl.DataFrame, draw: Draw) -> dict[int, float]:
    """The places of the rows that are drawn, in a random order, with the probability of each.

    By uncertainty it is a systematic sample from that order with probabilities proportional
    to size (Madow 1949), so that each row is drawn exactly as often as its probability says.
    """
    keys = [
        content_key("draw", draw.seed, *row)
        for row in rows.select("sample_id", "claim_id", "passage").iter_rows()
    ]
    order = sorted(range(rows.height), key=keys.__getitem__)
    size = min(draw.size, rows.height)
    doubts = unsure(rows) if draw.by == "uncertainty" else None
    if doubts is None:
        return dict.fromkeys(order[:size], size / rows.height) if size else {}
    chances = probabilities(doubts, size)[order]
    start = UUID(content_key("start", draw.seed)).int / 2**128
    ends = np.floor(np.cumsum(chances) + start + 1e-9)
    chosen = np.flatnonzero(np.diff(ends, prepend=0.0) > 0)
    return {order[place]: float(chances[place]) for place in chosen}


def probabilities(doubts: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The probability to draw each row, `size` in sum: even in part, the rest by its doubt."""
    n = len(doubts)
    total = doubts.sum()
    shares = EVEN / n + (1 - EVEN) * (doubts / total if total > 0 else np.full(n, 1 / n))
    sure = np.zeros(n, dtype=bool)
    while True:
        left = size - int(sure.sum())
        chances = np.where(sure, 1.0, left * shares / max(shares[~sure].sum(), 1e-300))
        over = ~sure & (chances >= 1)
        if not over.any():
            return chances
        sure |= over


def places(rows: Sequence[dict[str, object]]) -> list[tuple[object, object, object]]:
    """What tells the rows of one part from each other."""
    return [(row["sample_id"], row["claim_id"], row["passage"]) for row in rows]
