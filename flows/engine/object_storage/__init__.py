"""Objects on S3, and on whatever speaks as it does: where they are, and what is done with them.

obstore moves the bytes. Polars reads S3 by itself, but asks for a Parquet file in ranges that
name no version: of an object that was written anew meanwhile it gave rows of both, without a
word. It has no names of objects to give either, and the form of CSV and JSON arrays is checked
by DuckDB, which reads no S3 as it is shipped.
"""

from claimflow.flows.engine.object_storage.address import (
    Address,
    address,
    is_remote,
    known_place,
    local_path,
)
from claimflow.flows.engine.object_storage.opening import open_bucket

__all__ = ["Address", "address", "is_remote", "known_place", "local_path", "open_bucket"]
