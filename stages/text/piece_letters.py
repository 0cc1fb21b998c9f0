"""Sentences spelled piece by piece, in letters that stand for words."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from claimflow.stages.text.batches import END, Ints, Letters
from claimflow.stages.text.pieces import Flags
from claimflow.stages.text.rouge import rouge_words
from claimflow.stages.text.tokens import treebank_words
from claimflow.stages.text.treebank_pieces import piece_words

UNKNOWN: Final = "\1"
"""The first letter: that of a piece which cannot be spelled alone."""

_MOST: Final = 50_000_000


class PieceLetters:
    """Spells pieces with these letters, each distinct one once."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self._words: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether so many characters are known that it is time to begin anew."""
        return self._size > _MOST

    def spell(
        self, distinct: Sequence[str], codes: Ints, last: Flags
    ) -> tuple[list[str], list[str]]:
        """The words that ROUGE-L counts and the treebank tokens of sentences, each as a string.

        `codes` are the places in `distinct` of their pieces, in order, each of which is the
        `last` one of a sentence or is not.
        """
        forms, places = _forms(distinct, codes, last)
        self._learn(forms)
        known = {"words": self._words, "tokens": self._tokens}
        columns = {name: list(map(letters.__getitem__, forms)) for name, letters in known.items()}
        table = pl.DataFrame(columns, schema=dict.fromkeys(known, pl.String))
        joined = table.select(pl.all().gather(places).str.join(""))
        words, tokens = (text.split(END)[:-1] for text in joined.row(0))
        lasts = np.flatnonzero(last)
        for number, text in enumerate(tokens):
            if UNKNOWN in text:
                own = codes[lasts[number - 1] + 1 if number else 0 : lasts[number] + 1]
                sentence = " ".join(distinct[code] for code in own.tolist()).lstrip(" ")
                tokens[number] = self._letters.spell(treebank_words([sentence]))
        return words, tokens

    def _learn(self, forms: Sequence[str]) -> None:
        new = [form for form in forms if form not in self._words]
        self._size += sum(map(len, new))
        for form, tokens in zip(new, piece_words(new), strict=True):
            end = END if form[-1:] == "\n" else ""
            self._words[form] = self._letters.spell(rouge_words(form)) + end
            self._tokens[form] = (UNKNOWN if tokens is None else self._letters.spell(tokens)) + end


def _forms(
    distinct: Sequence[str], codes: Ints, last: Flags
) -> tuple[list[str], NDArray[np.uint32]]:
    """The pieces that are there, a line break behind those that are last; and the place of each."""
    count = len(distinct)
    both = codes + count * last
    used = np.flatnonzero(np.bincount(both, minlength=2 * count))
    places = np.zeros(2 * count, np.uint32)
    places[used] = np.arange(len(used))
    forms = [
        distinct[code] if code < count else f"{distinct[code - count]}\n" for code in used.tolist()
    ]
    return forms, places[both]
