"""A comparison of two runs as it is printed on a terminal."""

from collections.abc import Iterable, Sequence

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from claimflow.flows.commands.answers import shown
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.report.comparison_text import (
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
from claimflow.flows.report.text import signed

_RIGHT = frozenset({"n", "A", "B", "B - A", "95 % interval", "p", "p (Holm)", "claims"})


def print_comparison(console: Console, comparison: Comparison, *, limit: int) -> None:
    """Print metrics, then samples, then claims, of either at most `limit`."""
    _print_head(console, comparison)
    _print_metrics(console, comparison)
    _print_scores(console, comparison.scores, limit)
    _print_claims(console, comparison, limit)


def _print_head(console: Console, comparison: Comparison) -> None:
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        console.print(shown(f"{side}  {run.run_id}  {run_words(run)}"), soft_wrap=True)
    console.print(sample_counts(comparison))
    for step in other_steps(comparison):
        console.print(shown(f"made otherwise: {step_words(step)}"), soft_wrap=True)
    for words in only_words(comparison):
        console.print(shown(words), soft_wrap=True)


def _print_metrics(console: Console, comparison: Comparison) -> None:
    if not comparison.metrics:
        console.print("\nno metric was scored in both runs\n")
        return
    columns = [name for name in METRICS if name != "left out"]
    cells = [metric_cells(m, units=comparison.by is not None) for m in comparison.metrics]
    if any(row[-1] for row in cells):
        columns.append("left out")
    _print_table(console, columns, [row[: len(columns)] for row in cells])
    by = f"; one unit for each {comparison.by}" if comparison.by else ""
    console.print(shown(f"{READING}{by}\n"), soft_wrap=True)


def _print_scores(console: Console, scores: pl.DataFrame, limit: int) -> None:
    if scores.is_empty():
        console.print("no score changed\n")
        return
    console.print(_of(scores.height, limit, "score changed", "scores changed", "the largest"))
    rows = [
        (
            row["sample_id"],
            row["name"],
            *(score_words(row, s) for s in "ab"),
            signed(row["difference"]),
        )
        for row in scores.head(limit).iter_rows(named=True)
    ]
    _print_table(console, ["sample", "metric", "A", "B", "B - A"], rows)


def _print_claims(console: Console, comparison: Comparison, limit: int) -> None:
    claims = comparison.claims
    if claims.is_empty():
        console.print("no claim and no verdict changed")
        return
    counts = [(c, why, f"{n:,}") for c, why, n in comparison.causes.iter_rows()]
    console.print(_of(claims.height, limit, "claim changed", "claims changed", "the first"))
    _print_table(console, ["change", "cause", "claims"], counts)
    for row in claims.head(limit).iter_rows(named=True):
        where = f"{row['step']}, {row['cause']}"
        console.print(
            shown(f"  {row['sample_id']}: {row['change']} ({where}): {claim_words(row)}", "bold"),
            soft_wrap=True,
        )
        if row["claim"]:
            console.print(shown(f"      {_flat(row['claim'])}"), soft_wrap=True)
        for side in "ab":
            if row[f"reason_{side}"]:
                words = f"      {side.upper()}: {_flat(row[f'reason_{side}'])}"
                console.print(shown(words), soft_wrap=True)


def _of(count: int, limit: int, one: str, many: str, which: str) -> str:
    rest = f", {which} {limit:,} of them below" if count > limit else ""
    return f"{count:,} {one if count == 1 else many}{rest}"


def _print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name in _RIGHT
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    console.print(table)


def _flat(text: str, length: int = 160) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
