"""`claimflow explain`: what led to the scores of one sample, from its texts to the numbers."""

import json
from argparse import Namespace
from typing import Any

import polars as pl
from rich.tree import Tree

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.by_hand import add_edits
from claimflow.flows.commands.stores import read_store
from claimflow.flows.report.text import counted
from claimflow.flows.store import results
from claimflow.flows.store import results as accounts


def main(options: Namespace) -> int:
    """Print the tree of one sample: texts, claims, verdicts with their evidence, scores."""
    store = read_store(options)
    run_id = results.chosen_run(store, options.run)
    sample = results.sample(store, run_id, options.sample)
    sample_id = sample["sample_id"]
    tree = Tree(shown(f"sample {sample_id}  (run {run_id})", style="bold"))
    _add_texts(tree, sample)
    _add_claims(tree, results.verdicts_of(store, run_id, sample_id))
    add_edits(tree, store, run_id, sample_id)
    _add_calls(tree, accounts.calls_of(store, run_id, sample_id), whole=options.calls)
    _add_scores(tree, results.scores_of(store, run_id, sample_id))
    standard_output().print(tree)
    return 0


def _add_texts(tree: Tree, sample: dict[str, Any]) -> None:
    for name in ("user_input", "response", "reference"):
        text = "(missing)" if sample[name] is None else sample[name] or "(empty)"
        tree.add(shown(f"{name}: {text}"))
    contexts = sample["retrieved_contexts"]
    if contexts is not None:
        branch = tree.add(shown(f"retrieved_contexts: {len(contexts)}"))
        for number, context in enumerate(contexts):
            branch.add(shown(f"[{number}] {context[:160]}{'…' if len(context) > 160 else ''}"))


def _add_claims(tree: Tree, verdicts: pl.DataFrame) -> None:
    for (step,), rows in verdicts.group_by("claims_step", maintain_order=True):
        branch = tree.add(
            shown(f"{step}: {counted(rows['claim'].n_unique(), 'claim')}", style="bold")
        )
        for (claim,), judged in rows.group_by("claim", maintain_order=True):
            leaf = branch.add(shown(f"{claim or '(no claims)'}{_by_hand(judged)}"))
            for row in judged.iter_rows(named=True):
                _add_verdict(leaf, row)


def _by_hand(claim: pl.DataFrame) -> str:
    """Who gave a claim and why, where a person did; `claim` is its rows."""
    of_claim = claim.row(0, named=True)
    given = of_claim["claim_status"] == "made" and of_claim["claim_reason"]
    return f" ({of_claim['claim_reason']})" if given else ""


def _add_verdict(leaf: Tree, row: dict[str, Any]) -> None:
    if row["claim_status"] == "failed":
        leaf.add(shown(f"failed: {row['claim_reason']}"))
    if row["verdicts_step"] is None:
        return
    if row["verdict_status"] == "failed":
        leaf.add(shown(f"{row['verdicts_step']}: failed: {row['verdict_reason']}"))
        return
    by_model = row["p_entailed"] is not None and row["judged_by"] in (None, "embedded")
    sure = f" ({row['p_entailed']:.2f} entailed)" if by_model else ""
    if row["agreement"] is not None:
        sure = f" ({row['agreement']:.0%} of the votes)"
    if row["judged_by"] in ("judge", "audit"):
        sure += f" (the embedded model: {row['model_verdict']}, {row['p_entailed']:.2f} entailed)"
    passage = "" if row["passage"] is None else f" [{row['passage']}]"
    because = f"; {row['verdict_reason']}" if row["verdict_reason"] else ""
    text = f"{row['verdicts_step']}{passage}: {row['verdict']}{sure}{because}"
    node = leaf.add(shown(text, style=_STYLES[row["verdict"]]))
    if row["evidence"]:
        node.add(shown(f"evidence: {row['evidence']}", style="dim"))


def _add_calls(tree: Tree, calls: pl.DataFrame, *, whole: bool) -> None:
    """The calls of the judge; `whole` with what was sent and the very words of the reply."""
    if calls.is_empty():
        return
    branch = tree.add(shown(f"judge: {counted(calls.height, 'call')}", style="bold"))
    for row in calls.iter_rows(named=True):
        tokens = "" if row["tokens"] is None else f", {counted(row['tokens'], 'token')}"
        cost = "" if row["cost"] is None else f", {row['cost']:.6f} USD"
        words = f"{row['step']}: {row['model']} {row['outcome']}{tokens}{cost} ({row['call_id']})"
        leaf = branch.add(shown(words))
        if row["error"]:
            leaf.add(shown(f"error: {row['error']}", style="red"))
        if whole:
            for name in ("system", "prompt", "reply"):
                leaf.add(shown(f"{name}:\n{row[name]}", style="dim"))


_STYLES = {"entailed": "green", "contradicted": "red", "neutral": "yellow"}


def _add_scores(tree: Tree, scores: pl.DataFrame) -> None:
    branch = tree.add(shown("scores", style="bold"))
    for row in scores.iter_rows(named=True):
        value = row["status"] if row["score"] is None else f"{row['score']:.4f}"
        name = row["metric"] if row["metric"] == row["step"] else f"{row['step']}.{row['metric']}"
        because = f" ({row['reason']})" if row["reason"] else ""
        leaf = branch.add(shown(f"{name}: {value}{because}"))
        details = {k: v for k, v in json.loads(row["details"]).items() if v is not None}
        if details:
            leaf.add(shown(", ".join(f"{k} {_short(v)}" for k, v in details.items()), style="dim"))


def _short(value: Any) -> str:
    """A number of a score's details with four digits, in lists and objects too."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, dict):
        return f"({', '.join(f'{k} {_short(v)}' for k, v in value.items())})"
    return str(value)
