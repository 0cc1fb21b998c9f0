"""Scores: metrics from claims, verdicts, similarities and lexical matches."""
