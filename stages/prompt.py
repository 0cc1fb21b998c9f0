"""Prompts: text with named blanks, checked against what a stage fills in."""

import re
from collections.abc import Mapping
from typing import Final

_BLANK: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class Fills(frozenset[str]):
    """Marks a setting as a prompt, and names the blanks that its stage fills in.

    In YAML the setting is the path of a file; the stage is given the file's text.
    """


def blanks(prompt: str) -> dict[str, int]:
    """The blanks `{{name}}` of a prompt, each with the line where it first stands."""
    found: dict[str, int] = {}
    for match in _BLANK.finditer(prompt):
        found.setdefault(match[1], prompt.count("\n", 0, match.start()) + 1)
    return found


def fill(prompt: str, values: Mapping[str, str]) -> str:
    """The prompt with its blanks filled. What is filled in is never searched for blanks.

    Raises `KeyError` for a blank without a value.
    """
    return _BLANK.sub(lambda match: values[match[1]], prompt)
