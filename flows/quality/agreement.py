"""Agreement of judges with people and of people with each other, with 95 % intervals."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.flows.quality.distributions import t_quantile_975
from claimflow.stages.scores.formulas import wilson

Counts = NDArray[np.int_]
Values = NDArray[np.float64]

Z_975: Final = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""

_DERIVATIVE_STEP: Final = 1e-4

# The fields of these classes are keys of JSON documents.


class IntervalEstimate(NamedTuple):
    """A number and the bounds of its 95 % interval; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None


class Agreement(NamedTuple):
    """A judge compared with people, over `n` rows that both gave one of `labels`.

    `base_rates` are the shares of the labels among those of people. `confusion` counts rows by
    the label of people (down) and of the judge (across).
    """

    n: int
    labels: tuple[str, ...]
    base_rates: list[IntervalEstimate]
    accuracy: IntervalEstimate
    balanced_accuracy: IntervalEstimate
    kappa: IntervalEstimate
    alpha: IntervalEstimate
    confusion: list[list[int]]


class RankCorrelations(NamedTuple):
    """Spearman's rho and Kendall's tau-b of scores and ratings of `n` samples."""

    n: int
    spearman: IntervalEstimate
    kendall: IntervalEstimate


class AnnotatorPair(NamedTuple):
    """Two annotators on the `n` subjects that both labelled: kappa of labels, ranks of ratings."""

    one: str
    other: str
    n: int
    kappa: IntervalEstimate | None
    ranks: RankCorrelations | None


class AnnotatorAgreement(NamedTuple):
    """How many subjects each annotator labelled, and their agreement on the `shared` ones.

    `alpha` is Krippendorff's, nominal for labels and of the interval level for ratings.
    """

    labels: Mapping[str, int]
    shared: int
    alpha: IntervalEstimate
    pairs: list[AnnotatorPair]


_UNDEFINED: Final = IntervalEstimate(None, None, None)


def clipped_interval(value: float, reach: float, lowest: float, highest: float) -> IntervalEstimate:
    """`value` clipped to its bounds, with a clipped interval of `reach` on either side of it."""
    inside = min(highest, max(lowest, value))
    return IntervalEstimate(inside, max(lowest, inside - reach), min(highest, inside + reach))


def proportion(part: int, whole: int) -> IntervalEstimate:
    """`part` of `whole` with the score interval (Wilson 1927)."""
    return IntervalEstimate(part / whole, *wilson(part, whole)) if whole else _UNDEFINED


def agreement(truth: Sequence[str], judged: Sequence[str], labels: Sequence[str]) -> Agreement:
    """Compare the labels of people with those of a judge on the same rows, at least one."""
    from sklearn.metrics import confusion_matrix

    confusion = confusion_matrix(truth, judged, labels=list(labels))
    n = len(truth)
    return Agreement(
        n=n,
        labels=tuple(labels),
        base_rates=[proportion(int(row.sum()), n) for row in confusion],
        accuracy=proportion(int(np.trace(confusion)), n),
        balanced_accuracy=balanced_accuracy(confusion),
        kappa=cohen_kappa(confusion),
        alpha=krippendorff_alpha(rating_counts(confusion)),
        confusion=confusion.tolist(),
    )


def cohen_kappa(confusion: Counts) -> IntervalEstimate:
    """Cohen's kappa (1960) of a confusion matrix; None where both use one label only."""
    from sklearn.metrics import cohen_kappa_score

    return _delta_method(confusion, cohen_kappa_score, lowest=-1, both_sides=True)


def balanced_accuracy(confusion: Counts) -> IntervalEstimate:
    """The mean recall of the labels that people gave (Brodersen et al. 2010)."""
    from sklearn.metrics import balanced_accuracy_score

    return _delta_method(confusion, balanced_accuracy_score, lowest=0, both_sides=False)


