"""What is compared with what: texts with a source, a batch of both at a time."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from claimflow.stages.text.sequences import Ints

_BATCH: Final = 65_536


class Comparison(NamedTuple):
    """Texts, and the one source that each of them is compared with.

    They are strings of characters, or of letters that stand for words.
    """

    texts: Sequence[str]
    source: str

    @property
    def size(self) -> int:
        """The number of characters on both sides."""
        return len(self.source) + sum(map(len, self.texts))


def batches(comparisons: Sequence[Comparison]) -> Iterator[list[Comparison]]:
    """Comparisons of at most 65,536 characters together, or a longer one alone."""
    batch: list[Comparison] = []
    room = _BATCH
    for comparison in comparisons:
        if not comparison.texts:
            continue
        if batch and comparison.size > room:
            yield batch
            batch, room = [], _BATCH
        batch.append(comparison)
        room -= comparison.size
    if batch:
        yield batch


def owners(batch: Sequence[Comparison]) -> Ints:
    """For each text of the comparisons the number of its own one."""
    return np.repeat(np.arange(len(batch)), [len(comparison.texts) for comparison in batch])


def lengths(comparisons: Sequence[Comparison]) -> tuple[Ints, Ints]:
    """For each text of the comparisons its length and that of its source."""
    of_texts = [len(text) for comparison in comparisons for text in comparison.texts]
    of_sources = [len(comparison.source) for comparison in comparisons]
    return np.array(of_texts, np.intp), np.array(of_sources, np.intp)[owners(comparisons)]
