"""The store: one DuckDB file with every row, run and model reply."""
