"""What claims are held against: a text of the sample, or several joined."""

from bisect import bisect_right
from itertools import accumulate
from typing import Literal, NamedTuple


class Premise(NamedTuple):
    """`text`, joined of `texts` by line breaks; `passage` is its number when it is one of many."""

    text: str
    texts: tuple[str, ...]
    passage: int | None = None

    def place(self, start: int, end: int) -> tuple[int, int, int]:
        """Which of `texts` the characters `start:end` lie in, and where there.

        A span over several texts is cut to the part in the text that holds most of it.
        """
        begins = [0, *accumulate(len(text) + 1 for text in self.texts)]

        def part(number: int) -> tuple[int, int]:
            begin = begins[number]
            return max(start - begin, 0), min(end - begin, len(self.texts[number]))

        first = bisect_right(begins, start) - 1
        last = bisect_right(begins, end - 1) - 1
        inside = range(first, min(last, len(self.texts) - 1) + 1)
        number = max(inside, key=lambda n: (part(n)[1] - part(n)[0], -n))
        return number, *part(number)


def premises_of(field: str | list[str] | None, how: Literal["joined", "each"]) -> list[Premise]:
    """The premises that a field of a sample gives: none where it is missing."""
    if field is None:
        return []
    if isinstance(field, str):
        return [Premise(field, (field,))]
    if how == "each":
        return [Premise(text, (text,), passage) for passage, text in enumerate(field)]
    return [Premise("\n".join(field), tuple(field))]
