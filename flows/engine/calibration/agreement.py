"""How often two say the same, and how much more often than by chance."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from claimflow.flows.engine.calibration.figures import Figure, clipped, share, student

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
