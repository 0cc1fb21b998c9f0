"""How far the judges of a run can be trusted, in words: canaries, labels, stale calibrations."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from claimflow.flows.engine.calibration.corrections import Correction
from claimflow.flows.engine.calibration.records import Earlier, earlier
from claimflow.flows.engine.canaries.account import CanaryAccount, canaries_of
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.pages.corrections import correction_lines
from claimflow.flows.pages.words import counted, number


class Said(NamedTuple):
    """A line on a judge; `warning` where somebody should look."""

    words: str
    warning: bool = False


def judge_lines(store: Store, run_id: str, found: Sequence[Correction]) -> Iterator[Said]:
    """How the judges of a run did on its canaries, what becomes of its figures by the labels that
    were `found`, and which calibrations are of other judges.
    """
    for one in canaries_of(store, run_id):
        yield from canary_lines(one)
    for words in correction_lines(found):
        yield Said(words)
    for step, before in earlier(store, run_id).items():
        if before.stale:
            yield Said(f"warning: {step}: {earlier_words(before)}", warning=True)


def canary_lines(one: CanaryAccount) -> Iterator[Said]:
    """How a judge did: beside the labels, beside its past, and a warning where it has moved."""
    failed = f", {one.failed:,} failed" if one.failed else ""
    anew = f", {one.anew:,} asked anew" if one.anew else ""
    share = f" ({_share(one)})" if one.judged else ""
    name = ", ".join(one.steps)
    yield Said(
        f"canaries of {name}: {one.agreed:,} of {one.judged:,} verdicts are as labelled{share}; "
        f"{one.judged:,} of {one.canaries:,} canaries judged{failed}{anew}"
    )
    if one.moved is None:
        return
    moved = one.moved
    then = f"run {one.since}" + ("" if one.same else ", by another judge, prompt or setting")
    right = f"{moved.were_right:,} were as labelled and {moved.are_right:,} are"
    yield Said(
        f"  since {then}: {moved.flipped:,} of {moved.both:,} verdicts are other ones; "
        f"{right} (exact McNemar test, {_chance(moved.p)})"
    )
    if moved.beyond_chance:
        way = "further from" if moved.lost > moved.gained else "nearer to"
        words = f"has moved {way} the labels since {then}, by more than chance"
        yield Said(f"warning: the judge of {name} {words}", warning=True)
    restless = one.restless
    if restless.beyond_chance:
        yield Said(
            f"warning: the judge of {name} says otherwise more often than it used to: "
            f"{restless.unusual:,} of {restless.of:,} canaries asked anew got another verdict than "
            f"usual, {restless.expected:.1f} by chance (exact permutation test, "
            f"{_chance(restless.p)})",
            warning=True,
        )


def earlier_words(one: Earlier) -> str:
    """The newest calibration of a judge, and whether it is still the one that was calibrated."""
    when = f"{one.calibrated_at:%Y-%m-%d}"
    words = f"calibration of run {one.run_id} ({when}, {counted(one.labels, 'label')}, "
    words += f"accuracy {number(one.accuracy)})"
    if one.stale:
        return f"{words} is stale: another {' and another '.join(one.causes)}"
    return f"{words} is of the same judge"


def _share(one: CanaryAccount) -> str:
    share = f"{one.agreed / one.judged:.1%}"
    if one.low is None or one.high is None:
        return share
    return f"{share}, 95 % interval {one.low:.1%} to {one.high:.1%}"


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
