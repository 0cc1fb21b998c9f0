"""Fit the weights of the embedded entailment model.

Run as `python -m tests.benchmarks.fit_entailment [--folder FOLDER]`, where the folder holds
the network; the weights are put beside it. Takes about four CPU minutes, nearly all of them
in the network. The same data give the same weights up to rounding; the mean balanced
accuracy with each data set left out in turn is printed by `verification.py`.

Two models are fitted: entailed against not, on all rows; and contradicted against
neutral, on the rows with one of these labels. In both, each data set and each rule has the same
total weight, each class half of it, so that 0.5 is the balanced threshold. The network was not
trained on any of these rows: it would be too confident on rows that it memorised.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from claimflow.flows.models.entailment.features import (
    LEXICAL_FEATURES,
    NETWORK_FEATURES,
    SHARED_FEATURES,
    measure_pairs,
)
from claimflow.flows.models.entailment.model import (
    SHIPPED,
    WEIGHTS_FILE,
    LabelModels,
    Logistic,
    Network,
    Weights,
)
from tests.benchmarks.labelled_pairs import LabelledPair, changed_pairs, read_labelled
from tests.benchmarks.logistic import Matrix, balanced, fit, standardised

RIDGE = 10.0
"""L2 penalty. With a set left out, 3 to 30 give the same accuracy up to noise."""

DIGITS = 6


class Measurements(NamedTuple):
    """Labelled rows and their features, in the same order; rows without a word are left out."""

    names: list[str]
    rows: list[LabelledPair]
    features: Matrix

    def part(self, chosen: Sequence[bool]) -> "Measurements":
        """The rows where `chosen` is true."""
        rows = [row for row, keep in zip(self.rows, chosen, strict=True) if keep]
        return Measurements(self.names, rows, self.features[np.array(chosen)])


def rows_to_fit() -> list[LabelledPair]:
    """The data sets, and the pairs made of them by rule."""
    rows = read_labelled()
    return [*rows, *changed_pairs(rows)]


def measure_rows(rows: Sequence[LabelledPair], folder: Path = SHIPPED) -> Measurements:
    """Features of `rows`, by the network in `folder`."""
    measured = measure_pairs([row.pair for row in rows], Network(folder).logits)
    kept = [row for row in rows if row.pair in measured]
    names = list(measured[kept[0].pair].features)
    features = [[measured[row.pair].features[name] for name in names] for row in kept]
    return Measurements(names, kept, np.array(features))


def fit_weights(data: Measurements) -> Weights:
    """Weights fitted on all of `data`.

    Where the network has read a pair, only its output separates contradicted from neutral: so few
    rows have these labels that the other features would separate the data sets instead.
    """
    unlike = data.part(
        [not row.entailed and not row.rule and row.label is not None for row in data.rows]
    )
    centre, spread = data.features.mean(axis=0), np.maximum(data.features.std(axis=0), 1e-6)

    def models(entailed: Sequence[str], contradicted: Sequence[str]) -> LabelModels:
        flags = [row.label == "contradicted" for row in unlike.rows]
        return LabelModels(
            _fit(data, [row.entailed for row in data.rows], (centre, spread), entailed),
            _fit(unlike, flags, (centre, spread), contradicted),
        )

    return Weights(
        _named(data.names, centre),
        _named(data.names, spread),
        models([*NETWORK_FEATURES, *SHARED_FEATURES], NETWORK_FEATURES[1:]),
        models(LEXICAL_FEATURES, LEXICAL_FEATURES),
    )


def _fit(
    data: Measurements, positive: list[bool], scales: tuple[Matrix, Matrix], names: Sequence[str]
) -> Logistic:
    flags = np.array(positive)
    chosen = [data.names.index(name) for name in names]
    inputs = standardised(data.features[:, chosen], *(scale[chosen] for scale in scales))
    groups = [row.rule or row.family for row in data.rows]
    coefficients = fit(inputs, flags, balanced(groups, flags), RIDGE)
    return Logistic(round(float(coefficients[-1]), DIGITS), _named(names, coefficients[:-1]))


def _named(names: Sequence[str], numbers: Matrix) -> dict[str, float]:
    pairs = zip(names, numbers, strict=True)
    return {name: round(float(number), DIGITS) for name, number in pairs}


def write(weights: Weights, folder: Path) -> None:
    """Write `weights` as the JSON file that the model reads."""
    content: dict[str, Any] = weights._asdict()
    for kind in ("read", "counted"):
        content[kind] = {name: one._asdict() for name, one in content[kind]._asdict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Fit on everything and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--folder", type=Path, default=SHIPPED, help="network and weights")
    options = parser.parse_args()
    data = measure_rows(rows_to_fit(), options.folder)
    write(fit_weights(data), options.folder)
    print(f"fitted {len(data.names)} features on {len(data.rows):,} rows: {options.folder}")


if __name__ == "__main__":
    main()
