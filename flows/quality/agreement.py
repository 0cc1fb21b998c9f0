"""Agreement of judges with people and of people with each other."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

# A number with its 95 % interval.


Z: Final = 1.959963984540054
"""Of the standard normal distribution at 97.5 %."""


class Figure(NamedTuple):
    """A number and the bounds of its 95 % interval; None where it cannot be had."""

    value: float | None
    low: float | None
    high: float | None


def clipped(value: float, reach: float, lowest: float, highest: float) -> Figure:
    """`value` brought within its bounds, with an interval of `reach` on either side of that."""
    inside = min(highest, max(lowest, value))
    return Figure(inside, max(lowest, inside - reach), min(highest, inside + reach))


def student(n: int) -> float:
    """How many standard errors of a mean of `n` its 95 % interval reaches to either side."""
    from scipy import stats

    return float(stats.t.ppf(0.975, n - 1))


def share(part: int, whole: int) -> Figure:
    """`part` of `whole` with the score interval of a proportion (Wilson 1927)."""
    if not whole:
        return Figure(None, None, None)
    from scipy import stats

    bounds = stats.binomtest(part, whole).proportion_ci(0.95, "wilson")
    return Figure(part / whole, float(bounds.low), float(bounds.high))


# How often two say the same, and how much more often than by chance.


Counts = NDArray[np.float64]

STEP: Final = 1e-4
"""How far a cell is moved to see what follows from it."""


class Agreement(NamedTuple):
    """A judge beside people, over `n` rows that both gave one of `labels`.

    `base_rates` are the shares of the labels among what people said; `confusion` counts rows by
    what people said (down) and the judge (across).
    """

    n: int
    labels: tuple[str, ...]
    base_rates: list[Figure]
    accuracy: Figure
    balanced_accuracy: Figure
    kappa: Figure
    alpha: Figure
    confusion: list[list[int]]


def agreement(truth: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> Agreement:
    """What people said beside what a judge said of the same rows, of which there must be one."""
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(truth, said, labels=list(labels))
    n = len(truth)
    return Agreement(
        n=n,
        labels=tuple(labels),
        base_rates=[share(int(row.sum()), n) for row in counts],
        accuracy=share(int(np.trace(counts)), n),
        balanced_accuracy=balanced_accuracy(counts),
        kappa=kappa(counts),
        alpha=alpha(pairs(counts)),
        confusion=counts.tolist(),
    )


def kappa(counts: NDArray[np.int_]) -> Figure:
    """Cohen's kappa (1960) of a confusion matrix; None where both say one thing only."""
    from sklearn.metrics import cohen_kappa_score

    return _moved(counts, cohen_kappa_score, lowest=-1, everywhere=True)


def balanced_accuracy(counts: NDArray[np.int_]) -> Figure:
    """The mean share that a judge gets right of each label that people gave."""
    from sklearn.metrics import balanced_accuracy_score

    return _moved(counts, balanced_accuracy_score, lowest=0, everywhere=False)


def alpha(votes: NDArray[np.int_], *, domain: Counts | None = None) -> Figure:
    """Krippendorff's alpha (2011) of `votes`: how many gave each label (across) to a thing (down).

    With `domain` the labels are these numbers, and alpha is that of the interval level. The
    interval is the jackknife's (Efron and Stein 1981) by Student's t; where all agree, as if they
    did not on one more thing. None where all say one thing, or nothing has two labels.
    """
    shared = votes[votes.sum(axis=1) > 1]
    if _said_once(shared.sum(axis=0)):
        return Figure(None, None, None)
    points = np.eye(votes.shape[1]) if domain is None else domain[:, np.newaxis]
    value = _alpha(shared) if domain is None else float(_alphas(shared, points)[0])
    if bool(((shared > 0).sum(axis=1) == 1).all()):
        common = np.argsort(-shared.sum(axis=0), kind="stable")[:2]
        shared = np.vstack([shared, np.bincount(common, minlength=shared.shape[1])])
    n = len(shared)
    if n < 3 or bool(_said_once(shared.sum(axis=0) - shared).any()):
        return Figure(value, None, None)
    without = _alphas(shared, points)[1:]
    spread = (n - 1) / n * float(((without - without.mean()) ** 2).sum())
    return clipped(value, student(n) * spread**0.5, -1, 1)


