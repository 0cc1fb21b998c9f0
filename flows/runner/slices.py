"""Slices of a part of the samples: a language model is asked about one after the other.

A step that needs the rows of another one begins with those of the first slice, so that an endpoint
need not wait between the steps.
"""

from itertools import chain
from typing import Final

import polars as pl

_SLICES: Final = 8
_FEWEST: Final = 100
"""Samples are cut into about so many slices, of so many samples at least and a part at most."""


def slice_size(samples: int, shard: int) -> int:
    """The fewest samples of a slice, where so many samples come in parts of `shard`."""
    return min(shard, max(_FEWEST, -(-samples // _SLICES)))


def slices(samples: pl.DataFrame, size: int) -> list[pl.DataFrame]:
    """The samples of a part in slices of `size` or more, each in the order of the part.

    Samples with a common text are in the same slice: a call has the claims of all of them that are
    verified against it, and the text once.
    """
    if samples.height <= size:
        return [samples]
    found: list[list[int]] = [[]]
    for group in _groups(samples):
        if len(found[-1]) >= size:
            found.append([])
        found[-1] += group
    return [samples[sorted(places)] for places in found]


def _groups(samples: pl.DataFrame) -> list[list[int]]:
    """The places of samples that have a text in common with others of the group."""
    root = list(range(samples.height))

    def root_of(place: int) -> int:
        while root[place] != place:
            root[place] = place = root[root[place]]
        return place

    first: dict[str, int] = {}
    texts = samples.select("response", "reference", "retrieved_contexts").iter_rows()
    for place, (response, reference, contexts) in enumerate(texts):
        for text in chain((response, reference), contexts or ()):
            if text:
                one, other = root_of(first.setdefault(text, place)), root_of(place)
                root[max(one, other)] = min(one, other)
    groups: dict[int, list[int]] = {}
    for place in range(samples.height):
        groups.setdefault(root_of(place), []).append(place)
    return list(groups.values())
