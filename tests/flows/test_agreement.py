"""Agreement, ranks and reliability: against worked examples and the libraries themselves."""

import numpy as np
import polars as pl
import pytest

from claimflow.flows.quality.agreement import (
    IntervalEstimate,
    agreement,
    annotator_agreement,
    balanced_accuracy,
    clipped_interval,
    cohen_kappa,
    consensus,
    krippendorff_alpha,
    proportion,
    rank_correlations,
)
from claimflow.flows.quality.corrected_rates import reliability_diagram

LABELS = ("entailed", "contradicted", "neutral")
NOTHING = IntervalEstimate(None, None, None)


def rounded(figure: IntervalEstimate) -> tuple[float, float, float]:
    assert figure.value is not None
    assert figure.low is not None
    assert figure.high is not None
    return round(figure.value, 3), round(figure.low, 3), round(figure.high, 3)


def test_the_interval_of_a_proportion_is_wilsons() -> None:
    assert rounded(proportion(20, 20)) == (1.0, 0.839, 1.0)
    assert rounded(proportion(8, 10)) == (0.8, 0.49, 0.943)
    assert proportion(0, 0) == NOTHING


def test_intervals_are_clipped() -> None:
    assert clipped_interval(0.95, 0.1, 0, 1) == IntervalEstimate(0.95, 0.95 - 0.1, 1)
    assert clipped_interval(1.2, 0.1, 0, 1).value == 1


def test_agreement_of_a_judge_and_people() -> None:
    from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score

    truth = ["entailed"] * 25 + ["neutral"] * 25
    judged_labels = ["entailed"] * 20 + ["neutral"] * 5 + ["entailed"] * 10 + ["neutral"] * 15
    found = agreement(truth, judged_labels, LABELS)
    assert found.n == 50
    assert found.confusion == [[20, 0, 5], [0, 0, 0], [10, 0, 15]]
    assert rounded(found.accuracy) == (0.7, 0.562, 0.809)
    assert found.kappa.value == pytest.approx(0.4)  # Cohen's own example
    assert found.kappa.value == pytest.approx(cohen_kappa_score(truth, judged_labels))
    assert found.balanced_accuracy.value == pytest.approx(
        balanced_accuracy_score(truth, judged_labels)
    )
    assert [rate.value for rate in found.base_rates] == [0.5, 0, 0.5]
    assert rounded(found.kappa) == (0.4, 0.143, 0.657)
    assert rounded(found.balanced_accuracy) == (0.7, 0.572, 0.828)
    assert rounded(found.alpha) == (0.4, 0.136, 0.664)


def test_a_judge_that_was_always_right_is_not_certain_to_be() -> None:
    counts = np.diag([30, 0, 10])
    assert rounded(cohen_kappa(counts))[0] == 1
    assert 0.85 < rounded(cohen_kappa(counts))[1] < 0.95
    assert 0.9 < rounded(balanced_accuracy(counts))[1] < 1


def test_kappa_is_undefined_for_a_single_label() -> None:
    found = agreement(["entailed"] * 9, ["entailed"] * 9, LABELS)
    assert found.accuracy.value == 1
    assert found.kappa == NOTHING
    assert found.alpha == NOTHING
    assert found.balanced_accuracy == IntervalEstimate(1, None, None)


def test_alpha_with_missing_labels() -> None:
    # Krippendorff (2011), example C: four observers, twelve units, nominal.
    coders = [
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    ]
    judged_labels = [line.split() for line in coders]
    votes = np.array(
        [
            [sum(line[unit] == label for line in judged_labels) for label in "12345"]
            for unit in range(12)
        ]
    )
    assert rounded(krippendorff_alpha(votes))[0] == 0.743
    interval = krippendorff_alpha(votes, domain=np.array([1.0, 2, 3, 4, 5]))
    assert rounded(interval)[0] == 0.849
    assert rounded(interval)[1] < 0.849 < rounded(interval)[2]


def test_rank_correlations() -> None:
    found = rank_correlations([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.1, 0.3, 0.2, 0.4, 0.6, 0.5])
    assert found.n == 6
    assert rounded(found.spearman) == (0.886, 0.066, 0.992)
    assert rounded(found.kendall) == (0.733, 0.02, 0.952)
    assert rank_correlations(
        [0.1, 0.2, 0.3, 0.4, 0.5], [1, 2, 3, 4, 5]
    ).spearman.value == pytest.approx(1)
    assert rank_correlations([0.1, 0.2, 0.3], [0.5, 0.5, 0.5]).spearman == NOTHING
    assert rank_correlations([0.1, 0.2], [0.1, 0.2]).kendall == NOTHING
    assert rank_correlations([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]).spearman.low is None


