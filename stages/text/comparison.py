"""What the measures of lexical overlap compare, and the precision and recall they return."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]


class Comparison(NamedTuple):
    """Texts, and the one source that each of them is compared with.

    They are strings of characters, or of letters that stand for words (see `Letters`).
    """

    texts: Sequence[str]
    source: str


class Letters(dict[str, str]):
    """One character for each distinct word, so that strings can be compared word by word.

    Algorithms for strings then compare words without hashing them again. There are characters
    for 1,114,111 distinct words.
    """

    def __missing__(self, word: str) -> str:
        letter = self[word] = chr(len(self) + 1)
        return letter

    def spell(self, words: Iterable[str]) -> str:
        """The characters of `words`, in order."""
        return "".join(map(self.__getitem__, words))


class Agreement(NamedTuple):
    """Precision is the share of a text found in its source, recall the reverse; in [0, 1]."""

    precision: Floats
    recall: Floats
    f1: Floats


def agreement(shared: ArrayLike, of_text: ArrayLike, of_source: ArrayLike) -> Agreement:
    """From the number of `shared` units and the numbers of units in text and source; 0/0 is 0.

    The arguments are numbers, or arrays with one number per text.
    """
    precision, recall = _ratio(shared, of_text), _ratio(shared, of_source)
    return Agreement(precision, recall, 2 * _ratio(precision * recall, precision + recall))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    zeros = np.zeros(np.broadcast_shapes(np.shape(part), np.shape(whole)))
    return np.divide(part, whole, out=zeros, where=np.asarray(whole) != 0)


def lengths(comparisons: Sequence[Comparison]) -> tuple[Ints, Ints]:
    """For each text of the comparisons its length and that of its source."""
    sizes = [(len(text), len(source)) for texts, source in comparisons for text in texts]
    of_texts, of_sources = np.array(sizes, np.intp).reshape(-1, 2).T
    return of_texts, of_sources
