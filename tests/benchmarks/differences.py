"""Coverage, size and power of the intervals, tests and gates of comparisons, on simulated scores.

    python -m tests.benchmarks.differences [DRAWS]

Scores are shares of 1 to 8 claims whose true rate differs from sample to sample (beta 5, 1), or
0 and 1; the second run redraws half of the samples, at a lower rate where there is an effect.
`few move` redraws one in ten, at half the rate. With 1,000 draws (the default) a share of 95 % has
an error of 1.4 points, one of 2.5 % an error of 1 point.
"""

import argparse
from collections.abc import Callable, Iterator
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.quality.paired_statistics import ratio_interval, sign_flip_p
from claimflow.stages.scores.formulas import mean_interval

Values = NDArray[np.float64]
Bounds = tuple[float, float] | tuple[None, None]
Draw = Callable[[np.random.Generator, int, float], tuple[Values, Values]]

SIZES = (20, 50, 200)
MEAN = 5 / 6
"""Mean of the rates, and so of the scores of the first run."""


def shares(rng: np.random.Generator, n: int, effect: float) -> tuple[Values, Values]:
    """Scores of both runs; those of the second are lower by `effect` on average."""
    claims, rates = rng.integers(1, 9, n), rng.beta(5, 1, n)
    return _pair(rng, claims, rates, effect, anew=0.5)


def zero_or_one(rng: np.random.Generator, n: int, effect: float) -> tuple[Values, Values]:
    return _pair(rng, np.ones(n, np.int64), rng.beta(5, 1, n), effect, anew=0.5)


def few_move(rng: np.random.Generator, n: int, effect: float) -> tuple[Values, Values]:
    claims, rates = rng.integers(1, 9, n), rng.beta(5, 1, n)
    return _pair(rng, claims, rates, effect, anew=0.1)


def _pair(
    rng: np.random.Generator, claims: NDArray[np.int64], rates: Values, effect: float, anew: float
) -> tuple[Values, Values]:
    before = rng.binomial(claims, rates) / claims
    after = rng.binomial(claims, rates * (1 - effect / anew / MEAN)) / claims
    return before, np.where(rng.random(len(claims)) < anew, after, before)


def conversations(rng: np.random.Generator, n: int, effect: float) -> tuple[Values, Values, Values]:
    """As `shares`, in conversations of 1 to 7 samples that share a rate and the effect."""
    sizes: list[int] = []
    while sum(sizes) < n:
        sizes.append(min(int(rng.integers(1, 8)), n - sum(sizes)))
    talk = np.repeat(np.arange(len(sizes)), sizes)
    rates = rng.beta(5, 1, len(sizes))[talk]
    struck = (rng.random(len(sizes)) < 0.5)[talk]
    claims = rng.integers(1, 9, n)
    before = rng.binomial(claims, rates) / claims
    after = rng.binomial(claims, rates * (1 - effect / 0.5 / MEAN)) / claims
    return before, np.where(struck, after, before), talk.astype(np.float64)


def by_conversation(moved: Values, talk: Values) -> tuple[Values, Values]:
    places = talk.astype(np.int64)
    sums, counts = np.bincount(places, moved), np.bincount(places)
    return sums.astype(np.float64), counts.astype(np.float64)


def alone(moved: Values) -> Bounds:
    return ratio_interval(moved, np.ones(len(moved)))


def coverage(draws: int) -> Iterator[tuple[str, ...]]:
    """The share of intervals that contain the true difference, or lie above or below it."""
    cases: dict[str, tuple[Draw, float]] = {
        "shares": (shares, 0.05),
        "0 or 1": (zero_or_one, 0.05),
        "few move": (few_move, 0.5 * MEAN * 0.1),
    }
    for name, (draw, effect) in cases.items():
        for n in SIZES:
            rng = np.random.default_rng(n)
            yield (
                name,
                f"{n}",
                *_covered(
                    -effect, (alone(np.subtract(*draw(rng, n, effect)[::-1])) for _ in range(draws))
                ),
            )
    for n in SIZES:
        rng = np.random.default_rng(n)
        drawn = [conversations(rng, n, 0.15) for _ in range(draws)]
        moved = [(after - before, talk) for before, after, talk in drawn]
        by = (ratio_interval(*by_conversation(m, talk)) for m, talk in moved)
        yield "talks, --by", f"{n}", *_covered(-0.15, by)
        yield "talks, without", f"{n}", *_covered(-0.15, (alone(m) for m, _ in moved))


