"""Stages: what is computed. Each takes tables and makes one table."""
