"""Balanced accuracy and speed of another entailment model on human-labelled pairs.

Run as `python -m tests.benchmarks.other_model MODEL [ROWS] [--template NAME]`: the cross-encoder
MODEL, a folder or the name of a Hub model, or `embedded`, judges ROWS pairs of each labelled data
set, or all. NAME is a known template, such as `factcg`.
Printed is the balanced accuracy on each, in per cent, at a threshold of 0.5; then the mean of the
eight sets over which models are compared, that of all, and pairs per CPU second. The embedded
model was fitted on these rows; its model card has figures for sets left out.
"""

import argparse
import sys
import time

import numpy as np

from claimflow.flows.pipeline.verifier_forms import KNOWN_FORMS, Form
from tests.benchmarks.labelled_pairs import (
    LabelledPair,
    load_model,
    pairs_per_family,
    read_labelled,
)
from tests.benchmarks.logistic import balanced_accuracy
from tests.benchmarks.verification import COMPARED


def main() -> None:
    """Print a line for each data set, then the means, then the speed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a folder, a Hub model, or embedded")
    parser.add_argument("rows", nargs="?", type=int, default=sys.maxsize, help="of each data set")
    parser.add_argument("--template", choices=sorted(KNOWN_FORMS), help="what the model reads")
    options = parser.parse_args()
    count = options.rows
    form = KNOWN_FORMS[options.template] if options.template else Form()
    model = load_model(None if options.model == "embedded" else options.model, form)
    started, pairs, found = time.process_time(), 0, {}
    for family, rows in sorted(pairs_per_family(read_labelled(), count).items()):
        if len({row.entailed for row in rows}) < 2:
            raise SystemExit(f"{family}: of {count} rows all have one label; take more")
        judgements = model.judge([row.pair for row in rows])
        found[family] = accuracy(rows, [judgements[row.pair].entailed >= 0.5 for row in rows])
        pairs += len(judgements)
        print(f"{family:24}{len(rows):6}{found[family]:8.1f}", flush=True)
    seconds = time.process_time() - started
    for title, chosen in (("mean of the 8 compared", COMPARED), ("mean of all", tuple(found))):
        print(f"{title:30}{np.mean([found[one] for one in chosen]):8.1f}")
    print(f"{pairs / seconds:.1f} pairs a CPU second")


def accuracy(rows: list[LabelledPair], judgements: list[bool]) -> float:
    """Balanced accuracy of verdicts on `rows`, in per cent."""
    return balanced_accuracy(np.array([row.entailed for row in rows]), np.array(judgements))


if __name__ == "__main__":
    main()
