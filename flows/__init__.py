"""Flows: when and where stages run."""
