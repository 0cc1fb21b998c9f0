"""Drift of a judge on canaries: McNemar's test and the permutation test."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.quality.canaries import (
    AgreementChange,
    Instability,
    agreement_change,
    instability,
)

YES, NO = "entailed", "neutral"
VERDICTS = st.sampled_from([YES, NO, "contradicted"])


def test_no_change() -> None:
    assert agreement_change([(YES, YES, YES), (NO, YES, YES)]) == AgreementChange(
        2, 1, 1, 0, 0, 0, 1.0
    )


def test_every_kind_of_change_is_counted() -> None:
    pairs = [(YES, YES, NO), (YES, NO, YES), (NO, YES, NO), (NO, "contradicted", YES)]
    assert agreement_change(pairs) == AgreementChange(4, 1, 2, lost=1, gained=2, flipped=4, p=1.0)


@pytest.mark.parametrize(
    ("lost", "p", "beyond"),
    [(7, 2 / 2**7, False), (8, 2 / 2**8, True), (10, 2 / 2**10, True)],
)
def test_lost_agreement_is_significant(lost: int, p: float, beyond: bool) -> None:
    found = agreement_change([(YES, YES, NO)] * lost + [(YES, YES, YES)] * 20)
    assert found.p == pytest.approx(p)
    assert found.significant == beyond


def test_losses_and_gains_of_equal_number_are_chance() -> None:
    found = agreement_change([(YES, YES, NO)] * 10 + [(YES, NO, YES)] * 10)
    assert (found.flipped, found.p) == (20, 1.0)


def test_an_unstable_judge() -> None:
    # Each canary was asked three times and said yes; any of its four verdicts might be the no.
    steady = [(YES, [YES] * 3)] * 4
    found = instability([(NO, [YES] * 3)] * 4 + steady)
    assert found == Instability(4, 8, 1.0, pytest.approx(4**-4))
    assert found.significant
    assert instability([(NO, [YES] * 3)] * 3 + steady).p == pytest.approx(4**-3)


def test_a_canary_on_which_the_judge_always_wavers_is_weak_evidence() -> None:
    # Of its ten verdicts four are unusual ones: so is this one with a chance of four in ten.
    doubtful = (NO, [YES] * 6 + [NO] * 3)
    assert instability([doubtful]) == Instability(1, 1, pytest.approx(0.4), pytest.approx(0.4))
    assert instability([doubtful] * 3).p == pytest.approx(0.4**3)
    assert instability([doubtful] * 20).p == pytest.approx(0.4**20)
    often = [doubtful] * 4 + [(YES, doubtful[1])] * 6
    # Now a yes, it is in doubt three times in ten.
    assert instability(often).expected == pytest.approx(4 * 0.4 + 6 * 0.3)
    assert not instability(often).significant


@pytest.mark.parametrize(
    ("asked", "of"),
    [([], 0), ([(NO, [YES])] * 9, 0), ([(NO, [YES, NO])], 1), ([(NO, [YES, "contradicted"])], 1)],
)
def test_without_earlier_verdicts_p_is_1(asked: list[tuple[str, list[str]]], of: int) -> None:
    found = instability(asked)
    assert (found.unusual, found.of, found.p) == (0, of, 1.0)


def test_false_alarms_are_at_most_the_significance_level() -> None:
    # Every fourth canary is a coin toss, the others waver once in fifty times.
    rng = np.random.default_rng(0)
    doubt = np.where(np.arange(40) % 4 == 0, 0.5, 0.02)
    alarms = 0
    for _ in range(2_000):
        verdicts_given = np.where(rng.random((40, 8)) < doubt[:, None], NO, YES).tolist()
        alarms += instability((now, before) for now, *before in verdicts_given).significant
    assert alarms <= 20


@given(st.lists(st.tuples(VERDICTS, st.lists(VERDICTS, max_size=6)), max_size=12))
def test_p_is_a_probability_and_ignores_the_order_of_earlier_verdicts(
    asked: list[tuple[str, list[str]]],
) -> None:
    found = instability(asked)
    assert 0 <= found.p <= 1
    assert 0 <= found.unusual <= found.of <= len(asked)
    assert 0 <= found.expected <= found.of
    turned = instability([(now, before[::-1]) for now, before in asked[::-1]])
    assert turned == (*found[:2], pytest.approx(found.expected), pytest.approx(found.p))
