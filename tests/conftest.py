"""Hypothesis: the same examples on every machine, and no judgement of how fast it is."""

from hypothesis import settings

settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")
