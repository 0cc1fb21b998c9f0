"""Many texts cut at blanks, so that what is known of a piece is looked up once for all of it."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.stages.text.batches import Ints

Flags = NDArray[np.bool_]

LINE_BREAK: Final = "\n"
"""A piece of its own; one stands behind every text."""


class Pieces(NamedTuple):
    """What stands between the blanks of texts, which are joined by line breaks.

    `codes` are the places of the pieces, in order, in `distinct`; `starts` and `ends` are where
    they stand in the joined text. A piece of no character stands between two blanks; `breaks`
    are the line breaks. `places` are where the texts start, and where one behind them would.
    """

    distinct: list[str]
    codes: Ints
    starts: Ints
    ends: Ints
    breaks: Flags
    places: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """The pieces of at least one text."""
        spaced = pl.Series(texts).str.replace_all(LINE_BREAK, f" {LINE_BREAK} ", literal=True)
        pieces = (spaced + f" {LINE_BREAK}").str.split(" ").explode()
        distinct, codes = _numbered(pieces)
        breaks = codes == distinct.index(LINE_BREAK)
        lengths = np.array([len(piece) for piece in distinct], np.intp)[codes]
        ends = np.cumsum(lengths + 1) - 1
        # There is no blank on either side of a line break in the texts.
        ends -= 2 * np.cumsum(breaks)
        ends[breaks] += 1
        places = np.cumsum([0, *(len(text) + 1 for text in texts)])
        return cls(distinct, codes, ends - lengths, ends, breaks, places)

    @property
    def real(self) -> Ints:
        """The pieces of characters that are no line breaks."""
        return np.flatnonzero((self.ends > self.starts) & ~self.breaks)

    def of_text(self, number: int) -> slice:
        """The pieces of the text of this number, with the line break behind it."""
        return slice(*np.searchsorted(self.starts, self.places[number : number + 2]))

    def texts(self, starts: Ints) -> Ints:
        """The numbers of the texts in which pieces start."""
        return np.searchsorted(self.places, starts, "right") - 1


def _numbered(pieces: pl.Series) -> tuple[list[str], Ints]:
    """Distinct pieces, and the place of each piece among them."""
    # Polars numbers all categories of a process alike: other ones may lie between.
    numbers = pieces.cast(pl.Categorical).to_physical().to_numpy()
    places = np.full(numbers.max() + 1, -1, np.intp)
    places[numbers] = np.arange(len(numbers))
    found = places >= 0
    ranks = np.cumsum(found) - 1
    return pieces.gather(places[found]).to_list(), ranks.take(numbers)
