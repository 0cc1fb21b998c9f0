"""Findings of the claim audit on human and rule-made claims, and its recall on planted faults.

The first table counts the findings in unchanged claims: those that people made of the sentences
of `tests/data/decomposition`, and those of the rules, there and for the demo. The second plants a
fault in each claim, or leaves out the claims of a sentence, and counts how many are found. The
third counts correct languages of the sentences of `tests/data/sentence_split`.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import regex

from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.quality.claim_audit import Check, RecordedClaim, audit_text
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.text.languages import language_of

TESTS = Path(__file__).parents[1]
DEMO = TESTS.parent / "configs" / "demo.jsonl"
SETS = ("factcheckgpt", "factscore_atomic", "hsplit", "realsumm_scu", "wikisplit.test")
NAMES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "ru": "Cyrillic",
    "ar": "Arabic",
    "hi": "Devanagari",
    "ja": "Japanese",
    "zh": "Chinese",
}
PARSER = EmbeddedParser(threads=1)
NUMBER = regex.compile(r"\d{2,}")
SUBJECT = regex.compile(r"^(?:The )?\p{Lu}\w*(?: \p{Lu}\w*)* (?=(?:is|was|has|had|were)\b)")
TEXTUAL: tuple[Check, ...] = ("new_words", "open_pronoun", "other_language", "uncovered")
GERMAN = "Das wurde von der Stadt und nicht von einem der Länder gebaut."


class Text(NamedTuple):
    text: str
    claims: list[str]


def main() -> None:
    unchanged()
    planted([text for name in SETS for text in human_claims(name)] + list(demo_claims()))
    languages()


def unchanged() -> None:
    print(f"{'claims':30}{'texts':>7}{'claims':>8}", *(f"{check:>16}" for check in TEXTUAL), end="")
    print(f"{'texts per CPU s':>17}")
    for name in SETS:
        texts = list(human_claims(name))
        report(f"{name}, people", texts)
        report(f"{name}, rules", [rule_claims(text.text) for text in texts])
    report("demo, rules", demo_claims())


def report(name: str, texts: Iterable[Text]) -> None:
    texts = list(texts)
    started = time.process_time()
    audits = [
        audit_text(text.text, [RecordedClaim(claim) for claim in text.claims]) for text in texts
    ]
    seconds = time.process_time() - started
    found = Counter(finding.check for one in audits for finding in one.findings)
    of = sum((one.covered for one in audits), Counter[Check]())
    cells = (f"{found[check]:,} of {of[check]:,}" for check in TEXTUAL)
    claims = sum(len(text.claims) for text in texts)
    print(f"{name:30}{len(texts):7,}{claims:8,}", *(f"{cell:>16}" for cell in cells), end="")
    print(f"{len(texts) / seconds:17,.0f}")


def human_claims(name: str) -> Iterator[Text]:
    for row in rows(TESTS / "data" / "decomposition" / f"{name}.jsonl"):
        claims = [claim for claim in row["subclaims"] if claim != "BLANK"]
        yield Text(row.get("decontextualised") or row["sentence"], claims)


def demo_claims() -> Iterator[Text]:
    for row in rows(DEMO):
        yield from (rule_claims(row[side]) for side in ("response", "reference"))


def rule_claims(text: str) -> Text:
    found = decompose(text, atomicity="high", coverage="high", parser=PARSER)
    return Text(text, [one.claim for one in found])


def planted(texts: list[Text]) -> None:
    found: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for text in texts:
        for fault, check, claims in faults(text):
            audit = audit_text(text.text, [RecordedClaim(claim) for claim in claims])
            of[fault] += 1
            found[fault] += any(
                one.check == check and (check == "uncovered" or one.text == claims[-1])
                for one in audit.findings
            )
    print("\nplanted")
    for fault, count in of.items():
        print(f"{fault:60}{found[fault]:7,} of {count:,}")


def faults(text: Text) -> Iterator[tuple[str, Check, list[str]]]:
    for claim in text.claims:
        if NUMBER.search(claim):
            other = NUMBER.sub(lambda match: str(int(match[0]) + 37), claim, count=1)
            yield "a number that the text has not", "new_words", [other]
        if SUBJECT.match(claim):
            yield "it for the subject", "open_pronoun", [SUBJECT.sub("It ", claim)]
    if language_of(text.text) == "English":
        yield "a German claim", "other_language", [*text.claims, GERMAN]
    sentences = decompose(text.text, atomicity="low", coverage="high")
    for left_out in sentences if len(sentences) > 1 else ():
        kept = decompose(text.text, atomicity="high", coverage="high", parser=PARSER)
        rest = [one.claim for one in kept if not left_out.start <= one.start < left_out.end]
        yield "a sentence without its claims", "uncovered", rest


def languages() -> None:
    right, wrong, unsure = Counter[str](), Counter[str](), Counter[str]()
    folder = TESTS / "data" / "sentence_split"
    for name in ("languages", "ud_ewt.test"):
        for row in rows(folder / f"{name}.jsonl"):
            language = NAMES[row.get("language", "en")]
            for sentence in row["sentences"]:
                found = language_of(sentence)
                (right if found == language else wrong if found else unsure)[language] += 1
    print(f"\n{'language':14}{'right':>8}{'wrong':>8}{'unsure':>8}")
    for language in NAMES.values():
        print(f"{language:14}{right[language]:8,}{wrong[language]:8,}{unsure[language]:8,}")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    main()
