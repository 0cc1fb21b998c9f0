"""What a cascade leaves to its judge, and how often the embedded model errs where it is sure.

Run as `python -m tests.benchmarks.cascade [ROWS [MODEL]]`: so many rows of each data set of human
labels (100), judged by the embedded model or by the cross-encoder MODEL, a folder or a name of
the Hub. For each pair of bounds: the share that is settled, and the share of those whose label
people did not give, with its exact 95 % interval. A judge that always says what people say would
find that share in its audit.
"""

import sys
import time

from claimflow.flows.quality.cascades import clopper_pearson
from claimflow.stages.judging.cascade import Cascade
from claimflow.stages.tools import Judgement
from tests.benchmarks.entailment_rows import Labelled, read_labelled
from tests.benchmarks.named_model import model_named, some_of_each

BOUNDS = ((0.02, 0.98), (0.05, 0.95), (0.1, 0.9), (0.2, 0.8), (0.3, 0.7))

Judged = list[tuple[Labelled, Judgement]]


def main() -> None:
    """Print a line for each pair of bounds, then one for each data set at the usual bounds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chosen = some_of_each(read_labelled(), count)
    model = model_named(sys.argv[2] if len(sys.argv) > 2 else None)
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
    """How many of `rows` the model settles, and how many of those wrongly."""
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
