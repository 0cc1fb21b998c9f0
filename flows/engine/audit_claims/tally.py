"""What was found in the claims of a step, counted, and the worst of it kept."""

from collections import Counter
from typing import NamedTuple

from claimflow.flows.engine.audit_claims.looking import CHECKS, Check, Finding, Looked
from claimflow.stages.words import Side


class Example(NamedTuple):
    """What was found in a sample: a claim, or a sentence that no claim holds; words as there."""

    sample_id: str
    said: str
    words: list[str]


class Checked(NamedTuple):
    """A check of a step: `found` of the `of` that it could look at, and the worst of them."""

    check: Check
    found: int
    of: int
    examples: list[Example]


class StepAudit(NamedTuple):
    """The claims that a step made of one side of the samples.

    Of `texts` so many `failed`: they could not be decomposed, and no check looks at them.
    """

    step: str
    side: Side
    claims: int
    texts: int
    failed: int
    checks: list[Checked]


class Tally:
    """Counts what is found in one text after the other; at most `examples` are kept of a check."""

    def __init__(self, step: str, side: Side, *, examples: int) -> None:
        self.step = step
        self.side = side
        self._most = examples
        self._claims = self._texts = self._failed = 0
        self._of: Counter[Check] = Counter()
        self._found: Counter[Check] = Counter()
        self._kept: dict[Check, list[Example]] = {check: [] for check in CHECKS}

    def add_failed(self) -> None:
        """Count a text that could not be decomposed."""
        self._texts += 1
        self._failed += 1

    def add(self, sample_id: str, looked: Looked, *, claims: int) -> None:
        """Count what was found in the claims of a text."""
        self._texts += 1
        self._claims += claims
        self._of.update(looked.of)
        for finding in looked.findings:
            self._keep(sample_id, finding)

    def audit(self) -> StepAudit:
        """All that was found."""
        checks = [
            Checked(check, self._found[check], self._of[check], self._worst(check))
            for check in CHECKS
        ]
        return StepAudit(self.step, self.side, self._claims, self._texts, self._failed, checks)

    def _keep(self, sample_id: str, finding: Finding) -> None:
        self._found[finding.check] += 1
        kept = self._kept[finding.check]
        kept.append(Example(sample_id, finding.said, finding.words))
        if len(kept) > 100 + 2 * self._most:
            kept[:] = self._worst(finding.check)

    def _worst(self, check: Check) -> list[Example]:
        kept = self._kept[check]
        if check in ("new_words", "uncovered"):
            kept = sorted(kept, key=_weight, reverse=True)
        return kept[: self._most]


def _weight(example: Example) -> tuple[int, int]:
    """Words with digits first, for there is no other way to say them; then many words."""
    digits = sum(any(map(str.isdigit, word)) for word in example.words)
    return digits, len(example.words)
