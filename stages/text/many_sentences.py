"""Sentences of many texts at once: what `split_sentences` finds, in less time.

Most pieces end no sentence whatever stands around them, and most others end one if the next
piece begins as sentences do. Only the places that this leaves open are looked at one by one,
and only texts in which pieces say too little are cut alone.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from claimflow.stages.text.batches import Ints
from claimflow.stages.text.piece_marks import Marks, look_at
from claimflow.stages.text.pieces import Flags, Pieces
from claimflow.stages.text.sentence_ends import ends_sentence
from claimflow.stages.text.sentences import (
    BREAK,
    Bounds,
    may_hold_item,
    sentence_bounds,
    skip_space,
)


class Sentences(NamedTuple):
    """The sentences of texts, which are joined by line breaks.

    Of text n they are those from `firsts[n]` up to `firsts[n + 1]`, each between its start and
    its end. `codes` are those of the pieces that they are made of, each of which is the `last` one
    of a sentence or is not. But texts in `apart` have sentences that are not made of whole
    pieces: none of those is here, and the bounds are those given there.
    """

    starts: Ints
    ends: Ints
    firsts: list[int]
    places: Ints
    codes: Ints
    last: Flags
    apart: dict[int, Bounds]

    def bounds(self, number: int) -> Bounds:
        """Where in the text of this number its sentences are."""
        if number in self.apart:
            return self.apart[number]
        own, place = slice(*self.firsts[number : number + 2]), self.places[number]
        return Bounds((self.starts[own] - place).tolist(), (self.ends[own] - place).tolist())


class _Open(NamedTuple):
    """A piece that may end the sentence that has begun, in the text of that number."""

    number: int
    begun: int
    start: int
    end: int


def find_sentences(texts: Sequence[str], pieces: Pieces) -> Sentences:
    """The sentences of at least one text, which the pieces are of."""
    marks = look_at(pieces)
    last = marks.last
    alone = _texts_with(pieces, marks.within)
    alone |= {number for number in _texts_with(pieces, marks.item) if may_hold_item(texts[number])}
    settled = list(_settled(texts, _open_pieces(pieces, marks, alone), alone))
    numbers, ends = np.array(settled, np.intp).reshape(-1, 2).T
    alone.update(numbers[~_mark(pieces, last, ends + pieces.places[numbers])].tolist())
    kept = ~pieces.breaks
    known = {number: sentence_bounds(texts[number]) for number in alone}
    for number, bounds in known.items():
        _mark(pieces, last, np.array(bounds.ends, np.intp) + pieces.places[number])
    found = _between(pieces, kept, last)
    apart = {number: known[number] for number in known if known[number] != found.bounds(number)}
    if not apart:
        return found
    for number in apart:
        kept[pieces.of_text(number)] = last[pieces.of_text(number)] = False
    return _between(pieces, kept, last)._replace(apart=apart)


def _texts_with(pieces: Pieces, found: Flags) -> set[int]:
    """The numbers of the texts that these pieces are of."""
    return set(pieces.texts(pieces.starts[found]).tolist())


def _open_pieces(pieces: Pieces, marks: Marks, alone: set[int]) -> Iterator[_Open]:
    """What is left to look at, but for texts that are cut alone."""
    found = np.flatnonzero(marks.open)
    found = found[np.isin(pieces.texts(pieces.starts[found]), list(alone), invert=True)]
    firsts = np.append(0, np.flatnonzero(marks.last | pieces.breaks) + 1)
    begun = firsts[np.searchsorted(firsts, found, "right") - 1]
    # A sentence does not begin with the blanks that stand there.
    real = pieces.real
    begun = real[np.searchsorted(real, begun)]
    numbers = pieces.texts(pieces.starts[found])
    inside = (pieces.starts[begun], pieces.starts[found], pieces.ends[found])
    columns = (numbers, *(column - pieces.places[numbers] for column in inside))
    return map(_Open, *(column.tolist() for column in columns))


def _settled(
    texts: Sequence[str], pieces: Iterator[_Open], alone: set[int]
) -> Iterator[tuple[int, int]]:
    """The numbers of texts, and where in them sentences end with these pieces.

    A text that has to be cut alone is added to `alone`.
    """
    number, after = -1, 0
    for piece in pieces:
        if piece.number != number:
            number, after = piece.number, 0
        if number in alone or piece.start < after:
            continue
        text, start = texts[number], max(piece.begun, after)
        for match in BREAK.finditer(text, piece.start):
            first, stop = match.span()
            if first >= piece.end:
                break
            if ends_sentence(text, start, match):
                after = skip_space(text, stop)
                yield number, stop
            elif stop > piece.end:
                # The stop may go on in a piece that was taken for an end.
                alone.add(number)


def _mark(pieces: Pieces, last: Flags, ends: Ints) -> Flags:
    """Mark the pieces in which sentences end; whether each ends with its piece."""
    marked = np.searchsorted(pieces.ends, ends)
    last[marked] = True
    return np.equal(pieces.ends[marked], ends)


def _between(pieces: Pieces, kept: Flags, last: Flags) -> Sentences:
    """What ends with the marked pieces and with lines, whose last pieces are marked as well."""
    real = pieces.real
    real = real[kept[real]]
    if len(real):
        # Before the first line break nothing may stand: then the very last piece is marked, with
        # which a sentence ends anyway.
        last[real[np.searchsorted(real, np.flatnonzero(pieces.breaks)) - 1]] = True
    lasts = np.flatnonzero(last[real])
    starts = pieces.starts[real[np.append(0, lasts + 1)[: len(lasts)]]]
    firsts = np.searchsorted(starts, pieces.places).tolist()
    ends = pieces.ends[real[lasts]]
    return Sentences(starts, ends, firsts, pieces.places, pieces.codes[kept], last[kept], {})
