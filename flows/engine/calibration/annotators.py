"""What several people say of one thing: their word together, and how far they agree."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from claimflow.flows.engine.calibration.agreement import alpha, kappa
from claimflow.flows.engine.calibration.figures import Figure
from claimflow.flows.engine.calibration.ranks import Ranks, ranks


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
