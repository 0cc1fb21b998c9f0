"""Markdown in which text under evaluation stays text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from claimflow.flows.pages.words import visible

_LONGEST: Final = 300


def code(text: str | None) -> str:
    """Text under evaluation as a code span of one line, in which nothing is markup.

    In a table even there a bar would end the cell, so another one stands for it.
    """
    flat = " ".join(visible(text or "").split()).replace("|", "\u2502")
    if not flat:
        return "-"
    flat = flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}\u2026"
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    room = " " if "`" in flat else ""
    return f"{fence}{room}{flat}{room}{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with an empty one behind it."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
