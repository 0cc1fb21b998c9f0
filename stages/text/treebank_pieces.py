"""Treebank tokens of a sentence piece by piece, as they are between blanks.

No rule looks beyond the blanks around a piece, but for those on how a sentence begins and
ends. So a piece that is met again need not be parted again. A line break is written
behind the last piece of a sentence; where that is not enough, no pieces are made.
"""

from typing import Final

from stages.text.treebank import CLOSERS, treebank_words

_COMPOUNDS: Final = frozenset(("cannot", "gimme", "gonna", "gotta", "lemme", "wanna"))


def in_pieces(sentences: list[str]) -> list[str]:
    """The pieces of sentences that hold no line break and end in no white space.

    There are none for sentences of which one may begin with two quotation marks: the
    first and the second of these are parted by different rules.
    """
    joined = "\n ".join([*sentences, ""])
    if '""' in joined or "''" in joined:
        return []
    return joined.split(" ")[:-1]


def piece_words(piece: str) -> list[str] | None:
    """Tokens of one piece; None if the full stop of its sentence may stand before it."""
    text = piece.rstrip("\n")
    ends = text != piece
    if _is_plain(text):
        return [text]
    if text[-1:] in ",;:?!" and _is_plain(text[:-1]):
        return [text[:-1], text[-1]]
    if text[-1:] == "." and _is_plain(text[:-1]):
        return [text[:-1], "."] if ends else [text]
    if ends and not text.strip().strip(CLOSERS):
        return None
    words = treebank_words([f"x {text}" if ends else f"x {text} x"])
    return words[1 : len(words) - (not ends)]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isalnum() and text.lower() not in _COMPOUNDS
