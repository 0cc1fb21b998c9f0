"""What a run found, printed: metrics, the lowest samples and what failed them, what to do next."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.by_hand import print_lapsed
from claimflow.flows.commands.gate_report import gate_code, print_gates
from claimflow.flows.judge.judge import FINAL
from claimflow.flows.quality.calibration import corrected_steps
from claimflow.flows.quality.cascades import CascadeAccount, cascades_of
from claimflow.flows.quality.gates import outcomes_of
from claimflow.flows.report.markdown import call_words, metric_name
from claimflow.flows.report.phrases import Said, cascade_words, judge_lines, run_counts, vote_words
from claimflow.flows.report.text import counted, number
from claimflow.flows.store import results
from claimflow.flows.store import results as accounts
from claimflow.flows.store.store import Store

_LOWEST: Final = 3
_SHOWN_CLAIMS: Final = 4
_CONTRADICTED: Final = (
    "SELECT sample_id, claim, verdict FROM claims JOIN verdicts USING (run_id, claim_id) "
    "WHERE verdict = 'contradicted'"
)


def print_report(
    store: Store, run_id: str, *, slices: bool = False, config: Path | None = None
) -> int:
    """Print a run to standard output and return the exit code that it makes.

    4 when a gate failed, else 5 when one is inconclusive, else 1 when some rows failed, else 0.
    `slices` adds the means by metadata, `config` the command that plans the next run.
    """
    console = standard_output()
    steps = results.run_steps(store, run_id)
    console.print(f"\nrun {run_id}: {run_counts(steps)}")
    summaries = results.summaries(store, run_id)
    whole = pl.col("slice_field").is_null()
    _print_metrics(console, summaries if slices else summaries.filter(whole))
    outcomes = outcomes_of(store, run_id)
    print_gates(console, outcomes)
    _print_failures(console, accounts.failures(store, run_id))
    print_lapsed(console, store, run_id)
    _print_votes(console, vote_words(*accounts.votes(store, run_id)))
    _print_cascades(console, cascades_of(store, run_id))
    labelled = corrected_steps(store, run_id)
    _print_judges(console, list(judge_lines(store, run_id, labelled)))
    _print_calls(console, accounts.calls_made(store, run_id))
    lowest = results.lowest(store, run_id, _LOWEST)
    _print_lowest(console, store, run_id, lowest)
    console.print(shown(f"store: {store.path}"), soft_wrap=True)
    commands = [
        f'claimflow sql "{_CONTRADICTED}"',
        *(f"claimflow explain {shlex.quote(name)}" for name in lowest["sample_id"][:1]),
        *([f"claimflow plan {config}"] if config else []),
    ]
    console.print(shown("\n  ".join(["next:", *commands])), soft_wrap=True)
    return gate_code(outcomes) or int(steps["failures"].sum() > 0)


def _print_metrics(console: Console, summaries: pl.DataFrame) -> None:
    if summaries.is_empty():
        console.print("no means: add a step that uses summarize_scores\n")
        return
    micro = [_micro_mean(row) for row in summaries.iter_rows(named=True)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    names = ["mean", "95 % interval", *(["micro mean"] if any(micro) else [])]
    for name in (*names, "scored", "undefined", "failed", "of"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, pooled in zip(summaries.iter_rows(named=True), micro, strict=True):
        low, high = number(row["low"]), number(row["high"])
        interval = "-" if row["low"] is None else f"{low} to {high}"
        means = [number(row["mean"]), interval, *([pooled] if any(micro) else [])]
        counts = [f"{row[c]:,}" for c in ("n_scored", "n_undefined", "n_failed", "n")]
        table.add_row(shown(metric_name(row, summaries)), *means, *counts)
    console.print(table)


def _micro_mean(row: dict[str, float | None]) -> str:
    """The mean in which every claim counts the same, where it is another one."""
    micro = "" if row["micro_mean"] is None else number(row["micro_mean"])
    return "" if micro == number(row["mean"]) else micro


def _print_failures(console: Console, failures: pl.DataFrame) -> None:
    """What failed and one reason for each kind; the reasons of all rows are in the tables."""
    if failures.is_empty():
        return
    failed = counted(int(failures["failed"].sum()), "row")
    final = failures["failure"].is_in(FINAL).fill_null(value=False)
    again = int(failures.filter(~final)["failed"].sum())
    more = f"; run again to ask for {again:,} of them" if again else ""
    console.print(f"{failed} failed{more}")
    for row in failures.iter_rows(named=True):
        kind = f" {row['failure']}" if row["failure"] else ""
        words = f"  {row['step']}: {row['failed']:,}{kind}: {_short(row['reason'], 160)}"
        console.print(shown(words), soft_wrap=True)
    console.print()


def _print_votes(console: Console, words: str | None) -> None:
    if words:
        console.print(shown(f"{words}\n"), soft_wrap=True)


def _print_cascades(console: Console, cascades: Sequence[CascadeAccount]) -> None:
    for cascade in cascades:
        for line in cascade_words(cascade):
            console.print(shown(line), soft_wrap=True)
    if cascades:
        console.print()


def _print_judges(console: Console, lines: Sequence[Said]) -> None:
    for line in lines:
        console.print(shown(line.words, style="bold" if line.warning else ""), soft_wrap=True)
    if lines:
        console.print()


def _print_calls(console: Console, calls: pl.DataFrame) -> None:
    for row in calls.iter_rows(named=True):
        console.print(shown(call_words(row)), soft_wrap=True)
    if not calls.is_empty():
        console.print()


def _print_lowest(console: Console, store: Store, run_id: str, lowest: pl.DataFrame) -> None:
    if lowest.is_empty():
        return
    console.print(f"the {lowest.height} lowest samples, by the mean of their scores\n")
    for row in lowest.iter_rows(named=True):
        console.print(shown(f"  {row['mean']:.3f}  {row['sample_id']}", style="bold"))
        if row["user_input"]:
            console.print(shown(f"         asked: {_short(row['user_input'])}"))
        verdicts = results.verdicts_of(store, run_id, row["sample_id"])
        failed = verdicts.filter(pl.col("verdict").is_in(["contradicted", "neutral"]))
        worst = failed.sort(pl.col("verdict") != "contradicted", maintain_order=True)
        for claim in worst.head(_SHOWN_CLAIMS).iter_rows(named=True):
            words = f"{claim['verdict']} ({claim['verdicts_step']}): {_short(claim['claim'])}"
            console.print(shown(f"         {words}"))
        if failed.height > _SHOWN_CLAIMS:
            console.print(f"         and {failed.height - _SHOWN_CLAIMS} more")
        console.print()


def _short(text: str | None, length: int = 100) -> str:
    flat = " ".join((text or "").split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
