"""Claim decomposition by rules, for English; no model needed."""
