"""Expectations on scores and a scripted judge, for test suites."""

from claimflow.flows.judge.scripted_provider import ScriptedJudge
from claimflow.flows.testing import assert_scores

__all__ = ["ScriptedJudge", "assert_scores"]