def _covered(truth: float, bounds: Iterator[Bounds]) -> tuple[str, ...]:
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    low, high = np.array(known).T
    held = (low <= truth) & (truth <= high)
    parts = (held.mean(), (truth < low).mean(), (truth > high).mean())
    return *(_percent(part) for part in parts), f"{(high - low).mean():.3f}"


def sizes_of_tests(draws: int) -> Iterator[tuple[str, ...]]:
    """How often p is below 0.05 without a change, and where the mean fell by 0.1."""
    for name, draw in (("shares", shares), ("0 or 1", zero_or_one)):
        for n in SIZES:
            rng = np.random.default_rng(n)
            below = [
                fmean(
                    [sign_flip_p(np.subtract(*draw(rng, n, effect))) < 0.05 for _ in range(draws)]
                )
                for effect in (0.0, 0.1)
            ]
            yield name, f"{n}", *map(_percent, below)
    for n in SIZES:
        rng = np.random.default_rng(n)
        found = []
        for _ in range(draws):
            before, after, talk = conversations(rng, n, 0.0)
            # No change on average, but whole conversations change, up or down.
            up = np.random.default_rng(int(rng.integers(1 << 32))).choice([-0.2, 0.2], n)
            moved = after - before + up[talk.astype(np.int64)]
            found.append((sign_flip_p(by_conversation(moved, talk)[0]), sign_flip_p(moved)))
        by, without = (np.array(found) < 0.05).mean(0)
        yield "talks, --by", f"{n}", _percent(by), ""
        yield "talks, without", f"{n}", _percent(without), ""


def gates(draws: int) -> Iterator[tuple[str, ...]]:
    """How often a gate passes, fails and is inconclusive, by the distance of the true value."""
    for n in SIZES:
        for beyond in (0.0, 0.05, 0.1, -0.05, -0.1):
            rng = np.random.default_rng(n)
            bounds = (mean_interval(np.sort(shares(rng, n, 0.0)[0])) for _ in range(draws))
            yield "min", f"{n}", f"{0.0 - beyond:+.2f}", *_outcomes(MEAN + beyond, bounds)
        for beyond in (0.0, 0.05, 0.1, -0.02):
            rng = np.random.default_rng(n)
            effect = 0.02 + beyond
            bounds = (alone(np.subtract(*shares(rng, n, effect)[::-1])) for _ in range(draws))
            yield (
                "no_worse_than, by 0.02",
                f"{n}",
                f"{0.0 - beyond:+.2f}",
                *_outcomes(-0.02, bounds),
            )


def _outcomes(line: float, bounds: Iterator[Bounds]) -> tuple[str, str, str]:
    known = [(low, high) for low, high in bounds if low is not None and high is not None]
    low, high = np.array(known).T
    passed, failed = (low >= line).mean(), (high < line).mean()
    return _percent(passed), _percent(failed), _percent(1 - passed - failed)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def show(title: str, columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    print(f"\n{title}\n")
    print(f"{columns[0]:24}" + "".join(f"{name:>14}" for name in columns[1:]))
    for row in rows:
        print(f"{row[0]:24}" + "".join(f"{cell:>14}" for cell in row[1:]), flush=True)


def main(draws: int) -> None:
    title = f"95 % intervals of a paired difference, {draws:,} draws each"
    show(title, ("scores", "n", "hold it", "lie above", "lie below", "width"), coverage(draws))
    title = "paired permutation test: p < 0.05"
    show(title, ("scores", "n", "no change", "0.1 lower"), sizes_of_tests(draws))
    title = "gates: the truth lies so far from the line (+ is the right side)"
    show(title, ("gate", "n", "truth", "pass", "fail", "inconclusive"), gates(draws))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("draws", nargs="?", type=int, default=1_000)
    main(parser.parse_args().draws)
