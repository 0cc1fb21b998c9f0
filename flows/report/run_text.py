"""What reports say in words: cascades, audits, corrections, gates, judges, votes."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.quality.agreement import IntervalEstimate
from claimflow.flows.quality.calibration import (
    MAX_ROWS,
    CorrectedStep,
    EarlierCalibration,
    earlier_calibrations,
)
from claimflow.flows.quality.canaries import CanaryResult, canary_results
from claimflow.flows.quality.cascades import CascadeResult
from claimflow.flows.quality.claim_audit import Check, CheckResult, ClaimAudit, Example, StepAudit
from claimflow.flows.quality.gates import Outcome, Verdict
from claimflow.flows.quality.step_calibration import CorrectedRate
from claimflow.flows.report.formatting import format_count, format_difference, format_number
from claimflow.flows.runner.observer import StepResult
from claimflow.flows.store.results import sample_count
from claimflow.flows.store.store import Store

# A cascade in words.


def cascade_lines(of: CascadeResult) -> Iterator[str]:
    """Who judged and what that saved, then how the audits came out: a line each."""
    failed = f", {of.failed:,} failed" if of.failed else ""
    yield (
        f"cascade of {of.step}: {of.settled:,} of {format_count(of.verdicts, 'verdict')} settled "
        f"by the embedded model, {format_count(of.calls_saved, 'call')} saved; {of.referred:,} "
        f"referred to the judge, {of.audited:,} audited by it{failed}"
    )
    if of.low is None or of.high is None:
        if of.settled:
            yield "  nothing was audited: nobody knows how often the judge would disagree"
        return
    share = f"{of.disagreed / of.audited:.1%}, 95 % interval {of.low:.1%} to {of.high:.1%}"
    yield (
        f"  where the embedded model was sure the judge disagrees in {of.disagreed:,} of "
        f"{of.audited:,} on whether the claim is entailed ({share}), in {of.relabelled:,} on the "
        "verdict"
    )


# What was found in the claims of a run, in words.


CHECK_TEXTS: Final[dict[Check, str]] = {
    "repeated": "claims say what another claim of the text says",
    "unplaced": "claims have no place in the text",
    "new_words": "claims have words that the text has not",
    "open_pronoun": "claims have a pronoun that nothing in them stands for",
    "other_language": "claims are in another language than the text",
    "uncovered": "sentences of the texts are in no claim",
}

_LONGEST: Final = 300


def audit_step_text(step: StepAudit) -> str:
    """How many claims a step made of how many texts."""
    texts = format_count(step.texts, step.side)
    failed = f", {step.failed:,} of which failed" if step.failed else ""
    return f"{step.step}: {format_count(step.claims, 'claim')} of {texts}{failed}"


def audited_samples_text(found: ClaimAudit) -> str:
    """How many samples were looked at."""
    if found.samples == found.every:
        return f"all {format_count(found.every, 'sample')}"
    return (
        f"{found.samples:,} of {format_count(found.every, 'sample')}, drawn by a hash of their ids"
    )


def audit_finding_text(one: CheckResult) -> str:
    """How many of how many, and what is wrong with them."""
    return f"{one.found:,} of {one.of:,} {CHECK_TEXTS[one.check]}"


def audit_example_text(check: Check, example: Example) -> str:
    """A claim or sentence, and what speaks against it; of long ones the beginning."""
    said, words = _short(example.said), _short(", ".join(example.words))
    if check == "repeated":
        words = f"as: {words}"
    return f"{said} ({words})" if words else said


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# What a run found with its judges' errors taken into account, in words.


def correction_lines(found: Sequence[CorrectedStep]) -> Iterator[str]:
    """A line on each: the mean of a metric, or the share that is entailed, as it was judged and
    as people would say.
    """
    for one in found:
        words = "; ".join(_words(c) for c in one.corrected if _told(c))
        what = f"{one.metric} of {one.step}" if one.metric else f"entailed in {one.step}"
        if one.too_many:
            large = f"not corrected here, more than {MAX_ROWS:,} rows"
            yield f"{what}: {large}: see claimflow calibrate"
        elif words:
            labels = format_count(one.labelled, "row")
            yield f"{what}: {words}, by labels on {labels}"


def format_estimate(figure: IntervalEstimate) -> str:
    """`0.812 [0.713, 0.882]`, or a dash."""
    if figure.low is None:
        return format_number(figure.value)
    return (
        f"{format_number(figure.value)} [{format_number(figure.low)}, {format_number(figure.high)}]"
    )


def _told(one: CorrectedRate) -> bool:
    return one.what not in ("contradicted", "neutral") and one.corrected.value is not None


def _words(one: CorrectedRate) -> str:
    by_sample = " by sample" if one.by else ""
    corrected = format_estimate(one.corrected)
    return f"{format_number(one.judged)}{by_sample} as judged, {corrected} corrected ({one.method})"


# The outcomes of gates in words.


GATE_COLUMNS = ("gate", "value", "95 % interval", "outcome", "because")
"""The columns of the table of gates."""


def gate_cells(one: Outcome) -> tuple[str, ...]:
    """A row of the table of gates."""
    digits = format_difference if "no worse" in one.rule else format_number
    interval = "-" if one.low is None else f"{digits(one.low)} to {digits(one.high)}"
    return f"{one.metric}: {one.rule}", digits(one.value), interval, one.outcome, one.reason


def gate_line(outcomes: Sequence[Outcome], outcome: Verdict) -> str | None:
    """The first gate of that outcome in one line, and how many more there are; or None."""
    those = [one for one in outcomes if one.outcome == outcome]
    if not those:
        return None
    gate, value, interval, _, reason = gate_cells(those[0])
    more = f"; and {len(those) - 1} more" if len(those) > 1 else ""
    what = "failed" if outcome == "fail" else outcome
    return f"gate {what}: {gate}: {value} ({interval}), {reason}{more}"


# How far the judges of a run can be trusted, in words: canaries, labels, stale calibrations.


class JudgeLine(NamedTuple):
    """A line on a judge; `warning` where somebody should look."""

    words: str
    warning: bool = False


def judge_lines(store: Store, run_id: str, found: Sequence[CorrectedStep]) -> Iterator[JudgeLine]:
    """How the judges of a run did on its canaries, what becomes of its figures by the labels that
    were `found`, and which calibrations are of other judges.
    """
    for one in canary_results(store, run_id):
        yield from canary_lines(one)
    for words in correction_lines(found):
        yield JudgeLine(words)
    for step, before in earlier_calibrations(store, run_id).items():
        if before.stale:
            yield JudgeLine(f"warning: {step}: {earlier_calibration_text(before)}", warning=True)


def canary_lines(one: CanaryResult) -> Iterator[JudgeLine]:
    """How a judge did: beside the labels, beside its past, and a warning where it has moved."""
    failed = f", {one.failed:,} failed" if one.failed else ""
    anew = f", {one.anew:,} asked anew" if one.anew else ""
    share = f" ({_share(one)})" if one.judged else ""
    name = ", ".join(one.steps)
    yield JudgeLine(
        f"canaries of {name}: {one.agreed:,} of {one.judged:,} verdicts are as labelled{share}; "
        f"{one.judged:,} of {one.canaries:,} canaries judged{failed}{anew}"
    )
    if one.moved is None:
        return
    moved = one.moved
    then = f"run {one.since}" + ("" if one.same else ", by another judge, prompt or setting")
    right = f"{moved.were_right:,} were as labelled and {moved.are_right:,} are"
    yield JudgeLine(
        f"  since {then}: {moved.flipped:,} of {moved.both:,} verdicts are other ones; "
        f"{right} (exact McNemar test, {_chance(moved.p)})"
    )
    if moved.significant:
        way = "further from" if moved.lost > moved.gained else "nearer to"
        words = f"has moved {way} the labels since {then}, by more than chance"
        yield JudgeLine(f"warning: the judge of {name} {words}", warning=True)
    restless = one.restless
    if restless.significant:
        yield JudgeLine(
            f"warning: the judge of {name} says otherwise more often than it used to: "
            f"{restless.unusual:,} of {restless.of:,} canaries asked anew got another verdict than "
            f"usual, {restless.expected:.1f} by chance (exact permutation test, "
            f"{_chance(restless.p)})",
            warning=True,
        )


def earlier_calibration_text(one: EarlierCalibration) -> str:
    """The newest calibration of a judge, and whether it is still the one that was calibrated."""
    when = f"{one.calibrated_at:%Y-%m-%d}"
    words = f"calibration of run {one.run_id} ({when}, {format_count(one.labels, 'label')}, "
    words += f"accuracy {format_number(one.accuracy)})"
    if one.stale:
        return f"{words} is stale: another {' and another '.join(one.causes)}"
    return f"{words} is of the same judge"


def _share(one: CanaryResult) -> str:
    share = f"{one.agreed / one.judged:.1%}"
    if one.low is None or one.high is None:
        return share
    return f"{share}, 95 % interval {one.low:.1%} to {one.high:.1%}"


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


# What became of the steps of a run, in words.


def step_result_text(made: StepResult) -> str:
    """A finished step in one line: rows, whether reused, taken over, failed."""
    failures = f", {made.artifact.failures} failed" if made.artifact.failures else ""
    how = "reused" if made.reused else f"made in {made.seconds:.1f} s"
    taken = (
        f", those of {format_count(made.taken_over, 'sample')} taken over"
        if made.taken_over
        else ""
    )
    return f"{format_count(made.artifact.row_count, 'row')} {how}{taken}{failures}"


def run_counts_text(steps: pl.DataFrame) -> str:
    """The steps of a run, as `results.run_steps` gives them, counted in one line."""
    reused, failures = int(steps["reused"].sum()), int(steps["failures"].sum())
    failed = f", {format_count(failures, 'row')} failed" if failures else ""
    made = f"{format_count(steps.height - reused, 'step')} made, {reused} reused{failed}"
    return f"{format_count(sample_count(steps), 'sample')}, {made}"


# Whether the votes on claims were of one mind, in words.


def vote_text(unstable: int, voted: int) -> str | None:
    """On how many claims the votes differ, with where to see them; None where nobody voted."""
    if not voted:
        return None
    see = ': see `claimflow sql "SELECT * FROM unstable"`' if unstable else ""
    return f"{unstable:,} of {format_count(voted, 'claim')} unstable{see}"
