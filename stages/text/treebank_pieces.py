"""Treebank tokens of a sentence piece by piece, as they are between blanks.

No rule looks beyond the blanks around a piece, but for those on how a sentence begins and
ends. So a piece that is met again need not be parted again. A line break is written
behind the last piece of a sentence; where that is not enough, a piece has no tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from claimflow.stages.text.tokens import CLOSERS, treebank_words

_COMPOUNDS: Final = frozenset(("cannot", "gimme", "gonna", "gotta", "lemme", "wanna"))
_MARK: Final = "\2"


def piece_words(pieces: Sequence[str]) -> list[list[str] | None]:
    """Tokens of each piece; None where they depend on the sentence that the piece stands in."""
    found = [None if _depends(piece) else _plain_words(piece) for piece in pieces]
    others = [n for n, words in enumerate(found) if words is None and not _depends(pieces[n])]
    for n, words in zip(others, _parted([pieces[n] for n in others]), strict=True):
        found[n] = words
    return found


def _depends(piece: str) -> bool:
    """Whether the tokens depend on more than the piece.

    The full stop of a sentence may stand before its last piece. The first and the second of
    two quotation marks that begin a sentence are parted by different rules.
    """
    if piece[-1:] == "\n" and not piece.strip().strip(CLOSERS):
        return True
    return piece.startswith(('""', "''")) or _MARK in piece


def _plain_words(piece: str) -> list[str] | None:
    """Tokens of a word with at most one mark behind it, None for any other piece."""
    text = piece.rstrip("\n")
    if _is_plain(text):
        return [text]
    if text[-1:] in ",;:?!" and _is_plain(text[:-1]):
        return [text[:-1], text[-1]]
    if text[-1:] == "." and _is_plain(text[:-1]):
        return [text] if text == piece else [text[:-1], "."]
    return None


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isalnum() and text.lower() not in _COMPOUNDS


def _parted(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Tokens of each piece by the rules, which run once for all of them."""
    sentences = [f"{_MARK} {p.rstrip()}" if p[-1:] == "\n" else f"{_MARK} {p} x" for p in pieces]
    parts = " ".join(treebank_words(sentences)).split(_MARK)[1:]
    for piece, part in zip(pieces, parts, strict=True):
        words = part.split()
        yield words if piece[-1:] == "\n" else words[:-1]
