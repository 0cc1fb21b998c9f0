"""Share of verdicts that a cascade settles without its judge, and the error rate of these.

Run as `python -m tests.benchmarks.cascade [ROWS [MODEL]]`: ROWS pairs of each labelled data set
(100), judged by the embedded model or by the cross-encoder MODEL, a folder or the name of a Hub
model. For each pair of bounds: the share that is settled, and the share of those that differs
from the human label, with its exact 95 % interval. The audit of a judge that always agrees with
people would find that error rate.
"""

import argparse
import time

from claimflow.flows.quality.distributions import clopper_pearson
from claimflow.stages.judging.cascade import Cascade
from claimflow.stages.tools import Judgement
from tests.benchmarks.labelled_pairs import (
    LabelledPair,
    load_model,
    pairs_per_family,
    read_labelled,
)

BOUNDS = ((0.02, 0.98), (0.05, 0.95), (0.1, 0.9), (0.2, 0.8), (0.3, 0.7))

Judged = list[tuple[LabelledPair, Judgement]]


def main() -> None:
    """Print a line for each pair of bounds, then one for each data set at the default bounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="?", type=int, default=100, help="of each data set")
    parser.add_argument("model", nargs="?", help="a folder or a Hub model")
    options = parser.parse_args()
    chosen = pairs_per_family(read_labelled(), options.rows)
    model = load_model(options.model)
    pairs = [row.pair for rows in chosen.values() for row in rows]
    started = time.process_time()
    judged = model.judge(pairs)
    seconds = time.process_time() - started
    print(
        f"{len(pairs):,} pairs of {len(chosen)} data sets, {len(pairs) / seconds:.0f} a CPU second"
    )
    sets = {name: [(row, judged[row.pair]) for row in rows] for name, rows in chosen.items()}
    print(f"\n{'between':24}{'settled %':>10}{'wrong':>14}{'wrong %':>9}   95 % interval")
    for bounds in BOUNDS:
        cascade = Cascade(between=bounds, audit=0)
        print(line(str(list(bounds)), cascade, [one for rows in sets.values() for one in rows]))
    print()
    for name, rows in sorted(sets.items()):
        print(line(name, Cascade(audit=0), rows))


def line(title: str, cascade: Cascade, rows: Judged) -> str:
    """A line with the share of `rows` that the model settles, and the errors among these."""
    settled = [
        (row, judged) for row, judged in rows if cascade.judged_by(row.pair, judged) == "embedded"
    ]
    wrong = sum(row.entailed != (judged.entailed >= 0.5) for row, judged in settled)
    low, high = clopper_pearson(wrong, len(settled))
    if low is None or high is None:
        return f"{title:24}{0:10.1f}"
    counts = f"{wrong:,} of {len(settled):,}"
    share = f"{100 * wrong / len(settled):9.1f}   {100 * low:.1f} to {100 * high:.1f}"
    return f"{title:24}{100 * len(settled) / len(rows):10.1f}{counts:>14}{share}"


if __name__ == "__main__":
    main()
