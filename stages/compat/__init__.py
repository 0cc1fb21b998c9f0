"""Scores as other libraries compute them."""
