"""What led to the scores of one sample, as a tree on a terminal."""

from collections import Counter
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from rich.tree import Tree

from claimflow.flows.report.formatting import format_count, shorten
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.report.samples import is_misattributed, traced_samples
from claimflow.flows.report.terminal import safe_text
from claimflow.flows.store.edits import edits_of_sample
from claimflow.flows.store.store import Store

_STYLES: Final = {"entailed": "green", "contradicted": "red", "neutral": "yellow"}


def sample_tree(store: Store, run_id: str, sample_id: str, *, calls: bool = False) -> Tree:
    """Texts, claims with verdicts and evidence, checks, edits, calls and scores of a sample.

    With `calls` each call has its messages and the reply.
    """
    [sample] = traced_samples(store, run_id, [sample_id])
    partial = RunDocument(store, run_id).head.partial
    run = f"run {run_id}, partial: {partial}" if partial else f"run {run_id}"
    tree = Tree(safe_text(f"sample {sample_id}  ({run})", "bold"))
    _add_texts(tree, sample)
    steps = dict.fromkeys(one["step"] for one in (*sample["claims"], *sample["non_claims"]))
    for step in steps:
        claims, others = (
            [one for one in sample[name] if one["step"] == step]
            for name in ("claims", "non_claims")
        )
        _add_claims(tree, step, claims, others)
    for step, checks in groupby(sample["checks"], key=itemgetter("step")):
        _add_checks(tree, step, list(checks))
    _add_edits(tree, store, run_id, sample_id)
    _add_calls(tree, sample, messages=calls)
    _add_scores(tree, sample["scores"])
    return tree


def _add_texts(tree: Tree, sample: dict[str, Any]) -> None:
    for name in ("user_input", "response", "reference"):
        text = "(missing)" if sample[name] is None else sample[name] or "(empty)"
        tree.add(safe_text(f"{name}: {text}"))
    contexts = sample["retrieved_contexts"]
    if contexts is not None:
        branch = tree.add(safe_text(f"retrieved_contexts: {len(contexts)}"))
        for number, context in enumerate(contexts):
            branch.add(safe_text(f"[{number}] {context[:160]}{'…' if len(context) > 160 else ''}"))
    fields = sample["metadata"].items()
    known = [f"{name}: {shorten(str(value), 80)}" for name, value in fields if name != "history"]
    if known:
        tree.add(safe_text(f"metadata: {'; '.join(known)}", "dim"))


