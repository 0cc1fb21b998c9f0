"""A comparison of two runs as Markdown, fit for a pull request."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from flows.commands.answers import shown
from flows.commands.diff_words import (
    METRICS,
    READING,
    claim_words,
    metric_cells,
    only_words,
    other_steps,
    run_words,
    sample_counts,
    score_words,
    signed,
    step_words,
)
from flows.engine.compare.comparison import Comparison

_LONGEST: Final = 300


def as_markdown(comparison: Comparison, *, limit: int) -> str:
    """Metrics, then samples, then claims, of either at most `limit`."""
    return "\n".join(_lines(comparison, limit)) + "\n"


def code(text: str | None) -> str:
    """Text under evaluation as a code span of one line, in which nothing is markup.

    In a table even there a bar would end the cell, so another one stands for it.
    """
    flat = " ".join(shown(text or "").plain.split()).replace("|", "\u2502")
    if not flat:
        return "-"
    flat = flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}\u2026"
    fence = "`" * (1 + max(map(len, re.findall("`+", flat)), default=0))
    room = " " if "`" in flat else ""
    return f"{fence}{room}{flat}{room}{fence}"


def _lines(comparison: Comparison, limit: int) -> Iterator[str]:
    yield "### What changed from A to B"
    yield ""
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        yield f"- {side}: {code(run.run_id)} {code(run_words(run))}"
    yield f"- {sample_counts(comparison)}"
    yield from (f"- made otherwise: {code(step_words(step))}" for step in other_steps(comparison))
    yield from (f"- {code(words)}" for words in only_words(comparison))
    yield ""
    yield from _metrics(comparison)
    yield from _scores(comparison, limit)
    yield from _claims(comparison, limit)


def _metrics(comparison: Comparison) -> Iterator[str]:
    if not comparison.metrics:
        yield "No metric was scored in both runs."
        return
    cells = [metric_cells(m, units=comparison.by is not None) for m in comparison.metrics]
    yield from _table(METRICS, cells)
    by = f"; one unit for each {code(comparison.by)}" if comparison.by else ""
    yield f"<sub>{READING}{by}</sub>"


def _scores(comparison: Comparison, limit: int) -> Iterator[str]:
    scores = comparison.scores
    yield ""
    yield f"**Scores that changed: {scores.height:,}**{_shown(scores.height, limit)}"
    if scores.is_empty():
        return
    yield ""
    yield from _table(
        ("sample", "metric", "A", "B", "B - A"),
        (
            (
                code(row["sample_id"]),
                row["name"],
                *(score_words(row, side) for side in "ab"),
                signed(row["difference"]),
            )
            for row in scores.head(limit).iter_rows(named=True)
        ),
    )


def _claims(comparison: Comparison, limit: int) -> Iterator[str]:
    claims = comparison.claims
    yield ""
    yield f"**Claims that changed: {claims.height:,}**{_shown(claims.height, limit)}"
    if claims.is_empty():
        return
    yield ""
    counts = ((*row[:2], f"{row[2]:,}") for row in comparison.causes.iter_rows())
    yield from _table(("change", "cause", "claims"), counts)
    yield from _table(
        ("sample", "claim", "change", "", "cause", "step"),
        (
            (
                code(row["sample_id"]),
                code(row["claim"]),
                row["change"],
                claim_words(row),
                row["cause"],
                row["step"],
            )
            for row in claims.head(limit).iter_rows(named=True)
        ),
    )


def _shown(count: int, limit: int) -> str:
    return f", {limit:,} of them below" if count > limit else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
