"""Changes to a claim after which its premise no longer entails it."""

import re
from collections import defaultdict
from random import Random
from typing import Final

from claimflow.flows.models.entailment.word_relations import OPPOSITES

NAME: Final = re.compile(r"(?<=[a-z,] )([A-Z][a-z]+(?: [A-Z][a-z]+)*)\b")

_AUXILIARY = re.compile(
    r"\b(is|was|are|were|has been|had been|can|could|will|would|has|have|had)\b"
)
_COUNTS = (
    "one two three four five six seven eight nine ten eleven twelve twenty thirty hundred"
).split()
_MONTHS = (
    "January February March April May June July August September October November December"
).split()
_DIGITS = re.compile(r"\b\d[\d,.]*\b")
_COUNT = re.compile(rf"\b({'|'.join(_COUNTS)})\b", re.IGNORECASE)
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})\b")
_PAIRS = """
all some, every one, always sometimes, never often, most few, many few, both neither, more less,
first last, before after, increase decrease, increased decreased, north south, east west,
male female, won lost, older younger, higher lower, largest smallest, best worst, man woman,
boy girl
"""


def _others(pairs: list[list[str]]) -> dict[str, list[str]]:
    others = defaultdict(list)
    for one, other in pairs:
        others[one].append(other)
        others[other].append(one)
    return others


_OPPOSITE = _others([sorted(pair) for pair in sorted(map(sorted, OPPOSITES))])
_QUANTITY = _others([pair.split() for pair in _PAIRS.replace("\n", " ").split(",")])


def other_number(claim: str, random: Random) -> str | None:
    """`claim` with one number, count or month replaced; None if it has none."""
    found = [m for kind in (_DIGITS, _COUNT, _MONTH) for m in kind.finditer(claim)]
    if not found:
        return None
    match = random.choice(found)
    other = _other_number(match[0], random)
    return None if other == match[0] else _replaced(claim, match, other)


def _other_number(old: str, random: Random) -> str:
    if old in _MONTHS:
        return random.choice([month for month in _MONTHS if month != old])
    if old.lower() in _COUNTS:
        new = random.choice([count for count in _COUNTS if count != old.lower()])
        return new.capitalize() if old[0].isupper() else new
    places = [place for place, character in enumerate(old) if character.isdigit()]
    # Of a year only the last two digits: another century is too easy to see.
    place = random.choice(places[-2:] if len(places) == 4 else places)
    new = f"{old[:place]}{(int(old[place]) + random.randint(1, 9)) % 10}{old[place + 1 :]}"
    if new[0] == "0" and len(places) > 1:
        new = ("1" if old[0] != "1" else "2") + new[1:]
    return new


def other_name(claim: str, premise: str, names: list[str], random: Random) -> str | None:
    """`claim` with one name replaced, by one of the premise or of `names`; None if it has none."""
    found = list(NAME.finditer(claim))
    if not found:
        return None
    match = random.choice(found)
    old = match[0]
    own = [n for n in NAME.findall(premise) if n != old and n not in old and old not in n]
    other = random.choice(own) if own and random.random() < 0.5 else random.choice(names)
    return None if other == old else _replaced(claim, match, other)


def denied(claim: str, random: Random) -> str | None:
    """`claim` with a "not" added or removed; None if it has no auxiliary verb."""
    match = _AUXILIARY.search(claim)
    if not match:
        return None
    after = claim[match.end() :]
    if after.startswith(" not"):
        return claim[: match.end()] + after[4:]
    if after.startswith("n't"):
        return None
    return claim[: match.end()] + random.choice([" not", " never"]) + after


def opposite(claim: str, random: Random) -> str | None:
    """`claim` with one word replaced by its opposite; None if no word has one."""
    found = [m for m in re.finditer(r"\w+", claim) if m[0] in _OPPOSITE or m[0] in _QUANTITY]
    if not found:
        return None
    match = random.choice(found)
    return _replaced(claim, match, random.choice(_OPPOSITE.get(match[0]) or _QUANTITY[match[0]]))


def joined(first: str, second: str, random: Random) -> str:
    """Both claims as one text, of one sentence or two."""
    one, other = (text.rstrip(" .!?") for text in (first, second))
    if random.random() < 0.5:
        return one + random.choice([" and ", ", and ", "; ", ", while "]) + _within(other) + "."
    return f"{one}. {other}."


_OPENINGS = frozenset(
    "the a an he she it they this that there his her their its some many one two".split()
)


def _within(text: str) -> str:
    """`text` in lower case at its start, unless its first word may be a name."""
    opens = text and text.split(maxsplit=1)[0].lower() in _OPENINGS and not text[:2].isupper()
    return text[0].lower() + text[1:] if opens else text


def _replaced(text: str, match: re.Match[str], by: str) -> str:
    return text[: match.start()] + by + text[match.end() :]