def _add_claims(
    tree: Tree, step: str, claims: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    branch = tree.add(safe_text(f"{step}: {format_count(len(claims), 'claim')}", "bold"))
    for claim in claims:
        edited = claim["status"] == "made" and claim["reason"]
        reason = f" ({claim['reason']})" if edited else ""
        unclear = f" (unclear: {claim['ambiguous']})" if claim["ambiguous"] else ""
        leaf = branch.add(safe_text(f"{claim['claim'] or '(no claims)'}{unclear}{reason}"))
        if claim["status"] == "failed":
            leaf.add(safe_text(f"failed: {claim['reason']}"))
        if claim["cites"]:
            leaf.add(safe_text(claim["cites"], "red" if is_misattributed(claim) else ""))
        for verdict in claim["verdicts"]:
            _add_verdict(leaf, verdict)
    for other in others:
        branch.add(safe_text(f"no claim ({other['kind']}): {shorten(other['text'])}", "dim"))


def _add_verdict(leaf: Tree, row: dict[str, Any]) -> None:
    if row["status"] == "failed":
        leaf.add(safe_text(f"{row['step']}: failed: {row['reason']}"))
        return
    by_model = row["p_entailed"] is not None and row["judged_by"] in (None, "embedded")
    sure = f" ({_probability(row, row['verdict'])})" if by_model else ""
    if row["agreement"] is not None:
        sure = _votes(row)
    if row["judged_by"] in ("judge", "audit"):
        model = row["model_verdict"]
        sure += f" (the embedded model: {model}, {_probability(row, model)})"
    passage = "" if row["passage"] is None else f" [{row['passage']}]"
    if passage and row["premises"] == "cited":
        passage = f" without{passage}"
    reason = f"; {row['reason']}" if row["reason"] else ""
    text = f"{row['step']}{passage}: {row['verdict']}{sure}{reason}"
    node = leaf.add(safe_text(text, _STYLES[row["verdict"]]))
    if row["evidence"]:
        node.add(safe_text(f"evidence: {row['evidence']}", "dim"))


def _add_checks(tree: Tree, step: str, checks: list[dict[str, Any]]) -> None:
    """The verdicts of a rubric, with the words of the judge."""
    branch = tree.add(safe_text(f"{step}: {format_count(len(checks), 'check')}", "bold"))
    for row in checks:
        about = f" (of the claim: {row['claim']})" if row["claim"] else ""
        leaf = branch.add(safe_text(f"{row['check_name']}: {row['criterion'] or '-'}{about}"))
        if row["status"] == "failed":
            leaf.add(safe_text(f"failed: {row['reason']}"))
            continue
        votes = "" if row["agreement"] is None else _votes(row)
        reason = f"; {row['reason']}" if row["reason"] else ""
        style = "green" if row["score"] == 1 else "red" if row["score"] == 0 else "yellow"
        leaf.add(safe_text(f"{row['verdict']}{votes}{reason}", style))


def _votes(row: dict[str, Any]) -> str:
    """How many of the votes are for the verdict, as in ` (2 of 3 votes)`."""
    same = sum(vote.get("verdict") == row["verdict"] for vote in row["ballot"])
    return f" ({same} of {format_count(len(row['ballot']), 'vote')})"


def _probability(row: dict[str, Any], verdict: str) -> str:
    """The probability that the embedded model gives a verdict, as in `p_neutral 0.62`.

    All three where another is larger: neutral is what reaches no threshold.
    """
    found = {name: row[f"p_{name}"] for name in ("entailed", "contradicted", "neutral")}
    shown = [verdict] if found[verdict] == max(found.values()) else found
    return ", ".join(f"p_{name} {found[name]:.2f}" for name in shown)


def _add_edits(tree: Tree, store: Store, run_id: str, sample_id: str) -> None:
    """What people corrected in the sample: who, when, why, and the rows before and after."""
    edits = edits_of_sample(store, run_id, sample_id)
    if not edits:
        return
    undone = {edit.undoes for edit in edits}
    branch = tree.add(safe_text("by hand", "bold"))
    for edit in edits:
        did = "corrected" if edit.undoes is None else f"undid {edit.undoes[:8]}"
        since = ", undone since" if edit.edit_id in undone else ""
        when = f"{edit.edited_at:%Y-%m-%d %H:%M:%S}"
        made = f"edit {edit.edit_id[:8]} by {edit.who}: {edit.why}"
        leaf = branch.add(safe_text(f"{edit.step}: {did} on {when}{since} ({made})"))
        before, after = Counter(_row_lines(edit.replaced)), Counter(_row_lines(edit.rows))
        for mark, lines in (("-", before - after), ("+", after - before)):
            for line in lines:
                leaf.add(safe_text(f"{mark} {line}", "dim"))


def _row_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each claim; each verdict with its passage and its claim, or its check."""
    return [_verdict_line(row) if "verdict" in row else row["claim"] for row in rows]


def _verdict_line(row: dict[str, Any]) -> str:
    verdict = row["verdict"] or "failed"
    if "check_name" in row:
        return f"{verdict}: {row['check_name']}: {row['claim'] or row['criterion']}"
    passage = "" if row["passage"] is None else f" [{row['passage']}]"
    return f"{verdict}{passage}: {row['claim']}"


def _add_calls(tree: Tree, sample: dict[str, Any], *, messages: bool) -> None:
    """The calls that gave the claims, the verdicts and each vote."""
    calls = sample["calls"]
    if not calls:
        return
    branch = tree.add(safe_text(f"judge: {format_count(len(calls), 'call')}", "bold"))
    for row in calls:
        counts = (row["prompt_tokens"], row["completion_tokens"])
        tokens = "" if None in counts else f", {format_count(sum(counts), 'token')}"
        cost = "" if row["cost"] is None else f", {row['cost']:.6f} USD"
        call = f"{row['step']}: {row['model']} {row['outcome']}{tokens}{cost} ({row['call_id']})"
        leaf = branch.add(safe_text(call))
        if row["error"]:
            leaf.add(safe_text(f"error: {row['error']}", "red"))
        if messages:
            for name in ("system", "prompt", "reply"):
                leaf.add(safe_text(f"{name}:\n{row[name]}", "dim"))


def _add_scores(tree: Tree, scores: list[dict[str, Any]]) -> None:
    branch = tree.add(safe_text("scores", "bold"))
    for row in scores:
        value = row["status"] if row["score"] is None else f"{row['score']:.4f}"
        name = row["metric"] if row["metric"] == row["step"] else f"{row['step']}.{row['metric']}"
        reason = f" ({row['reason']})" if row["reason"] else ""
        leaf = branch.add(safe_text(f"{name}: {value}{reason}"))
        details = {k: v for k, v in row["details"].items() if v is not None}
        if details:
            text = ", ".join(f"{k} {_format_detail(v)}" for k, v in details.items())
            leaf.add(safe_text(text, "dim"))


def _format_detail(value: Any) -> str:
    """A value of a score's details; numbers have four digits, in lists and objects too."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_format_detail, value))}]"
    if isinstance(value, dict):
        return f"({', '.join(f'{k} {_format_detail(v)}' for k, v in value.items())})"
    return str(value)
