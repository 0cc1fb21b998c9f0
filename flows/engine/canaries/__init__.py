"""Canaries: pairs whose verdict is known, put to each judge of a run to see whether it moves."""
