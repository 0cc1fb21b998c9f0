"""Expectations on scores, for test suites."""

from claimflow.flows.testing import assert_scores

__all__ = ["assert_scores"]
