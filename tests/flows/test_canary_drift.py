"""Whether a judge has moved: pairs before and now, by hand and by exact tests."""

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


def test_nothing_moved() -> None:
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
def test_a_judge_that_loses_agreement_has_moved(lost: int, p: float, beyond: bool) -> None:
    found = agreement_change([(YES, YES, NO)] * lost + [(YES, YES, YES)] * 20)
    assert found.p == pytest.approx(p)
    assert found.significant == beyond


def test_as_many_the_other_way_are_chance() -> None:
    found = agreement_change([(YES, YES, NO)] * 10 + [(YES, NO, YES)] * 10)
    assert (found.flipped, found.p) == (20, 1.0)


def test_a_restless_judge() -> None:
    # Each canary was asked three times and said yes; any of its four verdicts might be the no.
    steady = [(YES, [YES] * 3)] * 4
    found = instability([(NO, [YES] * 3)] * 4 + steady)
    assert found == Instability(4, 8, 1.0, pytest.approx(4**-4))
    assert found.significant
    assert instability([(NO, [YES] * 3)] * 3 + steady).p == pytest.approx(4**-3)


def test_a_canary_that_is_always_in_doubt_counts_for_its_doubt() -> None:
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
def test_with_nothing_to_compare_it_is_chance(asked: list[tuple[str, list[str]]], of: int) -> None:
    found = instability(asked)
    assert (found.unusual, found.of, found.p) == (0, of, 1.0)


def test_a_judge_that_was_always_so_is_rarely_called_restless() -> None:
    # Every fourth canary is a coin toss, the others waver once in fifty times.
    rng = np.random.default_rng(0)
    doubt = np.where(np.arange(40) % 4 == 0, 0.5, 0.02)
    alarms = 0
    for _ in range(2_000):
        said = np.where(rng.random((40, 8)) < doubt[:, None], NO, YES).tolist()
        alarms += instability((now, before) for now, *before in said).significant
    assert alarms <= 20


@given(st.lists(st.tuples(VERDICTS, st.lists(VERDICTS, max_size=6)), max_size=12))
def test_a_chance_is_one_and_the_order_of_the_past_says_nothing(
    asked: list[tuple[str, list[str]]],
) -> None:
    found = instability(asked)
    assert 0 <= found.p <= 1
    assert 0 <= found.unusual <= found.of <= len(asked)
    assert 0 <= found.expected <= found.of
    turned = instability([(now, before[::-1]) for now, before in asked[::-1]])
    assert turned == (*found[:2], pytest.approx(found.expected), pytest.approx(found.p))
