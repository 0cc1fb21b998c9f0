"""Embeddings from hashes of words: unit vectors, closer where texts share words."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def vector(text: str, dimension: int) -> Vector:
    """The unit vector of `text`: the sum of its words' vectors, and a small one of it all."""
    total = _drawn(text, dimension) / 4
    for word in re.findall(r"\w+", text.casefold()):
        total = total + _drawn(word, dimension)
    return (total / np.linalg.norm(total)).astype(np.float32)


@lru_cache(maxsize=4096)
def _drawn(text: str, dimension: int) -> NDArray[np.float64]:
    drawn = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(dimension)
    numbers = np.frombuffer(drawn, np.int8).astype(np.float64) + 0.5
    return numbers / np.linalg.norm(numbers)


def texts_of(body: dict[str, Any]) -> list[str]:
    """The texts of a request for embeddings; a list of tokens is converted to text."""
    given = body.get("input", "")
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    return [text if isinstance(text, str) else str(text) for text in given]


def written(vectors: Sequence[Vector], encoding: str) -> list[Any]:
    """The vectors as lists of numbers, or as base64 of 32-bit floats."""
    if encoding == "base64":
        return [base64.b64encode(each.tobytes()).decode() for each in vectors]
    return [[round(number, 7) for number in each.tolist()] for each in vectors]
