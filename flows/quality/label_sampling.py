"""Random samples of rows to label: simple, or weighted by how uncertain a judge is."""

import re
from typing import Final, Literal, NamedTuple
from uuid import UUID

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.stages.rows import content_key

DrawMethod = Literal["random", "uncertainty"]

UNIFORM_SHARE: Final = 0.2
"""Share of a draw by uncertainty that is spread evenly, so that every row can be drawn."""

_DRAW: Final = re.compile(r"(random|uncertainty) (\d{1,9}) of (\d{1,9}), seed (\d{1,9})")


class Draw(NamedTuple):
    """A draw that can be repeated: `size` of `of` rows, in the order that `seed` gives them."""

    by: DrawMethod
    size: int
    of: int
    seed: int

    def __str__(self) -> str:
        return f"{self.by} {self.size} of {self.of}, seed {self.seed}"


def parse_draw(text: str) -> Draw | None:
    """The draw whose `str` is `text`; None for any other text."""
    found = _DRAW.fullmatch(text.strip())
    if not found:
        return None
    by: DrawMethod = "random" if found[1] == "random" else "uncertainty"
    return Draw(by, *map(int, found.groups()[1:]))


def draw_rows(rows: pl.DataFrame, draw: Draw) -> dict[int, float]:
    """The inclusion probability of each row drawn, by its index in `rows`, in random order.

    A draw by uncertainty is a systematic sample with probabilities proportional to size (Madow
    1949) from that order, so that each row is drawn exactly as often as its probability says.
    """
    keys = [
        content_key("draw", draw.seed, *row)
        for row in rows.select("sample_id", "claim_id", "passage").iter_rows()
    ]
    order = sorted(range(rows.height), key=keys.__getitem__)
    size = min(draw.size, rows.height)
    doubts = uncertainty(rows) if draw.by == "uncertainty" else None
    if doubts is None:
        return dict.fromkeys(order[:size], size / rows.height) if size else {}
    probabilities = inclusion_probabilities(doubts, size)[order]
    start = UUID(content_key("start", draw.seed)).int / 2**128
    ends = np.floor(np.cumsum(probabilities) + start + 1e-9)
    drawn = np.flatnonzero(np.diff(ends, prepend=0.0) > 0)
    return {order[place]: float(probabilities[place]) for place in drawn}


def uncertainty(rows: pl.DataFrame) -> NDArray[np.float64] | None:
    """How uncertain the judge was of each row, 0 to 1; None where the rows do not tell.

    1 less the largest of its three probabilities, or the share of votes that disagreed; 1
    where it gave no verdict.
    """
    likeliest = pl.max_horizontal("p_entailed", "p_contradicted", "p_neutral")
    doubts = rows.select(1 - pl.coalesce(likeliest, "agreement"))[:, 0]
    if doubts.null_count() == rows.height:
        return None
    return doubts.fill_null(1.0).to_numpy().astype(np.float64)


def inclusion_probabilities(doubts: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The probability to draw each row, `size` in sum: in part uniform, the rest by its doubt."""
    n = len(doubts)
    total = doubts.sum()
    doubt_shares = doubts / total if total > 0 else np.full(n, 1 / n)
    shares = UNIFORM_SHARE / n + (1 - UNIFORM_SHARE) * doubt_shares
    # A row whose probability would exceed 1 is certain; the others share what is left.
    certain = np.zeros(n, dtype=bool)
    while True:
        left = size - int(certain.sum())
        scaled = left * shares / max(shares[~certain].sum(), 1e-300)
        probabilities = np.where(certain, 1.0, scaled)
        over = ~certain & (probabilities >= 1)
        if not over.any():
            return probabilities
        certain |= over
