"""Whether another entailment model is better than the one that claimflow carries, and how fast.

Run as `python -m tests.benchmarks.other_model MODEL [ROWS]`: the cross-encoder MODEL, a folder or
a name of the Hub, or `embedded`, judges so many rows of each data set of human labels, or all.
Printed is the balanced accuracy on each, in per cent, at a probability of one half; then the mean
of the eight sets over which models are compared, that of all, and pairs a CPU second. The embedded
model was fitted on these very rows: what it comes to on sets left out stands on its card.
"""

import sys
import time

import numpy as np

from tests.benchmarks.entailment_rows import Labelled, read_labelled
from tests.benchmarks.logistic import balanced_accuracy
from tests.benchmarks.named_model import model_named, some_of_each
from tests.benchmarks.verification import COMPARED


def main() -> None:
    """Print a line for each data set, then the means, then the speed."""
    name = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize
    model = model_named(None if name == "embedded" else name)
    started, pairs, found = time.process_time(), 0, {}
    for family, rows in sorted(some_of_each(read_labelled(), count).items()):
        if len({row.entailed for row in rows}) < 2:
            raise SystemExit(f"{family}: of {count} rows all have one label; take more")
        said = model.judge([row.pair for row in rows])
        found[family] = accuracy(rows, [said[row.pair].entailed >= 0.5 for row in rows])
        pairs += len(said)
        print(f"{family:24}{len(rows):6}{found[family]:8.1f}", flush=True)
    seconds = time.process_time() - started
    for title, chosen in (("mean of the 8 compared", COMPARED), ("mean of all", tuple(found))):
        print(f"{title:30}{np.mean([found[one] for one in chosen]):8.1f}")
    print(f"{pairs / seconds:.1f} pairs a CPU second")


def accuracy(rows: list[Labelled], said: list[bool]) -> float:
    """Balanced accuracy of what was said of the rows, in per cent."""
    return balanced_accuracy(np.array([row.entailed for row in rows]), np.array(said))


if __name__ == "__main__":
    main()
