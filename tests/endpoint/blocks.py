"""The tagged texts of a user message, and those that the last turn asks about."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.endpoint.asked import Message

_OPENING: Final = re.compile(r'<([a-z_]+)-([0-9a-f]{8})(?: id="(\d+)")?>\n')
_NAMED: Final = re.compile(
    r"\b(ids?)\b[ :]+(\d+(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)\d+)*)", re.IGNORECASE
)


class Block(NamedTuple):
    """A text between tags. The premise has no id."""

    name: str
    id: int | None
    text: str


def read_blocks(message: str) -> list[Block]:
    """The tagged texts in order.

    A text runs to the closing tag with the digits of its opening tag, so tags within it are
    text. A text that is never closed ends the search.
    """
    found: list[Block] = []
    position = 0
    while opening := _OPENING.search(message, position):
        name, digits, number = opening.groups()
        closing = f"\n</{name}-{digits}>"
        end = message.find(closing, opening.end())
        if end < 0:
            break
        text = message[opening.end() : end]
        found.append(Block(name, int(number) if number else None, text))
        position = end + len(closing)
    return found


def open_blocks(messages: Sequence[Message]) -> tuple[str, list[Block]]:
    """The premise ("" without one), and the texts with an id that the last turn asks for.

    A last turn without tags asks for the ids that it names, and for all when it names none.
    """
    premise = ""
    texts: list[Block] = []
    last = ""
    for message in messages:
        if message.role != "user":
            continue
        last = message.text
        blocks = read_blocks(last)
        premise = next((block.text for block in blocks if block.id is None), premise)
        texts = [block for block in blocks if block.id is not None] or texts
    if _OPENING.search(last):
        return premise, texts
    named = _named_ids(last)
    return premise, [block for block in texts if block.id in named or not named]


def _named_ids(message: str) -> set[int]:
    """The numbers after the last "ids" of a message, or after the last "id"."""
    found = _NAMED.findall(message)
    plural = [numbers for word, numbers in found if word.lower() == "ids"]
    chosen = (plural or [numbers for _, numbers in found] or [""])[-1]
    return {int(number) for number in re.findall(r"\d+", chosen)}
