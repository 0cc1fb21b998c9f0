"""Audit of claims: repeated, ungrounded, unresolved or missing ones."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import duckdb

from claimflow.flows.store.schema import REPEATED_CLAIMS
from claimflow.flows.store.store import Store
from claimflow.stages.claim_rules.decompose import TextClaim
from claimflow.stages.claim_rules.grounding import (
    new_words,
    stating_sentences,
    uncovered,
    word_forms,
)
from claimflow.stages.claim_rules.pronouns import open_pronoun
from claimflow.stages.rows import Side
from claimflow.stages.text.languages import language_of

# The claims of one text, looked at one by one: what is wrong with them, and of how many.


Check = Literal["repeated", "unplaced", "new_words", "open_pronoun", "other_language", "uncovered"]
CHECKS: Final[tuple[Check, ...]] = get_args(Check)


class Written(NamedTuple):
    """A claim of the store: whether it has a place in its text, and the claim that it repeats."""

    claim: str
    placed: bool = True
    repeats: str | None = None


class Finding(NamedTuple):
    """A claim, or a sentence that no claim holds, and the words that speak against it.

    `words` are, by check: the claim that is repeated; none; words that the text has not; the
    pronoun; the claim's language; words of the sentence that no claim has.
    """

    check: Check
    said: str
    words: list[str]


class Looked(NamedTuple):
    """What was found, and how many claims or sentences each check could look at."""

    of: Counter[Check]
    findings: list[Finding]


def look(text: str | None, claims: Sequence[Written]) -> Looked:
    """All checks of the claims of one text.

    Without a text only what needs none: whether a claim is repeated or has an open pronoun.
    """
    looked = Looked(Counter(), [])
    language = language_of(text or "")
    of_claims = [language_of(one.claim) for one in claims]
    _alone(claims, [found or language for found in of_claims], looked)
    if text is not None and text.strip():
        sentences = stating_sentences(text)
        _words(text, language, claims, looked)
        _languages(language, sentences, list(zip(claims, of_claims, strict=True)), looked)
        looked.of["uncovered"] += len(sentences)
        for start, end, words in uncovered(sentences, [one.claim for one in claims], language):
            looked.findings.append(Finding("uncovered", text[start:end], words))
    return looked


def _alone(claims: Sequence[Written], languages: Sequence[str | None], looked: Looked) -> None:
    looked.of["repeated"] += len(claims)
    for one, language in zip(claims, languages, strict=True):
        if one.repeats is not None:
            looked.findings.append(Finding("repeated", one.claim, [one.repeats]))
        if language not in ("English", None):
            continue
        looked.of["open_pronoun"] += 1
        pronoun = open_pronoun(one.claim)
        if pronoun is not None:
            looked.findings.append(Finding("open_pronoun", one.claim, [pronoun]))


def _words(text: str, language: str | None, claims: Sequence[Written], looked: Looked) -> None:
    known = word_forms(text)
    looked.of["unplaced"] += len(claims)
    looked.of["new_words"] += len(claims)
    for one in claims:
        if not one.placed:
            looked.findings.append(Finding("unplaced", one.claim, []))
        words = new_words(one.claim, known, language)
        if words:
            looked.findings.append(Finding("new_words", one.claim, words))


def _languages(
    language: str | None,
    sentences: Sequence[TextClaim],
    claims: Sequence[tuple[Written, str | None]],
    looked: Looked,
) -> None:
    """Claims in a language that neither their text as a whole nor a sentence of it is in."""
    spoken = {language} - {None}
    if any(of_claim not in (language, None) for _, of_claim in claims):
        spoken |= {language_of(sentence.claim) for sentence in sentences} - {None}
    for one, of_claim in claims:
        if of_claim is not None and spoken:
            looked.of["other_language"] += 1
            if of_claim not in spoken:
                looked.findings.append(Finding("other_language", one.claim, [of_claim]))


# What was found in the claims of a step, counted, and the worst of it kept.


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


# The claims of a run, step by step: how many have what is wrong, and which ones.


_TOGETHER: Final = 1_000
"""Samples that are in memory at a time."""


class ClaimAudit(NamedTuple):
    """The claims of a run, of `samples` of `every` sample that it has."""

    run_id: str
    samples: int
    every: int
    steps: list[StepAudit]


class _Text(NamedTuple):
    """One side of a sample with the claims of a step; `failed` where these could not be had."""

    sample_id: str
    text: str | None
    claims: list[Written]
    failed: bool


def audit_claims(
    store: Store, run_id: str, *, examples: int, samples: int | None = None
) -> ClaimAudit:
    """Look at the claims of a run on record, of all samples or of so many, drawn by a hash.

    At most `examples` of each check and step are kept: those with the most words against them,
    else the first by sample id. The store is free between a thousand samples and the next.
    """
    with store.reading() as connection:
        steps = connection.execute(_STEPS, {"run": run_id}).fetchall()
        ids = [name for (name,) in connection.execute(_IDS, {"run": run_id}).fetchall()]
    chosen = sorted(ids[:samples])
    tallies = [Tally(step, side, examples=examples) for step, side in steps if side]
    for first in range(0, len(chosen), _TOGETHER):
        with store.reading() as connection:
            some = _Some(connection, run_id, chosen[first : first + _TOGETHER])
        for tally in tallies:
            for one in some.texts(tally):
                if one.failed:
                    tally.add_failed()
                else:
                    looked = look(one.text, one.claims)
                    tally.add(one.sample_id, looked, claims=len(one.claims))
    return ClaimAudit(run_id, len(chosen), len(ids), [tally.audit() for tally in tallies])


class _Some:
    """Some samples, and their claims by step."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: str, ids: list[str]) -> None:
        values = {"run": run_id, "ids": ids}
        self._samples = connection.execute(_SAMPLES, values).fetchall()
        self._claims: dict[tuple[str, str], list[Written]] = {}
        self._failed: set[tuple[str, str]] = set()
        rows = connection.execute(_CLAIMS, values).fetchall()
        for step, sample_id, claim, placed, repeats in rows:
            if claim is None:
                self._failed.add((step, sample_id))
            else:
                written = Written(claim, placed, repeats)
                self._claims.setdefault((step, sample_id), []).append(written)

    def texts(self, of: Tally) -> Iterator[_Text]:
        """What a step was to decompose, by sample id: texts, and claims that came without one."""
        for sample_id, response, reference in self._samples:
            text = response if of.side == "response" else reference
            key = (of.step, sample_id)
            claims, failed = self._claims.get(key, []), key in self._failed
            if claims or failed or (text and text.strip()):
                yield _Text(sample_id, text, claims, failed)


