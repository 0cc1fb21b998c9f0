"""Balanced accuracy of the embedded entailment model per data set, and its speed.

Run as `python -m tests.benchmarks.verification`. Takes about four CPU minutes, nearly all
of them in the network. Columns, in per cent:

- `left out`: weights fitted without any row of that data set;
- `read`: the network alone, at a threshold of 0.5; it was not trained on any of these sets;
- `shipped`: the weights that claimflow carries, which were fitted on these rows;
- `overlap`: 0.6 x unigram + 0.4 x bigram coverage of the claim, with the
  threshold that is best in the mean over all other sets;
- `off`: as `left out`, the expected calibration error: by how much the mean probability of entailed
  and the share of entailed rows differ, on average over ten equal bins of probability;
- `verdicts`: shipped weights, the verdicts that are right, where the labels are all three;
- `precision`, `recall`: shipped weights, of the verdict contradicted on the same rows;
- `reversed`: shipped weights, the entailed rows with the verdict contradicted, where the labels are
  at least two of the three.

The last lines have the `off` and the `reversed` of all rows together, the latter also at higher
values of `contradiction_threshold`, beside what they cost in contradicted rows that are not found.
"""

import re
import time
from collections import Counter
from itertools import pairwise

import numpy as np

from claimflow.flows.models.entailment.model import (
    SHIPPED,
    EmbeddedEntailment,
    Weights,
    read_weights,
)
from claimflow.stages.tools import Judgement
from claimflow.stages.verify import VerifyClaims
from tests.benchmarks.fit_entailment import Measurements, fit_weights, measure_rows, rows_to_fit
from tests.benchmarks.labelled_pairs import LabelledPair, read_labelled
from tests.benchmarks.logistic import balanced_accuracy

COMPARED = (
    "wice_claim", "ragtruth_qa_sent", "factscore_bio", "factcheckgpt_stance", "foolmetwice",
    "fever_symmetric", "realsumm_scu", "summedits",
)  # fmt: skip
"""The sets over which models are compared."""

COLUMNS = ("left out", "read", "shipped", "overlap", "off")
VERDICT_COLUMNS = ("verdicts", "precision", "recall", "reversed")
LABELS = {"entailed", "contradicted", "neutral"}
DEFAULT = VerifyClaims(against="reference").contradiction_threshold
HIGHER = (0.5, 0.55, 0.6, 0.7)
"""Further values of `contradiction_threshold`."""

BINS = 10


def main() -> None:
    """Print a line per data set, then the means, then the speed."""
    rows = read_labelled()
    data = measure_rows(rows_to_fit())
    names = sorted({row.family for row in rows})
    shipped = read_weights(SHIPPED)[0]
    overlaps = {name: overlap_of([r for r in rows if r.family == name]) for name in names}
    left_out = {name: left_out_probabilities(name, data) for name in names}
    columns = (*COLUMNS, *VERDICT_COLUMNS)
    print(f"{'data set':22}{'rows':>6}" + "".join(f"{column:>10}" for column in columns))
    figures = dict[str, dict[str, float]]()
    for name in names:
        part = data.part([_of(row, name) for row in data.rows])
        figures[name] = figures_of(name, part, left_out[name], shipped, overlaps)
        labels = {row.label for row in part.rows} & LABELS
        shown = figures[name].copy()
        if labels:
            verdicts = verdict_figures(with_labels(part), shipped)
            known = VERDICT_COLUMNS if len(labels) == 3 else ("reversed",)
            shown |= {column: verdicts[column] for column in known}
        # Columns are blank where the data set lacks a label that they need.
        cells = [f"{shown[c]:10.1f}" if c in shown else " " * 10 for c in columns]
        print(f"{name:22}{len(overlaps[name][0]):6}{''.join(cells)}".rstrip())
    for title, chosen in (("mean of the 8 compared", COMPARED), ("mean of all", tuple(names))):
        means = [np.mean([figures[name][column] for name in chosen]) for column in COLUMNS]
        print(f"{title:28}" + "".join(f"{mean:10.1f}" for mean in means))
    truth = np.concatenate([overlaps[name][0] for name in names])
    pooled = calibration_error(truth, np.concatenate([left_out[name] for name in names]))
    print(f"all rows together: off by {pooled:.1f}")
    every = with_labels(data.part([not row.rule for row in data.rows]))
    counts = Counter(row.label for row in every.rows)
    print("\n" + ", ".join(f"{label}: {counts[label]:,} rows" for label in sorted(LABELS)))
    print(f"{'contradiction_threshold':28}" + "".join(f"{one:>10}" for one in VERDICT_COLUMNS))
    for value in (DEFAULT, *HIGHER):
        verdicts = verdict_figures(every, shipped, value)
        print(f"{value:<28}" + "".join(f"{verdicts[one]:10.1f}" for one in VERDICT_COLUMNS))
    speed(rows)


