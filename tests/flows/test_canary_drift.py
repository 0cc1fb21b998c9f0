"""Whether a judge has moved: pairs before and now, by hand and by exact tests."""

import pytest

from flows.engine.canaries.drift import Moved, Restless, moved, restless

YES, NO = "entailed", "neutral"


def test_nothing_moved() -> None:
    assert moved([(YES, YES, YES), (NO, YES, YES)]) == Moved(2, 1, 1, 0, 0, 0, 1.0)


def test_every_kind_of_change_is_counted() -> None:
    pairs = [(YES, YES, NO), (YES, NO, YES), (NO, YES, NO), (NO, "contradicted", YES)]
    assert moved(pairs) == Moved(4, 1, 2, lost=1, gained=2, flipped=4, p=1.0)


@pytest.mark.parametrize(
    ("lost", "p", "beyond"),
    [(7, 2 / 2**7, False), (8, 2 / 2**8, True), (10, 2 / 2**10, True)],
)
def test_a_judge_that_loses_agreement_has_moved(lost: int, p: float, beyond: bool) -> None:
    found = moved([(YES, YES, NO)] * lost + [(YES, YES, YES)] * 20)
    assert found.p == pytest.approx(p)
    assert found.beyond_chance == beyond


def test_as_many_the_other_way_are_chance() -> None:
    found = moved([(YES, YES, NO)] * 10 + [(YES, NO, YES)] * 10)
    assert (found.flipped, found.p) == (20, 1.0)


def test_a_restless_judge() -> None:
    # Of the C(50, 10) ways to be the ten now, C(9, 8) C(41, 2) + C(41, 1) have so many flips.
    found = restless(8, 10, 1, 40)
    assert found.p == pytest.approx(7421 / 10272278170)
    assert found.beyond_chance
    assert not restless(1, 10, 4, 40).beyond_chance


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (5, 5, 0, 0), (0, 10, 9, 10)])
def test_with_nothing_to_compare_it_is_chance(counts: tuple[int, int, int, int]) -> None:
    assert restless(*counts) == Restless(*counts, 1.0)
