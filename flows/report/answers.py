"""The answers of two compared runs beside each other, where they differ."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.report.formatting import format_count
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.store import Store

MOST: Final = 200
"""Samples in the table; the list of a report leads to every one."""

_LONGEST: Final = 300
_BEFORE: Final = 60
"""Characters of an answer that are shown, and of these before the first difference."""


class AnswerPair(NamedTuple):
    """A sample of both runs: its question, the answers where they differ, and changed claims."""

    sample_id: str
    question: str
    a: str | None
    b: str | None
    claims: int


class ChangedAnswers(NamedTuple):
    """A sentence about how many answers differ, and the first of them."""

    told: str
    pairs: list[AnswerPair]


def changed_answers(
    store: Store, comparison: Comparison, ranked: Sequence[str]
) -> ChangedAnswers | None:
    """The answers of the samples that both runs have, in the order of `ranked`.

    None where both runs have the same answers to all of them. Of long answers there is the part
    around the first difference.
    """
    states = comparison.samples
    differing = states.filter(
        (pl.col("state") == "changed") & pl.col("fields").list.contains("response")
    )
    names = set(differing["sample_id"])
    if not names:
        return None
    shown = [name for name in ranked if name in names][:MOST]
    both = comparison.b.samples - int((states["state"] == "new").sum())
    told = f"{len(names):,} of {format_count(both, 'sample')} of both runs have another answer in B"
    if len(shown) < len(names):
        none = comparison.claims.is_empty()
        most = "whose scores moved most" if none else "with most flipped verdicts"
        told += f"; here are {len(shown):,}, those {most} first"
    return ChangedAnswers(f"{told}.", list(_pairs(store, comparison, shown)))


def _pairs(store: Store, comparison: Comparison, names: Sequence[str]) -> Iterator[AnswerPair]:
    counts = dict(comparison.claims.group_by("sample_id").len().iter_rows())
    with store.reading() as connection:
        found = read_table(
            connection,
            _ANSWERS,
            a=comparison.a.run_id,
            b=comparison.b.run_id,
            names=list(names),
        )
    for name, question, a, b in found.iter_rows():
        short = _excerpts(a, b)
        yield AnswerPair(name, question, *short, counts.get(name, 0))


def _excerpts(a: str | None, b: str | None) -> tuple[str | None, str | None]:
    """Both texts, cut so that their first difference is in them."""
    texts = (a or "", b or "")
    pairs = enumerate(zip(*texts, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(map(len, texts)))
    start = max(0, same - _BEFORE) if max(map(len, texts)) > _LONGEST else 0
    return _excerpt(a, start), _excerpt(b, start)


def _excerpt(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    end = start + _LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


_ANSWERS: Final = """
SELECT sample_id, left(coalesce(of_b.user_input, ''), 160) AS question,
       of_a.response AS a, of_b.response AS b
FROM (SELECT unnest($names::VARCHAR[]) AS sample_id,
             generate_subscripts($names::VARCHAR[], 1) AS place)
JOIN (FROM samples WHERE run_id = $a) AS of_a USING (sample_id)
JOIN (FROM samples WHERE run_id = $b) AS of_b USING (sample_id)
ORDER BY place
"""