def krippendorff_alpha(counts: Counts, *, domain: Values | None = None) -> IntervalEstimate:
    """Krippendorff's alpha (2011) of `counts` of each label (across) by subject (down).

    With `domain` the labels are these numbers, and alpha is that of the interval level; otherwise
    it is nominal. The interval is the jackknife's (Efron and Stein 1981) by Student's t; where all
    raters agree, it is computed as if they disagreed on one more subject. None where only one
    label is used, or no subject has two labels.
    """
    shared = counts[counts.sum(axis=1) > 1]
    if _single_label(shared.sum(axis=0)):
        return _UNDEFINED
    points = np.eye(counts.shape[1]) if domain is None else domain[:, np.newaxis]
    if domain is None:
        import krippendorff

        value = float(krippendorff.alpha(value_counts=shared, level_of_measurement="nominal"))
    else:
        value = float(_leave_one_out_alphas(shared, points)[0])
    if bool(((shared > 0).sum(axis=1) == 1).all()):
        two_most_common = np.argsort(-shared.sum(axis=0), kind="stable")[:2]
        shared = np.vstack([shared, np.bincount(two_most_common, minlength=shared.shape[1])])
    n = len(shared)
    if n < 3 or bool(_single_label(shared.sum(axis=0) - shared).any()):
        return IntervalEstimate(value, None, None)
    replicates = _leave_one_out_alphas(shared, points)[1:]
    variance = (n - 1) / n * float(((replicates - replicates.mean()) ** 2).sum())
    return clipped_interval(value, t_quantile_975(n) * variance**0.5, -1, 1)


def rating_counts(confusion: Counts) -> Counts:
    """The rows of a confusion matrix as counts of labels by subject, for two raters."""
    size = len(confusion)
    one = np.eye(size, dtype=np.int_)
    by_cell = [one[down] + one[across] for down in range(size) for across in range(size)]
    return np.repeat(np.array(by_cell), confusion.ravel(), axis=0)


def rank_correlations(ratings: Sequence[float], scores: Sequence[float]) -> RankCorrelations:
    """Whether scores order samples as ratings do; None below three samples or for a constant side.

    Intervals by Fisher's z transformation, with the standard errors of Bonett and Wright (2000)
    for rho and of Fieller, Hartley and Pearson (1957) for tau; none below five samples. Where the
    order is the same, or the opposite, they are computed as if two neighbours had changed places.
    """
    from scipy import stats

    n = len(ratings)
    if n < 3 or not np.ptp(ratings) or not np.ptp(scores):
        return RankCorrelations(n, _UNDEFINED, _UNDEFINED)
    rho = float(stats.spearmanr(ratings, scores).statistic)
    tau = float(stats.kendalltau(ratings, scores).statistic)
    if n < 5:
        estimates = IntervalEstimate(rho, None, None), IntervalEstimate(tau, None, None)
        return RankCorrelations(n, *estimates)
    return RankCorrelations(
        n,
        _fisher_interval(rho, ((1 + rho**2 / 2) / (n - 3)) ** 0.5, 1 - 12 / (n * (n**2 - 1))),
        _fisher_interval(tau, (0.437 / (n - 4)) ** 0.5, 1 - 4 / (n * (n - 1))),
    )


def consensus(labels: pl.DataFrame) -> dict[str, str | float | None]:
    """The majority label of each subject, None for a tie; of ratings the mean.

    A label that adjudicates decides alone.
    """
    found: dict[str, str | float | None] = {}
    for (subject,), given in labels.partition_by("subject", as_dict=True).items():
        deciding = given.filter("adjudicates")
        rows = given if deciding.is_empty() else deciding
        if rows["rating"].null_count() == 0:
            found[str(subject)] = float(np.mean(rows["rating"].to_numpy()))
            continue
        (first, most), *others = Counter(rows["label"].to_list()).most_common()
        found[str(subject)] = None if others and others[0][1] == most else first
    return found


def annotator_agreement(labels: pl.DataFrame, values: Sequence[str] | None) -> AnnotatorAgreement:
    """How far the annotators of `labels` agree; `values` are the labels, None for ratings.

    Labels that adjudicate are left out: their annotators saw those of the others.
    """
    labels = labels.filter(~pl.col("adjudicates"))
    counts = dict(labels.group_by("annotator").len().sort("annotator").iter_rows())
    shared = labels.group_by("subject").len().filter(pl.col("len") > 1).height
    alpha = _alpha_of_annotators(labels, values) if shared else _UNDEFINED
    pairs = [_annotator_pair(labels, *names, values) for names in combinations(counts, 2)]
    return AnnotatorAgreement(counts, shared, alpha, [pair for pair in pairs if pair.n])


