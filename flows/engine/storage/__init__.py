"""The store: one DuckDB file, what is on record in it, and copies of it that others read."""
