"""A cascade in words."""

from collections.abc import Iterator

from claimflow.flows.engine.findings.cascades import CascadeAccount
from claimflow.flows.pages.words import counted


def cascade_words(of: CascadeAccount) -> Iterator[str]:
    """Who judged and what that saved, then how the audits came out: a line each."""
    failed = f", {of.failed:,} failed" if of.failed else ""
    yield (
        f"cascade of {of.step}: {of.settled:,} of {counted(of.verdicts, 'verdict')} settled by the "
        f"embedded model, {counted(of.calls_saved, 'call')} saved; {of.referred:,} referred to "
        f"the judge, {of.audited:,} audited by it{failed}"
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