def _alpha_of_annotators(labels: pl.DataFrame, values: Sequence[str] | None) -> IntervalEstimate:
    column = "label" if values else "rating"
    domain = values or labels["rating"].unique().sort().to_list()
    by_subject = labels.group_by("subject").agg(
        (pl.col(column) == value).sum().alias(str(place)) for place, value in enumerate(domain)
    )
    counts = by_subject.sort("subject").drop("subject").to_numpy().astype(np.int_)
    numbers = None if values else np.array(domain, dtype=np.float64)
    return krippendorff_alpha(counts, domain=numbers)


def _annotator_pair(
    labels: pl.DataFrame, one: str, other: str, values: Sequence[str] | None
) -> AnnotatorPair:
    a, b = (labels.filter(annotator=name).sort("subject") for name in (one, other))
    both = a.join(b, on="subject", suffix="_b", maintain_order="left")
    if not values:
        ranks = rank_correlations(both["rating"].to_list(), both["rating_b"].to_list())
        return AnnotatorPair(one, other, both.height, None, ranks)
    from sklearn.metrics import confusion_matrix

    shared = both["label"].to_list(), both["label_b"].to_list()
    kappa = cohen_kappa(confusion_matrix(*shared, labels=list(values))) if both.height else None
    return AnnotatorPair(one, other, both.height, kappa, None)


def _single_label(counts: Counts) -> NDArray[np.bool_]:
    """Whether fewer than two labels (across) have a count above 0."""
    single: NDArray[np.bool_] = (counts > 0).sum(axis=-1) < 2
    return single


def _leave_one_out_alphas(counts: Counts, points: Values) -> Values:
    """Alpha of all subjects, then without each of them, shape (subjects + 1,).

    A label is its row of `points`. NaN where fewer than two labels are left, up to rounding.
    Computed from sums of squares: the library allocates the square of the number of labels for
    each subject, too much for hundreds of ratings, and would have to be called for each subject.
    """
    points = points - points.mean(axis=0)
    given = counts.sum(axis=1).astype(np.float64)
    sums, squares = counts @ points, counts @ (points**2).sum(axis=1)
    apart = (given * squares - (sums**2).sum(axis=1)) / (given - 1)
    number, total, square, within = (
        whole.sum(axis=0) - np.concatenate([np.zeros_like(whole[:1]), whole])
        for whole in (given, sums, squares, apart)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas: Values = 1 - (number - 1) * within / (number * square - (total**2).sum(axis=1))
    return alphas


def _delta_method(
    confusion: Counts, measure: Callable[..., float], *, lowest: float, both_sides: bool
) -> IntervalEstimate:
    """`measure` of a confusion matrix, its interval by the delta method and Student's t.

    The variance is that of the matrix with half a row added to each cell, so that a judge that was
    always right is not certain to be. Cells of labels that neither side gave are left out, and
    unless `both_sides` those of labels that people did not give.
    """
    size = len(confusion)
    truth, judged = np.repeat(np.arange(size), size), np.tile(np.arange(size), size)

    def measured(weights: Values) -> float:
        with warnings.catch_warnings():
            # The library warns where the measure is 0 / 0.
            warnings.simplefilter("ignore")
            used = weights > 0
            return float(measure(truth[used], judged[used], sample_weight=weights[used]))

    cells, n = confusion.ravel().astype(np.float64), int(confusion.sum())
    value = measured(cells)
    if not math.isfinite(value):
        return _UNDEFINED
    by_people = confusion.sum(axis=1) > 0
    by_any = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    possible = np.outer(by_any if both_sides else by_people, by_any).ravel()
    if n < 3 or possible.sum() < 2:
        return IntervalEstimate(value, None, None)
    smooth = np.where(possible, cells + 0.5, 0.0)
    smooth /= smooth.sum()
    start = measured(smooth)
    gradient = np.zeros(len(cells))
    for cell in np.flatnonzero(possible):
        moved = smooth.copy()
        moved[cell] += _DERIVATIVE_STEP
        gradient[cell] = (measured(moved) - start) / _DERIVATIVE_STEP
    variance = float((smooth * gradient**2).sum() - (smooth * gradient).sum() ** 2)
    return clipped_interval(value, t_quantile_975(n) * (max(variance, 0.0) / n) ** 0.5, lowest, 1)


def _fisher_interval(value: float, error: float, nearest: float) -> IntervalEstimate:
    """A correlation with its interval, which is that of a value at most `nearest` to 1 or -1."""
    middle, reach = math.atanh(min(nearest, max(-nearest, value))), Z_975 * error
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return IntervalEstimate(value, min(low, value), max(high, value))
