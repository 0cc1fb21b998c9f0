"""Sentences about one run: steps, gates, judges, cascades, votes, claims and corrections."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from claimflow.flows.quality.agreement import IntervalEstimate
from claimflow.flows.quality.calibration import MAX_ROWS, CorrectedStep, EarlierCalibration
from claimflow.flows.quality.canaries import CanaryResult
from claimflow.flows.quality.cascades import CascadeResult
from claimflow.flows.quality.claim_audit import Check, CheckResult, ClaimAudit, Example, StepAudit
from claimflow.flows.quality.failed_rows import UnscoredMetric
from claimflow.flows.quality.gates import Outcome, Verdict
from claimflow.flows.quality.step_calibration import CorrectedRate
from claimflow.flows.report.formatting import (
    format_count,
    format_difference,
    format_interval,
    format_number,
    shorten,
)
from claimflow.flows.runner.observer import StepResult
from claimflow.flows.store.languages import UntaughtTexts

GATE_COLUMNS = ("gate", "value", "95 % interval", "outcome", "because")
"""The columns of the table of gates."""

CHECK_TEXTS: Final[dict[Check, str]] = {
    "repeated": "claims repeat another claim of the text",
    "unplaced": "claims cannot be located in the text",
    "new_words": "claims have words that are not in the text",
    "open_pronoun": "claims have a pronoun without the noun it stands for",
    "other_language": "claims are in another language than the text",
    "uncovered": "sentences of the texts are covered by no claim",
}

_MAX_EXAMPLE: Final = 300
"""Characters of an example that are shown."""


class JudgeLine(NamedTuple):
    """A line on a judge; a `warning` is a reason to distrust it."""

    text: str
    warning: bool = False


def partial_run_text(selection: str) -> str:
    """The options of a partial run, and what leaves it out."""
    return f"partial run ({shorten(selection, 80)}): latest, trends and baselines leave it out"


def step_result_text(result: StepResult) -> str:
    """A finished step: its rows, whether they were made or reused, and how many failed."""
    failures = f", {result.artifact.failures} failed" if result.artifact.failures else ""
    how = "reused" if result.reused else f"made in {result.seconds:.1f} s"
    samples = format_count(result.reused_samples, "sample")
    copied = f", rows of {samples} reused" if result.reused_samples else ""
    return f"{format_count(result.artifact.row_count, 'row')} {how}{copied}{failures}"


def calls_text(row: dict[str, Any]) -> str:
    """The calls, tokens and cost of a model; `row` is one of `results.calls_made`."""
    tokens = "tokens unknown" if row["tokens"] is None else format_count(row["tokens"], "token")
    if row["cached"]:
        tokens += f" ({row['cached']:,} cached)"
    unpriced = row["calls"] - row["priced"]
    cost = "" if row["cost"] is None else f", {row['cost']:.4f} USD"
    unknown = f", {format_count(unpriced, 'call')} of unknown price" if unpriced else ""
    repaired = f", {row['repaired']:,} repaired" if row["repaired"] else ""
    who = f"{row['judge']} {row['model']}"
    return f"{who}: {format_count(row['calls'], 'call')}{repaired}, {tokens}{cost}{unknown}"


def vote_text(unstable: int, voted: int) -> str | None:
    """On how many verdicts the votes differ, and how to list them; None where none has votes."""
    if not voted:
        return None
    see = ': see `claimflow sql "SELECT * FROM unstable"`' if unstable else ""
    return f"{unstable:,} of {format_count(voted, 'verdict')} unstable{see}"


def ambiguity_text(ambiguous: int, made: int) -> str | None:
    """How many claims are ambiguous, and how to list them; None where none is."""
    if not ambiguous:
        return None
    counts = f"{ambiguous:,} of {format_count(made, 'claim')}"
    verb = "is" if ambiguous == 1 else "are"
    return f"{counts} {verb} ambiguous: FROM latest.claims WHERE ambiguous IS NOT NULL"


def gate_cells(one: Outcome) -> tuple[str, ...]:
    """A row of the table of gates."""
    format_value = format_difference if "no worse" in one.rule else format_number
    interval = format_interval(one.low, one.high, format_value)
    return f"{one.metric}: {one.rule}", format_value(one.value), interval, one.outcome, one.reason


def gate_line(outcomes: Sequence[Outcome], outcome: Verdict) -> str | None:
    """The first gate with an outcome, and the number of further ones; None where there is none."""
    found = [one for one in outcomes if one.outcome == outcome]
    if not found:
        return None
    gate, value, interval, _, reason = gate_cells(found[0])
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    result = "failed" if outcome == "fail" else outcome
    return f"gate {result}: {gate}: {value} ({interval}), {reason}{more}"


def unscored_metric_text(one: UnscoredMetric) -> str:
    """A warning about a metric that is scored for no sample."""
    counts = {"undefined": one.samples - one.failed, "failed": one.failed}
    shown = ", ".join(f"{count:,} {status}" for status, count in counts.items() if count)
    reason = f" ({one.reason})" if one.reason else ""
    name = one.metric if one.metric == one.step else f"{one.step}.{one.metric}"
    return f"warning: no sample has a score for {name}: {shown}{reason}"


_REMEDIES: Final = {
    "entailment": "a language model judge (`judge: {model: ...}`) or a multilingual model of the "
    "Hub (`entailment: {model: OWNER/NAME}`)",
    "embedder": "a multilingual encoder (`embedder: {model: FOLDER}`)",
    "parser": "stages that do not parse them",
}


def untaught_text(one: UntaughtTexts) -> str:
    """A warning about texts in languages that embedded models were not taught, and what to do."""
    what, hint = untaught_parts(one)
    return f"warning: {what}; {hint}"


def untaught_parts(one: UntaughtTexts) -> tuple[str, str]:
    """What is wrong with such texts, and what to do, with settings between backticks."""
    languages = _listed(f"{language} {count:,}" for language, count in one.languages.items())
    what = (
        f"{one.samples:,} of {format_count(one.every, 'sample')} with text in languages that the "
        f"embedded models of {_listed(one.steps)} were not taught ({languages}): do not trust "
        "their figures"
    )
    return what, f"use {' and '.join(_REMEDIES[reader] for reader in one.readers)}"


_MOST_LISTED: Final = 5


def _listed(names: Iterable[str]) -> str:
    """Names with commas, at most five of them."""
    shown = list(names)
    rest = len(shown) - _MOST_LISTED
    return ", ".join(shown[:_MOST_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def cascade_lines(of: CascadeResult) -> Iterator[str]:
    """Which model judged how many verdicts, then how often the audits disagreed."""
    failed = f", {of.failed:,} failed" if of.failed else ""
    yield (
        f"cascade of {of.step}: {of.settled:,} of {format_count(of.verdicts, 'verdict')} settled "
        f"by the embedded model, up to {format_count(of.calls_saved, 'call')} saved; "
        f"{of.referred:,} referred to the judge, {of.audited:,} audited by it{failed}"
    )
    if of.low is None or of.high is None:
        if of.settled:
            yield "  nothing was audited: how often the judge would disagree is unknown"
        return
    share = f"{of.disagreed / of.audited:.1%}, 95 % interval {of.low:.1%} to {of.high:.1%}"
    yield (
        f"  where the embedded model was sure the judge disagrees in {of.disagreed:,} of "
        f"{of.audited:,} on whether the claim is entailed ({share}), in {of.relabelled:,} on the "
        "verdict"
    )


def canary_lines(one: CanaryResult) -> Iterator[JudgeLine]:
    """Agreement of a judge with the labels, its change since an earlier run, and warnings."""
    failed = f", {one.failed:,} failed" if one.failed else ""
    again = f", {one.anew:,} asked again" if one.anew else ""
    share = f" ({_agreement_share(one)})" if one.judged else ""
    name = ", ".join(one.steps)
    yield JudgeLine(
        f"canaries of {name}: {one.agreed:,} of {one.judged:,} verdicts are as labelled{share}; "
        f"{one.judged:,} of {one.canaries:,} canaries judged{failed}{again}"
    )
    if one.moved is None:
        return
    moved = one.moved
    then = f"run {one.since}" + ("" if one.same else ", by another judge, prompt or setting")
    right = f"{moved.were_right:,} were as labelled and {moved.are_right:,} are"
    yield JudgeLine(
        f"  since {then}: {moved.flipped:,} of {moved.both:,} verdicts changed; "
        f"{right} (exact McNemar test, {_format_p(moved.p)})"
    )
    if moved.significant:
        way = "further from" if moved.lost > moved.gained else "nearer to"
        change = f"has moved {way} the labels since {then}, by more than chance"
        yield JudgeLine(f"warning: the judge of {name} {change}", warning=True)
    restless = one.restless
    if restless.significant:
        yield JudgeLine(
            f"warning: the judge of {name} changes its verdicts more often than it used to: "
            f"{restless.unusual:,} of {restless.of:,} canaries asked again got another verdict "
            f"than usual, {restless.expected:.1f} by chance (exact permutation test, "
            f"{_format_p(restless.p)})",
            warning=True,
        )


def earlier_calibration_text(one: EarlierCalibration) -> str:
    """The newest calibration of a step, and whether the judge has changed since."""
    when = f"{one.calibrated_at:%Y-%m-%d}"
    basis = f"{when}, {format_count(one.labels, 'label')}, accuracy {format_number(one.accuracy)}"
    calibration = f"calibration of run {one.run_id} ({basis})"
    if one.stale:
        return f"{calibration} is stale: another {' and another '.join(one.causes)}"
    return f"{calibration} is of the same judge"


def _agreement_share(one: CanaryResult) -> str:
    share = f"{one.agreed / one.judged:.1%}"
    if one.low is None or one.high is None:
        return share
    return f"{share}, 95 % interval {one.low:.1%} to {one.high:.1%}"


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def correction_lines(found: Sequence[CorrectedStep]) -> Iterator[str]:
    """For each step: its mean, or the share entailed, as judged and as corrected by labels."""
    for one in found:
        rates = "; ".join(_rate_text(rate) for rate in one.corrected if _is_reported(rate))
        what = f"{one.metric} of {one.step}" if one.metric else f"entailed in {one.step}"
        if one.too_many:
            large = f"not corrected here, more than {MAX_ROWS:,} rows"
            yield f"{what}: {large}: see claimflow calibrate"
        elif rates:
            labels = format_count(one.labelled, "row")
            yield f"{what}: {rates}, by labels on {labels}"


def format_estimate(estimate: IntervalEstimate) -> str:
    """`0.812 [0.713, 0.882]`, or a dash."""
    value, low, high = map(format_number, (estimate.value, estimate.low, estimate.high))
    return value if estimate.low is None else f"{value} [{low}, {high}]"


def _is_reported(rate: CorrectedRate) -> bool:
    return rate.what not in ("contradicted", "neutral") and rate.corrected.value is not None


def _rate_text(rate: CorrectedRate) -> str:
    by_sample = " by sample" if rate.by else ""
    judged = f"{format_number(rate.judged)}{by_sample} as judged"
    return f"{judged}, {format_estimate(rate.corrected)} corrected ({rate.method})"


def audit_step_text(step: StepAudit) -> str:
    """How many claims a step made, and of how many texts."""
    texts = format_count(step.texts, step.side)
    failed = f", {step.failed:,} of which failed" if step.failed else ""
    return f"{step.step}: {format_count(step.claims, 'claim')} of {texts}{failed}"


def audited_samples_text(audit: ClaimAudit) -> str:
    """How many samples were audited."""
    every = format_count(audit.every, "sample")
    if audit.samples == audit.every:
        return f"all {every}"
    return f"{audit.samples:,} of {every}, drawn by a hash of their ids"


def audit_finding_text(one: CheckResult) -> str:
    """The number of claims or sentences with an error, and the error."""
    return f"{one.found:,} of {one.of:,} {CHECK_TEXTS[one.check]}"


def audit_example_text(check: Check, example: Example) -> str:
    """A claim or sentence and the words that are wrong, both cut after 300 characters."""
    text, evidence = _short(example.said), _short(", ".join(example.words))
    if check == "repeated":
        evidence = f"as: {evidence}"
    return f"{text} ({evidence})" if evidence else text


def _short(text: str) -> str:
    return text if len(text) <= _MAX_EXAMPLE else f"{text[:_MAX_EXAMPLE]}…"