def left_out_probabilities(name: str, data: Measurements) -> np.ndarray:
    """Probabilities of entailed for the rows of `name`, by weights fitted without them."""
    weights = fit_weights(data.part([row.family != name for row in data.rows]))
    return entailed(data.part([_of(row, name) for row in data.rows]), weights)


def figures_of(
    name: str,
    part: Measurements,
    left_out: np.ndarray,
    shipped: Weights,
    overlaps: dict[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, float]:
    """`COLUMNS` of the rows `part` of the data set `name`."""
    truth, scores = overlaps[name]
    read = part.features[:, part.names.index("read_entailed")]
    shares = threshold({other: one for other, one in overlaps.items() if other != name})
    return {
        "left out": balanced_accuracy(truth_of(part), left_out >= 0.5),
        "read": balanced_accuracy(truth_of(part), read >= 0),
        "shipped": balanced_accuracy(truth_of(part), entailed(part, shipped) >= 0.5),
        "overlap": balanced_accuracy(truth, scores >= shares),
        "off": calibration_error(truth_of(part), left_out),
    }


def entailed(data: Measurements, weights: Weights) -> np.ndarray:
    """The probability of entailed of each row."""
    return np.array([_probabilities(data, weights, row)[0] for row in range(len(data.rows))])


def calibration_error(truth: np.ndarray, probabilities: np.ndarray) -> float:
    """Expected calibration error over `BINS` equal bins, in per cent (Guo et al. 2017)."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    apart = [abs((probabilities - truth)[bins == number].sum()) for number in set(bins)]
    return float(100 * sum(apart) / len(truth))


def truth_of(data: Measurements) -> np.ndarray:
    """Which rows are entailed."""
    return np.array([row.entailed for row in data.rows])


def with_labels(data: Measurements) -> Measurements:
    """The rows with one of the three labels."""
    return data.part([row.label in LABELS for row in data.rows])


def verdict_figures(
    data: Measurements, weights: Weights, threshold: float = DEFAULT
) -> dict[str, float]:
    """`VERDICT_COLUMNS` of `data`, rows with one of the three labels."""
    labels = np.array([row.label for row in data.rows])
    stage = VerifyClaims(against="reference", contradiction_threshold=threshold)
    judged = [Judgement(*_probabilities(data, weights, n), 0, 0) for n in range(len(data.rows))]
    verdicts = np.array([stage.verdict_of(one) for one in judged])
    contradicted, right = verdicts == "contradicted", verdicts == labels
    parts = (
        right,
        right[contradicted],
        right[labels == "contradicted"],
        contradicted[labels == "entailed"],
    )
    shares = [100 * float(part.mean()) if len(part) else 0.0 for part in parts]
    return dict(zip(VERDICT_COLUMNS, shares, strict=True))


def _probabilities(data: Measurements, weights: Weights, row: int) -> tuple[float, float, float]:
    return weights.probabilities(dict(zip(data.names, data.features[row], strict=True)))


def _of(row: LabelledPair, name: str) -> bool:
    return row.family == name and not row.rule


def overlap_of(rows: list[LabelledPair]) -> tuple[np.ndarray, np.ndarray]:
    """Which of `rows` are entailed, and the word overlap of each."""
    scores = [overlap(row.pair.premise, row.pair.claim) for row in rows]
    return np.array([row.entailed for row in rows]), np.array(scores)


def overlap(premise: str, claim: str) -> float:
    """0.6 x share of the claim's words + 0.4 x share of its bigrams that the premise has."""
    in_premise, words = (re.findall(r"\w+", text.lower()) for text in (premise, claim))
    known, bigrams = set(in_premise), set(pairwise(in_premise))
    unigram = sum(word in known for word in words) / max(1, len(words))
    pairs = list(pairwise(words))
    return 0.6 * unigram + 0.4 * (
        sum(pair in bigrams for pair in pairs) / len(pairs) if pairs else unigram
    )


def threshold(overlaps: dict[str, tuple[np.ndarray, np.ndarray]]) -> float:
    """The threshold of the best mean balanced accuracy."""
    steps = np.arange(0, 1.001, 0.01)
    means = [
        np.mean([balanced_accuracy(truth, scores >= step) for truth, scores in overlaps.values()])
        for step in steps
    ]
    return float(steps[int(np.argmax(means))])


def speed(rows: list[LabelledPair]) -> None:
    """Pairs per CPU second of the whole model, in one thread."""
    pairs = [row.pair for row in rows[:: len(rows) // 1_000]]
    model = EmbeddedEntailment(threads=1)
    model.judge(pairs[:1])
    started = time.process_time()
    model.judge(pairs)
    seconds = time.process_time() - started
    premises = {pair.premise for pair in pairs}
    print(
        f"\n{len(pairs):,} pairs, {len(premises):,} premises of "
        f"{sum(map(len, premises)) / 1e6:.1f} MB: {len(pairs) / seconds:,.0f} pairs per CPU second"
    )


if __name__ == "__main__":
    main()
