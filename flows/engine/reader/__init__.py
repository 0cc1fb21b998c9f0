"""Samples read from files: JSON Lines, JSON, CSV and Parquet become tables of samples.

Polars reads CSV and Parquet, DuckDB cuts JSON arrays into their elements, and JSON is decoded by
pydantic where nothing is out of the ordinary and else by the standard library: the readers of
Polars and DuckDB lose line numbers, refuse lone surrogates, accept NaN, and guess types. Every
format ends as (number, values by column)
pairs, which one mapping turns into samples or into faults with file and line.
"""

from claimflow.flows.engine.reader.source import SampleSource, open_samples

__all__ = ["SampleSource", "open_samples"]
