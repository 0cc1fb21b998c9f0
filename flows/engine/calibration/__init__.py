"""Judges held against people: how often they agree, and what their errors do to a score."""
