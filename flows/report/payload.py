"""Samples as the page carries them: JSON, compressed, in letters that mean nothing to HTML."""

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from claimflow.flows.pages.words import visible

_GZIP: Final = 16 + zlib.MAX_WBITS
"""What tells zlib to write gzip's header, which browsers undo without a library."""

_DIGITS: Final = 6


class Payload(NamedTuple):
    """`text` is base64 of gzip of a JSON list of the first `held` entries."""

    text: str
    held: int


def packed(entries: Iterable[dict[str, Any]], *, most: int) -> Payload:
    """As many of the entries, in their order, as `most` letters hold; the first always fits.

    One entry is in memory at a time. Numbers have six digits behind the point. Characters that
    would steer whatever shows them are replaced one for one, so that positions stay.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    parts = [packer.compress(b"[")]
    size = count = 0
    for entry in entries:
        before = packer.copy()
        text = json.dumps(_shown(entry), ensure_ascii=False, separators=(",", ":"))
        part = packer.compress(f"{',' if count else ''}{text}".encode())
        # Nothing may be held back, or the size would not be known: five bytes an entry.
        part += packer.flush(zlib.Z_SYNC_FLUSH)
        # Four letters stand for three bytes.
        if count and (size + len(part)) * 4 > most * 3:
            packer = before
            break
        parts.append(part)
        size += len(part)
        count += 1
    parts.append(packer.compress(b"]") + packer.flush())
    return Payload(base64.b64encode(b"".join(parts)).decode("ascii"), count)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {visible(key): _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return value