def _said_once(given: NDArray[np.int_]) -> NDArray[np.bool_]:
    """Whether of counts of labels (across) fewer than two are more than 0."""
    once: NDArray[np.bool_] = (given > 0).sum(axis=-1) < 2
    return once


def _alpha(votes: NDArray[np.int_]) -> float:
    import krippendorff

    return float(krippendorff.alpha(value_counts=votes, level_of_measurement="nominal"))


def _alphas(votes: NDArray[np.int_], points: Counts) -> Counts:
    """Alpha of all things, and then without each of them; a label is its row of `points`.

    NaN where that leaves fewer than two labels, up to rounding. By sums of squares: the library
    holds the square of the number of labels for each thing, too much for hundreds of ratings,
    and would have to be asked once for each.
    """
    points = points - points.mean(axis=0)
    given = votes.sum(axis=1).astype(np.float64)
    sums, squares = votes @ points, votes @ (points**2).sum(axis=1)
    apart = (given * squares - (sums**2).sum(axis=1)) / (given - 1)
    number, total, square, within = (
        whole.sum(axis=0) - np.concatenate([np.zeros_like(whole[:1]), whole])
        for whole in (given, sums, squares, apart)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Counts = 1 - (number - 1) * within / (number * square - (total**2).sum(axis=1))
    return found


def pairs(counts: NDArray[np.int_]) -> NDArray[np.int_]:
    """The rows of a confusion matrix as things that two gave a label to."""
    size = len(counts)
    one = np.eye(size, dtype=np.int_)
    each = [one[down] + one[across] for down in range(size) for across in range(size)]
    return np.repeat(np.array(each), counts.ravel(), axis=0)


def _moved(
    counts: NDArray[np.int_], measure: Callable[..., float], *, lowest: float, everywhere: bool
) -> Figure:
    """`measure` of a confusion matrix, its interval by the delta method and Student's t.

    The spread is that of the matrix with half a row more in each cell, so that a
    judge that was always right is not certain to be. Cells of labels that nobody gave are left
    out, and unless `everywhere` those of labels that people did not give.
    """
    size = len(counts)
    truth, said = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)

    def at(weights: Counts) -> float:
        with warnings.catch_warnings():
            # Where it is 0 / 0 it says so.
            warnings.simplefilter("ignore")
            held = weights > 0
            return float(measure(truth[held], said[held], sample_weight=weights[held]))

    flat, n = counts.ravel().astype(np.float64), int(counts.sum())
    value = at(flat)
    if not math.isfinite(value):
        return Figure(None, None, None)
    given, used = counts.sum(axis=1) > 0, (counts.sum(axis=0) + counts.sum(axis=1)) > 0
    cells = np.outer(used if everywhere else given, used).ravel()
    if n < 3 or cells.sum() < 2:
        return Figure(value, None, None)
    smooth = np.where(cells, flat + 0.5, 0.0)
    smooth /= smooth.sum()
    start = at(smooth)
    moves = np.array(
        [(at(smooth + STEP * one) - start) / STEP if cells[c] else 0.0
         for c, one in enumerate(np.eye(len(flat)))]
    )  # fmt: skip
    spread = float((smooth * moves**2).sum() - (smooth * moves).sum() ** 2)
    return clipped(value, student(n) * (max(spread, 0.0) / n) ** 0.5, lowest, 1)


# Whether a metric and people put samples in the same order.


class Ranks(NamedTuple):
    """Spearman's rho and Kendall's tau-b of scores and ratings of `n` samples."""

    n: int
    spearman: Figure
    kendall: Figure


def ranks(ratings: Sequence[float], scores: Sequence[float]) -> Ranks:
    """The two correlations; None where either side is all alike, or below three samples.

    Intervals by Fisher's transformation, with the standard errors of Bonett and Wright (2000)
    for rho and of Fieller, Hartley and Pearson (1957) for tau; none below five samples. Where
    the order is the same, or the opposite, as if two neighbours in it had changed places.
    """
    from scipy import stats

    n = len(ratings)
    if n < 3 or not np.ptp(ratings) or not np.ptp(scores):
        nothing = Figure(None, None, None)
        return Ranks(n, nothing, nothing)
    rho = float(stats.spearmanr(ratings, scores).statistic)
    tau = float(stats.kendalltau(ratings, scores).statistic)
    if n < 5:
        return Ranks(n, Figure(rho, None, None), Figure(tau, None, None))
    return Ranks(
        n,
        _between(rho, ((1 + rho**2 / 2) / (n - 3)) ** 0.5, 1 - 12 / (n * (n**2 - 1))),
        _between(tau, (0.437 / (n - 4)) ** 0.5, 1 - 4 / (n * (n - 1))),
    )


