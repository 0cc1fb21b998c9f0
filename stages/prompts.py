"""Prompts: texts with named blanks like `{{premise}}`, which a stage fills in."""

import hashlib
import re
from collections.abc import Collection, Mapping
from itertools import chain, count
from typing import Final, NamedTuple

_DIGEST_BYTES: Final = 4
_BLANK: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class PromptBlanks(frozenset[str]):
    """Marks a setting as a prompt, and names the blanks that its stage can fill.

    In YAML the setting is the path of a file; the stage gets the text of the file.
    """


class PromptParts(NamedTuple):
    """The two parts of a prompt: the same in every call, and with texts that change."""

    static: str
    varying: str


def blanks(prompt: str) -> dict[str, int]:
    """The blanks `{{name}}` of a prompt, each with the line of its first occurrence."""
    found: dict[str, int] = {}
    for match in _BLANK.finditer(prompt):
        found.setdefault(match[1], prompt.count("\n", 0, match.start()) + 1)
    return found


def fill(prompt: str, values: Mapping[str, str]) -> str:
    """The prompt with its blanks filled; values are not searched for blanks.

    Raises `KeyError` for a blank without a value.
    """
    return _BLANK.sub(lambda match: values[match[1]], prompt)


def fill_settings(prompt: str, settings: Mapping[str, str]) -> str:
    """The prompt with the blanks of `settings` filled and all others kept for `fill`.

    Raises `ValueError` for a setting that contains a blank, since `fill` would fill it.
    """
    for name, value in settings.items():
        if _BLANK.search(value):
            raise ValueError(f"the setting {name} holds a blank: {value!r}")
    return _BLANK.sub(lambda match: settings.get(match[1], match[0]), prompt)


def split_prompt(prompt: str, texts: Collection[str]) -> PromptParts:
    """The prompt in two parts, split before the line with the first of the blanks `texts`.

    The static part is empty when that is the first line. Raises `ValueError` when the prompt
    has none of these blanks, or has any other blank.
    """
    open_blanks = blanks(prompt)
    unknown = sorted(set(open_blanks) - set(texts))
    if unknown:
        raise ValueError(f"the prompt has blanks that are not texts: {', '.join(unknown)}")
    if not open_blanks:
        raise ValueError(f"the prompt has none of the blanks {', '.join(sorted(texts))}")
    starts = (match.start() for match in _BLANK.finditer(prompt))
    line = prompt.rfind("\n", 0, next(starts)) + 1
    return PromptParts(prompt[:line], prompt[line:])


def unseen_digits(seed: str, texts: Collection[str]) -> str:
    """Hex digits that follow from `seed` alone and occur in none of `texts`.

    An author of texts can work them out beforehand and write them into one; then the
    next ones are taken.
    """
    first = _hashed(seed)
    nexts = (_hashed(f"{first} {number}") for number in count())
    return next(
        digits for digits in chain([first], nexts) if not any(digits in text for text in texts)
    )


def _hashed(text: str) -> str:
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def tagged_text(tag: str, text: str, mark: str = "") -> str:
    """A text, byte for byte, between an opening tag with `mark` and a closing one."""
    return f"<{tag}{mark}>\n{text}\n</{tag}>"
