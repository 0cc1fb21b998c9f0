"""A whole run: put on record, its steps made, its end noted."""
