"""Whether a judge has moved by more than chance."""

from typing import Final, NamedTuple

LEVEL: Final = 0.01
"""The chance of calling a judge moved that has not, of each of the two tests."""


class Moved(NamedTuple):
    """Verdicts of one judge on the same canaries, before and now.

    Of `both` that have a verdict twice `were_right` and `are_right` had their label; `lost` were
    right and are not, `gained` are right and were not, `flipped` are other ones at all. `p` is
    the chance of so uneven a `lost` and `gained` if the judge had not moved.
    """

    both: int
    were_right: int
    are_right: int
    lost: int
    gained: int
    flipped: int
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether agreement with the labels is another one than before."""
        return self.p < LEVEL


class Restless(NamedTuple):
    """How often a judge that was asked anew gave another verdict: in this run, and before.

    `p` is the chance of so many more now if it had always been as fickle; 1 where either was
    asked nothing anew.
    """

    flipped: int
    of: int
    flipped_before: int
    of_before: int
    p: float

    @property
    def beyond_chance(self) -> bool:
        """Whether it changes its mind more often than it used to."""
        return self.p < LEVEL


def moved(pairs: list[tuple[str, str, str]]) -> Moved:
    """Of (label, verdict before, verdict now) of each canary; the exact test of McNemar 1947.

    Two-sided, on the canaries that were right in one of the two alone.
    """
    were = sum(before == label for label, before, _ in pairs)
    are = sum(now == label for label, _, now in pairs)
    lost = sum(before == label != now for label, before, now in pairs)
    gained = sum(now == label != before for label, before, now in pairs)
    flipped = sum(before != now for _, before, now in pairs)
    return Moved(len(pairs), were, are, lost, gained, flipped, _mcnemar(lost, gained))


def restless(flipped: int, of: int, flipped_before: int, of_before: int) -> Restless:
    """By the exact test of Fisher 1922, one-sided: more now than before."""
    p = 1.0
    if of_before and of and flipped:
        # Takes a while to import, and most runs ask nothing anew.
        from scipy.stats import fisher_exact

        table = [[flipped, of - flipped], [flipped_before, of_before - flipped_before]]
        p = float(fisher_exact(table, alternative="greater").pvalue)
    return Restless(flipped, of, flipped_before, of_before, p)


def _mcnemar(lost: int, gained: int) -> float:
    if lost == gained:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + gained).pvalue)
