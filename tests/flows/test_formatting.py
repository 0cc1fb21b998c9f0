"""Numbers as tables show them."""

import pytest

from claimflow.flows.report.formatting import format_difference


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (0.1234, "+0.123"),
        (-0.0005, "-0.001"),
        (-0.0004, "-0.0004"),
        (0.000012, "+0.00001"),
        (0.0000004, "0.000"),
    ],
)
def test_a_small_difference_is_seen_to_be_one(value: float | None, shown: str) -> None:
    assert format_difference(value) == shown
