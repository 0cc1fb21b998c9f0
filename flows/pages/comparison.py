"""A comparison of two runs as Markdown, fit for a pull request."""

from collections.abc import Iterator

from claimflow.flows.engine.compare.comparison import Comparison
from claimflow.flows.pages.comparison_words import (
    METRICS,
    READING,
    claim_words,
    metric_cells,
    only_words,
    other_steps,
    run_words,
    sample_counts,
    score_words,
    step_words,
)
from claimflow.flows.pages.markdown import code, table
from claimflow.flows.pages.words import signed


def as_markdown(comparison: Comparison, *, limit: int) -> str:
    """Metrics, then samples, then claims, of either at most `limit`."""
    return "\n".join(_lines(comparison, limit)) + "\n"


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
    yield from table(METRICS, cells)
    by = f"; one unit for each {code(comparison.by)}" if comparison.by else ""
    yield f"<sub>{READING}{by}</sub>"


def _scores(comparison: Comparison, limit: int) -> Iterator[str]:
    scores = comparison.scores
    yield ""
    yield f"**Scores that changed: {scores.height:,}**{_shown(scores.height, limit)}"
    if scores.is_empty():
        return
    yield ""
    yield from table(
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
    yield from table(("change", "cause", "claims"), counts)
    yield from table(
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