def test_reliability_diagram() -> None:
    found = reliability_diagram(
        np.array([0.05, 0.95, 0.92, 1.0]), np.array([False, True, False, True])
    )
    assert found is not None
    assert found.n == 4
    assert [(one.low, one.high, one.n) for one in found.bins] == [(0, 0.1, 1), (0.9, 1, 3)]
    assert found.bins[1].mean == pytest.approx(0.95667, abs=1e-5)
    assert found.bins[1].entailed.value == pytest.approx(2 / 3)
    assert found.off == pytest.approx((0.05 + 3 * (0.95667 - 0.66667)) / 4, abs=1e-5)
    assert found.brier == pytest.approx((0.05**2 + 0.05**2 + 0.92**2) / 4)
    assert reliability_diagram(np.array([]), np.array([], dtype=bool)) is None


def said_by(**people: str) -> pl.DataFrame:
    """Labels by person, a letter for each subject; a point is none."""
    names = {"e": "entailed", "c": "contradicted", "n": "neutral"}
    return pl.DataFrame(
        [
            {
                "subject": str(place),
                "annotator": name,
                "label": names[letter],
                "rating": None,
                "adjudicates": name == "judge",
            }
            for name, letters in people.items()
            for place, letter in enumerate(letters)
            if letter != "."
        ],
        schema_overrides={"rating": pl.Float64},
    )


def test_consensus() -> None:
    labels = said_by(ann="eenn", bob="ee.c", eve="en..")
    assert consensus(labels) == {"0": "entailed", "1": "entailed", "2": "neutral", "3": None}
    rated = pl.DataFrame(
        {"subject": ["0"] * 2, "annotator": ["a", "b"], "label": [None] * 2, "rating": [0.0, 0.5]},
        schema_overrides={"label": pl.String},
    ).with_columns(adjudicates=False)
    assert consensus(rated) == {"0": 0.25}


def test_a_label_that_adjudicates_decides_and_is_no_agreement() -> None:
    labels = said_by(ann="ee", bob="nn", judge="n.")
    assert consensus(labels) == {"0": "neutral", "1": None}
    assert annotator_agreement(labels, LABELS).labels == {"ann": 2, "bob": 2}


def test_annotators_with_labels() -> None:
    from sklearn.metrics import cohen_kappa_score

    found = annotator_agreement(said_by(ann="eennee", bob="ee.cee", eve="e....."), LABELS)
    assert found.labels == {"ann": 6, "bob": 5, "eve": 1}
    assert found.shared == 5
    assert [(pair.one, pair.other, pair.n) for pair in found.pairs] == [
        ("ann", "bob", 5),
        ("ann", "eve", 1),
        ("bob", "eve", 1),
    ]
    # Two of eleven differ from another; of any two, 1 - (9 x 8) / (11 x 10) would.
    assert found.alpha.value == pytest.approx(1 - (2 / 11) / (1 - 72 / 110))
    assert found.pairs[0].kappa is not None
    assert found.pairs[0].kappa.value == pytest.approx(
        cohen_kappa_score(list("eenee"), list("eecee"))
    )
    alone = annotator_agreement(said_by(ann="en"), LABELS)
    assert (alone.alpha, alone.pairs, alone.shared) == (NOTHING, [], 0)


def test_annotators_with_ratings() -> None:
    rated = pl.DataFrame(
        {
            "subject": list("012345") * 2,
            "annotator": ["ann"] * 6 + ["bob"] * 6,
            "label": [None] * 12,
            "rating": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.0, 0.2, 0.4, 0.6, 1.0, 0.8],
        },
        schema_overrides={"label": pl.String, "rating": pl.Float64},
    ).with_columns(adjudicates=False)
    found = annotator_agreement(rated, None)
    assert found.alpha.value == pytest.approx(0.9476, abs=1e-3)
    assert found.pairs[0].kappa is None
    assert found.pairs[0].ranks is not None
    assert found.pairs[0].ranks.spearman.value == pytest.approx(0.943, abs=1e-3)
