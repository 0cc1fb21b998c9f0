"""What was found in the claims of a run, in words."""

from typing import Final

from claimflow.flows.engine.audit_claims.looking import Check
from claimflow.flows.engine.audit_claims.run import ClaimAudit
from claimflow.flows.engine.audit_claims.tally import Checked, Example, StepAudit
from claimflow.flows.pages.words import counted

CHECK_WORDS: Final[dict[Check, str]] = {
    "repeated": "claims say what another claim of the text says",
    "unplaced": "claims have no place in the text",
    "new_words": "claims have words that the text has not",
    "open_pronoun": "claims have a pronoun that nothing in them stands for",
    "other_language": "claims are in another language than the text",
    "uncovered": "sentences of the texts are in no claim",
}

_LONGEST: Final = 300


def step_words(step: StepAudit) -> str:
    """How many claims a step made of how many texts."""
    texts = counted(step.texts, step.side)
    failed = f", {step.failed:,} of which failed" if step.failed else ""
    return f"{step.step}: {counted(step.claims, 'claim')} of {texts}{failed}"


def sample_words(found: ClaimAudit) -> str:
    """How many samples were looked at."""
    if found.samples == found.every:
        return f"all {counted(found.every, 'sample')}"
    return f"{found.samples:,} of {counted(found.every, 'sample')}, drawn by a hash of their ids"


def found_words(one: Checked) -> str:
    """How many of how many, and what is wrong with them."""
    return f"{one.found:,} of {one.of:,} {CHECK_WORDS[one.check]}"


def example_words(check: Check, example: Example) -> str:
    """A claim or sentence, and what speaks against it; of long ones the beginning."""
    said, words = _short(example.said), _short(", ".join(example.words))
    if check == "repeated":
        words = f"as: {words}"
    return f"{said} ({words})" if words else said


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
