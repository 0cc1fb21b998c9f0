"""What a run found, as a page of Markdown and as a table of its worst samples."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from claimflow.flows.engine.calibration.corrections import corrections
from claimflow.flows.engine.compare.comparison import compare
from claimflow.flows.engine.compare.pairs import Runs
from claimflow.flows.engine.findings import accounts, results
from claimflow.flows.engine.findings.cascades import cascades_of
from claimflow.flows.engine.findings.gates import outcomes_of
from claimflow.flows.engine.report.overview import audited_claims
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.tags import PREVIOUS, find_run
from claimflow.flows.pages.cascade import cascade_words
from claimflow.flows.pages.claim_audit import found_words, sample_words, step_words
from claimflow.flows.pages.comparison import as_markdown
from claimflow.flows.pages.gates import GATES, gate_cells
from claimflow.flows.pages.judges import judge_lines
from claimflow.flows.pages.markdown import code, table
from claimflow.flows.pages.steps import run_counts
from claimflow.flows.pages.votes import vote_words
from claimflow.flows.pages.words import counted, number

COMPARED_UP_TO: Final = 100_000
"""Samples up to which a page has the difference to the run before: all of it is in memory."""

_CHANGES: Final = 10
_WORST: Final = 20
_CLAIMS: Final = 3

_METRICS: Final = ("metric", "mean", "95 % interval", "scored", "undefined", "failed", "of")


def run_page(store: Store, run_id: str) -> str:
    """Means with their intervals and counts, gates, failures, cost, and what has changed since."""
    return "\n".join(_lines(store, run_id)) + "\n"


def worst_samples(store: Store, run_id: str) -> list[dict[str, Any]]:
    """The samples with the lowest mean over their scores, with the claims that were not entailed.

    Every cell of text is a code span, for Prefect renders cells as Markdown.
    """
    return [
        {
            "sample": code(row["sample_id"]),
            "mean": number(row["mean"]),
            "asked": code(row["user_input"]),
            "response": code(row["response"]),
            "claims": _not_entailed(store, run_id, row["sample_id"]),
        }
        for row in results.lowest(store, run_id, _WORST).iter_rows(named=True)
    ]


def metric_name(row: dict[str, str], summaries: pl.DataFrame) -> str:
    """The metric of a row of `summaries`, led by its step where several make it, and the slice."""
    makers = summaries.filter(pl.col("metric") == row["metric"])["scores"].n_unique()
    name = row["metric"] if makers == 1 else f"{row['scores']}.{row['metric']}"
    if row["slice_field"] is None:
        return name
    return f"{name} [{row['slice_field']}={row['slice_value']}]"


def call_words(row: dict[str, Any]) -> str:
    """What a judge was asked and what it cost; `row` is one of `accounts.calls_made`."""
    tokens = "tokens not told" if row["tokens"] is None else counted(row["tokens"], "token")
    unpriced = row["calls"] - row["priced"]
    cost = "" if row["cost"] is None else f", {row['cost']:.4f} USD"
    unknown = f", {counted(unpriced, 'call')} of unknown price" if unpriced else ""
    repaired = f", {row['repaired']:,} repaired" if row["repaired"] else ""
    who = f"{row['judge']} {row['model']}"
    return f"{who}: {counted(row['calls'], 'call')}{repaired}, {tokens}{cost}{unknown}"


def _lines(store: Store, run_id: str) -> Iterator[str]:
    steps = results.run_steps(store, run_id)
    yield f"### Run {code(run_id)}"
    yield ""
    yield f"{run_counts(steps)}; store {code(str(store.path))}"
    yield ""
    yield from _metrics(results.summaries(store, run_id))
    outcomes = outcomes_of(store, run_id)
    if outcomes:
        cells = map(gate_cells, outcomes)
        yield from table(GATES, ((code(g), v, i, o, code(why)) for g, v, i, o, why in cells))
    for row in accounts.failures(store, run_id).iter_rows(named=True):
        kind = f" {row['failure']}" if row["failure"] else ""
        yield f"- {code(row['step'])}: {row['failed']:,} failed{kind}: {code(row['reason'])}"
    votes = vote_words(*accounts.votes(store, run_id))
    if votes:
        yield f"- {code(votes)}"
    for cascade in cascades_of(store, run_id):
        yield f"- {code(' '.join(line.strip() for line in cascade_words(cascade)))}"
    for line in judge_lines(store, run_id, corrections(store, run_id)):
        mark = "**warning** " if line.warning else ""
        yield f"- {mark}{code(line.words.strip().removeprefix('warning: '))}"
    for row in accounts.calls_made(store, run_id).iter_rows(named=True):
        yield f"- {code(call_words(row))}"
    yield from _claims(store, run_id)
    yield ""
    yield from _difference(store, run_id, results.sample_count(steps))


def _metrics(summaries: pl.DataFrame) -> Iterator[str]:
    whole = summaries.filter(pl.col("slice_field").is_null())
    if whole.is_empty():
        yield "No means: add a step that uses `summarize_scores`."
        yield ""
        return
    yield from table(
        _METRICS,
        (
            (
                code(metric_name(row, whole)),
                number(row["mean"]),
                f"{number(row['low'])} to {number(row['high'])}",
                *(f"{row[name]:,}" for name in ("n_scored", "n_undefined", "n_failed", "n")),
            )
            for row in whole.iter_rows(named=True)
        ),
    )


def _claims(store: Store, run_id: str) -> Iterator[str]:
    """What is wrong with the claims of each step, whatever the judges say of them."""
    audit = audited_claims(store, run_id)
    for step in audit.steps:
        found = [one for one in step.checks if one.found]
        if found:
            yield f"- {code(f'{step_words(step)} ({sample_words(audit)})')}"
            yield from (f"  - {code(found_words(one))}" for one in found)


def _difference(store: Store, run_id: str, samples: int) -> Iterator[str]:
    before = find_run(store, PREVIOUS, before=run_id)
    if before is None:
        yield "The first run of its pipeline: there is none to compare it with."
    elif samples > COMPARED_UP_TO:
        yield f"What changed: `claimflow diff {before} {run_id}`"
    else:
        yield as_markdown(compare(store, Runs(before, run_id)), limit=_CHANGES)


def _not_entailed(store: Store, run_id: str, sample_id: str) -> str:
    verdicts = results.verdicts_of(store, run_id, sample_id)
    those = verdicts.filter(pl.col("verdict").is_in(["contradicted", "neutral"]))
    worst = those.sort(pl.col("verdict") != "contradicted", maintain_order=True)
    told = [
        f"{row['verdict']}: {code(row['claim'])}" for row in worst.head(_CLAIMS).rows(named=True)
    ]
    more = [f"and {those.height - _CLAIMS:,} more"] if those.height > _CLAIMS else []
    return "; ".join([*told, *more]) or "-"
