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
    """A text between tags. A premise has no id; `premise` is the one that a text is held against.

    That is the nearest one above the text, or else the first one below it, or "".
    """

    name: str
    id: int | None
    text: str
    premise: str = ""


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


def open_blocks(messages: Sequence[Message]) -> list[Block]:
    """The texts with an id that the last turn asks for.

    A last turn without tags asks for the ids that it names, and for all when it names none.
    """
    texts: list[Block] = []
    premise = last = ""
    for message in messages:
        if message.role != "user":
            continue
        last = message.text
        blocks = read_blocks(last)
        premise = next((block.text for block in blocks if block.id is None), premise)
        texts = _with_premises(blocks, premise) or texts
    if _OPENING.search(last):
        return texts
    named = _named_ids(last)
    return [block for block in texts if block.id in named or not named]


def _with_premises(blocks: Sequence[Block], premise: str) -> list[Block]:
    """The texts with an id among `blocks`; `premise` is that of those above any other."""
    texts = []
    for block in blocks:
        if block.id is None:
            premise = block.text
        else:
            texts.append(block._replace(premise=premise))
    return texts


def _named_ids(message: str) -> set[int]:
    """The numbers after the last "ids" of a message, or after the last "id"."""
    found = _NAMED.findall(message)
    plural = [numbers for word, numbers in found if word.lower() == "ids"]
    chosen = (plural or [numbers for _, numbers in found] or [""])[-1]
    return {int(number) for number in re.findall(r"\d+", chosen)}