_STEPS: Final = """
SELECT step, coalesce(settings ->> '$.of', (SELECT any_value("of") FROM claims
       WHERE claims.run_id = run_steps.run_id AND claims.step = run_steps.step))
FROM audit.run_steps
JOIN (SELECT artifact_id, kind, settings FROM audit.artifacts) USING (artifact_id)
WHERE run_id = $run AND kind = 'claims' ORDER BY position
"""

_IDS: Final = "SELECT sample_id FROM samples WHERE run_id = $run ORDER BY md5(sample_id), sample_id"

_SAMPLES: Final = """
SELECT sample_id, response, reference FROM samples
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)) ORDER BY sample_id
"""

_CLAIMS: Final = f"""
SELECT step, sample_id, claims.claim, start IS NOT NULL, repeats
FROM claims LEFT JOIN (
    SELECT step, claim_id, repeats FROM ({REPEATED_CLAIMS})
    WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))) USING (step, claim_id)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
ORDER BY sample_id, start, claims.claim
"""


# What was found in the claims of a run, as JSON: keys that stay, for programs.


def as_json(found: ClaimAudit) -> str:
    """An audit as one JSON object, described in `flows/README.md`."""
    return json.dumps(as_document(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_document(found: ClaimAudit) -> dict[str, Any]:
    """What that object holds."""
    steps = [
        step._asdict()
        | {
            "checks": [
                one._asdict() | {"examples": [example._asdict() for example in one.examples]}
                for one in step.checks
            ]
        }
        for step in found.steps
    ]
    return found._asdict() | {"steps": steps}
