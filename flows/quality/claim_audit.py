"""Audit of claims: repeated, ungrounded, unresolved or missing ones."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from claimflow.flows.store.schema import REPEATED_CLAIMS
from claimflow.flows.store.store import Store
from claimflow.stages.claim_rules.decompose import TextClaim
from claimflow.stages.claim_rules.grounding import (
    declarative_sentences,
    uncovered_sentences,
    ungrounded_words,
    word_forms,
)
from claimflow.stages.claim_rules.pronouns import unresolved_pronoun
from claimflow.stages.claim_rules.questions import QUOTED
from claimflow.stages.rows import Side
from claimflow.stages.text.languages import language_of

Check = Literal["repeated", "unplaced", "new_words", "open_pronoun", "other_language", "uncovered"]
CHECKS: Final[tuple[Check, ...]] = get_args(Check)

_CHUNK: Final = 1_000
"""Samples that are in memory at a time."""

# The fields of these four classes are keys of JSON documents, described in
# `flows/guides/quality.md`.


class Example(NamedTuple):
    """A finding in a sample: `said` is the claim, or the sentence that no claim covers."""

    sample_id: str
    said: str
    words: list[str]


class CheckResult(NamedTuple):
    """A check of a step: `found` of the `of` claims or sentences that it covers, with examples."""

    check: Check
    found: int
    of: int
    examples: list[Example]


class StepAudit(NamedTuple):
    """The claims that a step made of one side of the samples.

    Of `texts`, `failed` could not be decomposed; no check covers them.
    """

    step: str
    side: Side
    claims: int
    texts: int
    failed: int
    checks: list[CheckResult]


class ClaimAudit(NamedTuple):
    """The audited claims of a run, of `samples` of the `every` samples that it has."""

    run_id: str
    samples: int
    every: int
    steps: list[StepAudit]


class RecordedClaim(NamedTuple):
    """A claim: whether it has a place in its text, and the earlier claim that it repeats.

    Where decomposition `failed`, there is one row without a claim.
    """

    claim: str
    placed: bool = True
    repeats: str | None = None
    failed: bool = False


class Finding(NamedTuple):
    """A claim, or a sentence that no claim covers, and the words that are evidence.

    `words` are, by check: the claim that is repeated; none; words that the text lacks; the
    pronoun; the claim's language; words of the sentence that no claim has.
    """

    check: Check
    text: str
    words: list[str]


class TextAudit(NamedTuple):
    """The findings in one text, and how many claims or sentences each check covered."""

    covered: Counter[Check]
    findings: list[Finding]


def audit_claims(
    store: Store, run_id: str, *, examples: int, samples: int | None = None
) -> ClaimAudit:
    """Audit the recorded claims of a run, of all samples or of `samples` chosen by a hash.

    At most `examples` of each check and step are kept: those with the most words as evidence,
    else the first by sample id. The store is unlocked between chunks of 1,000 samples.
    """
    with store.reading() as connection:
        steps = connection.execute(_STEPS, {"run": run_id}).fetchall()
        ids = [name for (name,) in connection.execute(_IDS, {"run": run_id}).fetchall()]
    chosen = sorted(ids[:samples])
    tallies = [_StepTally(step, side, examples=examples) for step, side in steps if side]
    for first in range(0, len(chosen), _CHUNK):
        values = {"run": run_id, "ids": chosen[first : first + _CHUNK]}
        with store.reading() as connection:
            texts = connection.execute(_SAMPLES, values).fetchall()
            rows = connection.execute(_CLAIMS, values).fetchall()
        claims: dict[tuple[str, str], list[RecordedClaim]] = defaultdict(list)
        for step, sample_id, *recorded in rows:
            claims[step, sample_id].append(RecordedClaim(*recorded))
        for tally in tallies:
            for sample_id, question, response, reference in texts:
                text = response if tally.side == "response" else reference
                tally.add(sample_id, text, claims[tally.step, sample_id], question or "")
    return ClaimAudit(run_id, len(chosen), len(ids), [tally.result() for tally in tallies])


def audit_text(text: str | None, claims: Sequence[RecordedClaim], question: str = "") -> TextAudit:
    """All checks of the claims of one text.

    Without a text, only those that need none: repeated claims and open pronouns. Words of the
    `question` may be in claims, as those of the text: a short answer is completed by it.
    """
    audit = TextAudit(Counter(), [])
    language = language_of(text or "")
    languages = [language_of(one.claim) for one in claims]
    _check_claims(claims, [found or language for found in languages], audit)
    if text is not None and text.strip():
        sentences = declarative_sentences(text)
        _check_words(f"{text}\n{question}", language, claims, audit)
        _check_languages(language, sentences, list(zip(claims, languages, strict=True)), audit)
        audit.covered["uncovered"] += len(sentences)
        for start, end, words in uncovered_sentences(
            sentences, [one.claim for one in claims], language
        ):
            audit.findings.append(Finding("uncovered", text[start:end], words))
    return audit


def _check_claims(
    claims: Sequence[RecordedClaim], languages: Sequence[str | None], audit: TextAudit
) -> None:
    """The checks that need no text: repeated, and open pronouns in English."""
    audit.covered["repeated"] += len(claims)
    for one, language in zip(claims, languages, strict=True):
        if one.repeats is not None:
            audit.findings.append(Finding("repeated", one.claim, [one.repeats]))
        if language not in ("English", None):
            continue
        audit.covered["open_pronoun"] += 1
        pronoun = unresolved_pronoun(one.claim)
        if pronoun is not None:
            audit.findings.append(Finding("open_pronoun", one.claim, [pronoun]))


def _check_words(
    text: str, language: str | None, claims: Sequence[RecordedClaim], audit: TextAudit
) -> None:
    """Claims without a place in the text, or with words that it lacks."""
    known = word_forms(f"{text}\n{QUOTED}")
    audit.covered["unplaced"] += len(claims)
    audit.covered["new_words"] += len(claims)
    for one in claims:
        if not one.placed:
            audit.findings.append(Finding("unplaced", one.claim, []))
        words = ungrounded_words(one.claim, known, language)
        if words:
            audit.findings.append(Finding("new_words", one.claim, words))


def _check_languages(
    language: str | None,
    sentences: Sequence[TextClaim],
    claims: Sequence[tuple[RecordedClaim, str | None]],
    audit: TextAudit,
) -> None:
    """Claims in a language that neither the whole text nor a sentence of it is in."""
    expected = {language} - {None}
    if any(of_claim not in (language, None) for _, of_claim in claims):
        expected |= {language_of(sentence.claim) for sentence in sentences} - {None}
    for one, of_claim in claims:
        if of_claim is not None and expected:
            audit.covered["other_language"] += 1
            if of_claim not in expected:
                audit.findings.append(Finding("other_language", one.claim, [of_claim]))


class _StepTally:
    """Adds up the audits of the texts of a step; keeps at most `examples` of each check."""

    def __init__(self, step: str, side: Side, *, examples: int) -> None:
        self.step = step
        self.side = side
        self._max_examples = examples
        self._claims = self._texts = self._failed = 0
        self._covered: Counter[Check] = Counter()
        self._found: Counter[Check] = Counter()
        self._examples: dict[Check, list[Example]] = {check: [] for check in CHECKS}

    def add(
        self, sample_id: str, text: str | None, claims: Sequence[RecordedClaim], question: str
    ) -> None:
        """Audit a text and count its findings; supplied claims may come without a text."""
        if not claims and not (text and text.strip()):
            return
        self._texts += 1
        if any(one.failed for one in claims):
            self._failed += 1
            return
        audit = audit_text(text, claims, question)
        self._claims += len(claims)
        self._covered.update(audit.covered)
        for finding in audit.findings:
            self._found[finding.check] += 1
            kept = self._examples[finding.check]
            kept.append(Example(sample_id, finding.text, finding.words))
            if len(kept) > 100 + 2 * self._max_examples:
                kept[:] = self._most_telling(finding.check)

    def result(self) -> StepAudit:
        """The counts and examples of all texts added."""
        checks = [
            CheckResult(check, self._found[check], self._covered[check], self._most_telling(check))
            for check in CHECKS
        ]
        return StepAudit(self.step, self.side, self._claims, self._texts, self._failed, checks)

    def _most_telling(self, check: Check) -> list[Example]:
        kept = self._examples[check]
        if check in ("new_words", "uncovered"):
            kept = sorted(kept, key=_weight, reverse=True)
        return kept[: self._max_examples]


def _weight(example: Example) -> tuple[int, int]:
    """First words with digits, which have no synonyms; then the number of words."""
    digits = sum(any(map(str.isdigit, word)) for word in example.words)
    return digits, len(example.words)


_STEPS: Final = """
SELECT step, coalesce(settings ->> '$.of', (SELECT any_value("of") FROM claims
       WHERE claims.run_id = run_steps.run_id AND claims.step = run_steps.step))
FROM audit.run_steps
JOIN (SELECT artifact_id, kind, settings FROM audit.artifacts) USING (artifact_id)
WHERE run_id = $run AND kind = 'claims' ORDER BY position
"""

_IDS: Final = "SELECT sample_id FROM samples WHERE run_id = $run ORDER BY md5(sample_id), sample_id"

_SAMPLES: Final = """
SELECT sample_id, user_input, response, reference FROM samples
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)) ORDER BY sample_id
"""

_CLAIMS: Final = f"""
SELECT step, sample_id, coalesce(claims.claim, ''), start IS NOT NULL, repeats,
       claims.claim IS NULL
FROM claims LEFT JOIN (
    SELECT step, claim_id, repeats FROM ({REPEATED_CLAIMS})
    WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))) USING (step, claim_id)
WHERE run_id = $run AND status <> 'not_a_claim' AND sample_id IN (SELECT unnest($ids))
ORDER BY sample_id, start, claims.claim
"""