def _between(value: float, error: float, nearest: float) -> Figure:
    """`value` with its interval, which is that of no more than `nearest` to 1 or -1."""
    middle, reach = math.atanh(min(nearest, max(-nearest, value))), Z * error
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return Figure(value, min(low, value), max(high, value))


# What several people say of one thing: their word together, and how far they agree.


class Pair(NamedTuple):
    """Two annotators over the `n` things that both labelled: kappa of labels, ranks of ratings."""

    one: str
    other: str
    n: int
    kappa: Figure | None
    ranks: Ranks | None


class Annotators(NamedTuple):
    """Who labelled how many things; of those with two labels or more, how far they agree.

    `alpha` is Krippendorff's, nominal for labels and of the interval level for ratings.
    """

    labels: Mapping[str, int]
    shared: int
    alpha: Figure
    pairs: list[Pair]


def word_of(labels: pl.DataFrame) -> dict[str, str | float | None]:
    """What people say together of each subject: most of them, None where they are divided.

    Of ratings it is the mean.
    """
    found: dict[str, str | float | None] = {}
    for (subject,), rows in labels.partition_by("subject", as_dict=True).items():
        if rows["rating"].null_count() == 0:
            found[str(subject)] = float(np.mean(rows["rating"].to_numpy()))
            continue
        (first, most), *others = Counter(rows["label"].to_list()).most_common()
        found[str(subject)] = None if others and others[0][1] == most else first
    return found


def annotators(labels: pl.DataFrame, values: Sequence[str] | None) -> Annotators:
    """How far the annotators of `labels` agree; `values` are the labels, None for ratings."""
    counts = dict(labels.group_by("annotator").len().sort("annotator").iter_rows())
    by_person: dict[str, dict[str, str | float]] = {name: {} for name in counts}
    for row in labels.iter_rows(named=True):
        by_person[row["annotator"]][row["subject"]] = row["label"] if values else row["rating"]
    shared = labels.group_by("subject").len().filter(pl.col("len") > 1).height
    together = _together(by_person, values) if shared else Figure(None, None, None)
    pairs = [_pair(one, other, by_person, values) for one, other in combinations(counts, 2)]
    return Annotators(counts, shared, together, [pair for pair in pairs if pair.n])


def _together(
    by_person: Mapping[str, Mapping[str, str | float]], values: Sequence[str] | None
) -> Figure:
    said = [dict(of_one) for of_one in by_person.values()]
    given = {value for of_one in said for value in of_one.values()}
    domain: list[str | float] = [*values] if values else sorted(given, key=float)
    place = {value: number for number, value in enumerate(domain)}
    subjects = sorted({subject for of_one in said for subject in of_one})
    votes = np.zeros((len(subjects), len(domain)), dtype=np.int_)
    row = {subject: number for number, subject in enumerate(subjects)}
    for of_one in said:
        for subject, value in of_one.items():
            votes[row[subject], place[value]] += 1
    return alpha(votes, domain=None if values else np.array(domain, dtype=np.float64))


def _pair(
    one: str,
    other: str,
    by_person: Mapping[str, Mapping[str, str | float]],
    values: Sequence[str] | None,
) -> Pair:
    both = sorted(by_person[one].keys() & by_person[other].keys())
    a, b = ([by_person[name][subject] for subject in both] for name in (one, other))
    if not values:
        return Pair(
            one, other, len(both), None, ranks([float(x) for x in a], [float(x) for x in b])
        )
    counts = np.zeros((len(values), len(values)), dtype=np.int_)
    for left, right in zip(a, b, strict=True):
        counts[values.index(str(left)), values.index(str(right))] += 1
    return Pair(one, other, len(both), kappa(counts) if both else None, None)
