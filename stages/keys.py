"""Content keys: 128-bit hashes of canonical bytes that name what is hashed."""

import hashlib
import json
from typing import Any, Final
from uuid import UUID

_written: Final = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


def content_key(kind: str, *parts: Any) -> str:
    """Key of a `kind` of thing made of JSON values, as a UUID string.

    Equal parts give equal keys on every machine and in every version; parts that differ
    in type or in their borders do not collide, since they are hashed as one JSON array.
    """
    return str(UUID(bytes=hashlib.blake2b(canonical([kind, *parts]), digest_size=16).digest()))


def canonical(value: Any) -> bytes:
    """The one way to write a JSON value as bytes: sorted keys, no blanks, UTF-8.

    Raises `ValueError` for NaN and infinities.
    """
    return _written(value).encode("utf-8", "surrogatepass")
