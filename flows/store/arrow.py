"""Tables passed between Polars and DuckDB by the Arrow stream protocol alone."""

from typing import Any


class Arrow:
    """A table of either library that offers nothing but the Arrow stream protocol.

    Without it DuckDB needs pyarrow to scan a Polars frame. The class has a module of its own
    because Polars keeps a reference to the class, and so to all that its module imports: if that
    included DuckDB, DuckDB would report leaks at every exit.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)
