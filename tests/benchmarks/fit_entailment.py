"""Fit the weights of the embedded entailment model.

Run as `python tests/benchmarks/fit_entailment.py [--further FILE] [--out FOLDER]`. Takes
about four CPU minutes, nearly all of them for embeddings. The same data give the same
weights up to rounding; the mean balanced accuracy with each data set left out in turn is
printed by `verification.py`.

Two models are fitted: entailed against not, on all rows; and contradicted against
neutral, on the rows that are not entailed and whose kind is known. In both each data set
has the same total weight, each class half of it, so that 0.5 is the balanced decision.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from entailment_made import made_pairs
from entailment_rows import FURTHER, Labelled, read_labelled
from logistic import Matrix, balanced, fit, standardised

from flows.engine.embedder import OnnxEmbedder
from flows.engine.entailment.model import SHIPPED
from flows.engine.entailment.pairs import measure_pairs
from flows.engine.entailment.weights import WEIGHTS_FILE, Logistic, Weights

RIDGE = 10.0
"""L2 penalty. With a set left out, 3 to 30 give the same accuracy up to noise."""

FURTHER_SHARE = 0.5
"""What a group of further rows weighs beside a data set."""

DIGITS = 6


class Measurements(NamedTuple):
    """Labelled rows and their features, in the same order; rows without a word are left out."""

    names: list[str]
    rows: list[Labelled]
    features: Matrix

    def part(self, chosen: Sequence[bool]) -> "Measurements":
        """The rows where `chosen` is true."""
        rows = [row for row, keep in zip(self.rows, chosen, strict=True) if keep]
        return Measurements(self.names, rows, self.features[np.array(chosen)])


def rows_to_fit(further: Path = FURTHER) -> list[Labelled]:
    """The data sets, the rows of `further`, and the pairs made of those."""
    rows = read_labelled(further)
    return rows + made_pairs(rows)


def measure_rows(rows: Sequence[Labelled]) -> Measurements:
    """Features of `rows`, by the embedding model that claimflow carries."""
    measured = measure_pairs([row.pair for row in rows], OnnxEmbedder())
    kept = [row for row in rows if row.pair in measured]
    names = list(measured[kept[0].pair].features)
    features = [[measured[row.pair].features[name] for name in names] for row in kept]
    return Measurements(names, kept, np.array(features))


def fit_weights(data: Measurements) -> Weights:
    """Weights fitted on all of `data`."""
    centre, spread = data.features.mean(axis=0), np.maximum(data.features.std(axis=0), 1e-6)
    unlike = data.part([not row.entailed and row.label is not None for row in data.rows])
    return Weights(
        _named(data.names, centre),
        _named(data.names, spread),
        _fit(data, [row.entailed for row in data.rows], centre, spread),
        _fit(unlike, [row.label == "contradicted" for row in unlike.rows], centre, spread),
    )


def _fit(data: Measurements, positive: list[bool], centre: Matrix, spread: Matrix) -> Logistic:
    flags = np.array(positive)
    groups = [row.group for row in data.rows]
    share = {row.group: FURTHER_SHARE for row in data.rows if row.further}
    inputs = standardised(data.features, centre, spread)
    coefficients = fit(inputs, flags, balanced(groups, flags, share), RIDGE)
    return Logistic(round(float(coefficients[-1]), DIGITS), _named(data.names, coefficients[:-1]))


def _named(names: Sequence[str], numbers: Matrix) -> dict[str, float]:
    pairs = zip(names, numbers, strict=True)
    return {name: round(float(number), DIGITS) for name, number in pairs}


def write(weights: Weights, folder: Path) -> None:
    """Write `weights` as the JSON file that the model reads."""
    content: dict[str, Any] = weights._asdict()
    content["entailed"] = weights.entailed._asdict()
    content["contradicted"] = weights.contradicted._asdict()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Fit on everything and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--further", type=Path, default=FURTHER, help="further rows to fit on")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder for the weights")
    options = parser.parse_args()
    data = measure_rows(rows_to_fit(options.further))
    write(fit_weights(data), options.out)
    print(f"fitted {len(data.names)} features on {len(data.rows):,} rows: {options.out}")


if __name__ == "__main__":
    main()
