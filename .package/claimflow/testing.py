"""Expectations on scores, for the test suite of a team of its own."""

from claimflow.flows.testing import assert_scores

__all__ = ["assert_scores"]
