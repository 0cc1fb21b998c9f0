"""The texts of a sample: what its response is compared with and what its claims are verified on."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import polars as pl

from claimflow.stages.rows import SampleField

Against = Literal["reference", "retrieved_contexts"]
Premises = Literal["joined", "each", "cited"]


def sources_of(sample: Mapping[str, Any], against: Against) -> list[tuple[int | None, str]]:
    """The texts that a response is compared with, each with its number.

    Every reference that is there with its position among all, or all contexts joined by line
    breaks with number None. Empty where the sample lacks the field.
    """
    if against == "reference":
        references = [sample["reference"], *(sample["other_references"] or ())]
        return [(number, text) for number, text in enumerate(references) if text is not None]
    contexts = sample["retrieved_contexts"]
    if contexts is None:
        return []
    return [(None, "\n".join(text for text in contexts if text is not None))]


class Premise(NamedTuple):
    """A text against which claims are verified: `texts` joined by line breaks.

    `passage` is the index of the retrieved context when each is a premise of its own. Where the
    texts are those that a claim cites, `cited` has the index of each, and `passage` is that of a
    cited context which is left out.
    """

    text: str
    texts: tuple[str, ...]
    passage: int | None = None
    cited: tuple[int, ...] | None = None

    def context(self, number: int) -> int:
        """The index of the retrieved context that is `texts[number]`."""
        if self.cited is not None:
            return self.cited[number]
        return number if self.passage is None else self.passage

    def locate(self, start: int, end: int) -> tuple[int, int, int]:
        """The span `start:end` of `text` as (index in `texts`, start, end) in that text.

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


def premises_of(
    field: str | list[str] | None, how: Premises, cited: Sequence[int] = ()
) -> list[Premise]:
    """The premises that a field of a sample gives: one text, or its contexts `joined` or `each`.

    Or those that a claim cites, by the indices in `cited`: all of them joined, and where they are
    three or more the others joined without each (for the precision of citations in ALCE, Gao et al.
    2023). Empty where the field is missing.
    """
    if field is None:
        return []
    if isinstance(field, str):
        return [Premise(field, (field,))]
    if how == "each":
        return [Premise(text, (text,), passage) for passage, text in enumerate(field)]
    if how == "joined":
        return [Premise("\n".join(field), tuple(field))]
    cited = sorted(set(cited))
    left_out = [None, *(cited if len(cited) > 2 else ())]
    return [_cited_premise(field, [n for n in cited if n != one], one) for one in left_out]


def _cited_premise(contexts: list[str], cited: list[int], left_out: int | None) -> Premise:
    texts = tuple(contexts[number] for number in cited)
    return Premise("\n".join(texts), texts, left_out, tuple(cited))


def count_texts(field: SampleField | Literal["other_references"]) -> pl.Expr:
    """How many texts a field holds that are not blank; NULL where it is missing."""
    if field in ("retrieved_contexts", "other_references"):
        return pl.col(field).list.eval(_filled(pl.element())).list.sum().cast(pl.Int64)
    return _filled(pl.col(field)).cast(pl.Int64)


def _filled(text: pl.Expr) -> pl.Expr:
    return text.str.strip_chars().str.len_bytes() > 0
