"""Tables carried between Polars and DuckDB by the Arrow stream protocol alone."""

from typing import Any


class Arrow:
    """A table of either library, showing nothing but the protocol.

    DuckDB would need pyarrow to scan a Polars frame. The class has a module to itself
    because Polars remembers it for good, and with it whatever its module imports: DuckDB
    would complain of leaks at every exit.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)
