"""Training examples made of claims that stand in long premises, as a judge of claims meets them.

Claims are read off premises by the embedded decomposer, and are entailed. Not entailed are claims
with the predicate of another subject, a number or a name of the premise that belongs elsewhere, an
opposite, a negation, or one unsupported half. So words of the premise alone decide nothing. Answers
of language models and sentences come with claims that people or a language model read off them.
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeVar

from claimflow.flows.models.parser import EmbeddedParser
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.text.sentences import split_sentences
from tests.benchmarks.training import changes
from tests.benchmarks.training.examples import (
    LABELLED,
    MADE,
    Example,
    Label,
    Labelled,
    example,
    read_labelled,
)

SPLIT_PAIRS: Final = LABELLED.with_name("split_pairs.jsonl.gz")

_LONG: Final = 150
"""Characters that a premise has at least."""

_PREMISES: Final = 600
_FEWER_PREMISES: Final = {
    "mnli.dev": 250, "wikisplit.test": 250, "snli.dev": 0, "wice_oracle.dev": 80,
}  # fmt: skip
"""Premises that are read of a source, at most."""

_SENTENCES, _ARTICLE_SENTENCES = 5, 12
_EACH, _ARTICLE_EACH = 2, 5
"""Sentences read, and claims taken, of a premise and of an article (a premise of WiCE)."""

_MACHINE_READ: Final = 0.5
"""Weight of entailed claims that a language model read off an answer, as words side by side."""

_PREDICATE: Final = re.compile(
    r"^(.{2,60}?) (is|was|are|were|has|had|have|will|can|became|won|wrote|made|said|says|moved|"
    r"joined|played|died|lives|lived|works|worked|received|founded) (.+)$"
)
_PRONOUNS: Final = frozenset(
    "it he she they this that these those there we i you who which his her their its".split()
)
_SMALL_WORDS: Final = frozenset("the a an of in".split())
_NUMBER: Final = re.compile(r"\b\d[\d,.]*\d\b|\b\d\b")


T = TypeVar("T")


class Source(NamedTuple):
    """A premise with claims that it entails."""

    name: str
    premise: str
    claims: list[str]

    @property
    def each(self) -> int:
        """Claims of each kind that are made of it."""
        return _ARTICLE_EACH if self.name.startswith("wice") else _EACH

    def says(self, claim: str) -> bool:
        """Whether the claim is a part of the premise."""
        return claim.lower().rstrip(".") in self.premise.lower()


def examples_of_read_claims() -> list[Example]:
    """All examples; the same at every call."""
    random, rows = Random(4), read_labelled()
    names = [name for row in rows[::5] for name in changes.NAME.findall(row.premise[:2_000])]
    found = []
    for sources in (list(_read_premises(rows, Random(7))), list(_divided())):
        others = defaultdict[str, list[str]](list)
        for source in sources:
            others[source.name] += source.claims
        for source in sources:
            if source.claims:
                found += list(_entailed(source, random))
                found += list(_not_entailed(source, names, others[source.name], random))
    return found


def _read_premises(rows: Sequence[Labelled], random: Random) -> Iterator[Source]:
    sources = {row.premise: row.source for row in rows if len(row.premise) > _LONG}
    premises = [(p, s) for p, s in sources.items() if not s.endswith(("_num", "_rand"))]
    random.shuffle(premises)
    parser, taken = EmbeddedParser(), Counter[str]()
    for premise, name in premises:
        taken[name] += 1
        if taken[name] <= _FEWER_PREMISES.get(name, _PREMISES):
            yield Source(name, premise, _claims_of(premise, name, parser, random))


def _claims_of(premise: str, name: str, parser: EmbeddedParser, random: Random) -> list[str]:
    """Claims of neighbouring sentences somewhere in the premise."""
    spans = [s for s in split_sentences(premise[:20_000]) if 25 < s.end - s.start < 350]
    count = _ARTICLE_SENTENCES if name.startswith("wice") else _SENTENCES
    first = random.randint(0, max(0, len(spans) - count))
    chosen = spans[first : first + count]
    if not chosen:
        return []
    text = premise[chosen[0].start : chosen[-1].end]
    found = decompose(text, atomicity="high", coverage="high", parser=parser)
    return _usable(one.claim for one in found)


def _divided(path: Path = SPLIT_PAIRS) -> Iterator[Source]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield Source(row["source"], row["sentence"], _usable(row["parts"]))


def _usable(claims: Iterable[str]) -> list[str]:
    return [claim for claim in claims if 12 < len(claim) < 300]


def _entailed(source: Source, random: Random) -> Iterator[Example]:
    weight = _MACHINE_READ if source.name == "refchecker_triplets" else MADE
    for claim in random.sample(source.claims, min(source.each, len(source.claims))):
        yield _example(source, claim, "entailed", weight)
    if len(source.claims) >= 2 and random.random() < 0.4:
        first, second = random.sample(source.claims, 2)
        yield _example(source, changes.joined(first, second, random), "entailed", weight)


def _not_entailed(
    source: Source, names: list[str], others: list[str], random: Random
) -> Iterator[Example]:
    for claim in list(swapped(source, random))[: source.each]:
        yield _example(source, claim, "not")
    changed = (_changed(claim, source, names, random) for claim in _shuffled(source.claims, random))
    usable = [(claim, label) for claim, label in changed if claim and not source.says(claim)]
    for claim, label in usable[: source.each]:
        yield _example(source, claim, label)
    if random.random() < 0.3:
        own, other = random.choice(source.claims), random.choice(others)
        first, second = _shuffled((own, other), random)
        yield _example(source, changes.joined(first, second, random), "not")
    if random.random() < 0.15:
        yield _example(source, random.choice(others), "neutral")


def _example(source: Source, claim: str, label: Label, weight: float = MADE) -> Example:
    return example(source.premise, claim, label, weight, 0.3)


def swapped(source: Source, random: Random) -> Iterator[str]:
    """Claims with the predicate of a claim on another subject."""
    parts = [match.groups() for match in map(_PREDICATE.match, source.claims) if match]
    for subject, verb, rest in _shuffled(parts, random):
        own = words_of(subject)
        for other, other_verb, other_rest in parts:
            theirs = words_of(other)
            same = own & theirs - _SMALL_WORDS or (own | theirs) & _PRONOUNS
            if verb == other_verb and rest != other_rest and not same:
                claim = f"{subject} {verb} {other_rest}"
                if not source.says(claim):
                    yield claim
                break


def words_of(text: str) -> set[str]:
    """The distinct words of a text, in lower case."""
    return set(re.findall(r"\w+", text.lower()))


def _changed(
    claim: str, source: Source, names: list[str], random: Random
) -> tuple[str | None, Label]:
    drawn = random.random()
    if drawn < 0.35:
        return number_of_premise(claim, source.premise, random), "not"
    if drawn < 0.7:
        return changes.other_name(claim, source.premise, names, random), "not"
    if drawn < 0.85:
        return changes.opposite(claim, random), "not"
    return changes.denied(claim, random), "contradicted"


def number_of_premise(claim: str, premise: str, random: Random) -> str | None:
    """The claim with another number, of the premise if it has one of as many digits.

    None if the claim has no number.
    """
    found = list(_NUMBER.finditer(claim))
    if not found:
        return None
    match: re.Match[str] = random.choice(found)
    alike: list[str] = [
        n for n in _NUMBER.findall(premise) if len(n) == len(match[0]) and n not in claim
    ]
    if not alike:
        return changes.other_number(claim, random)
    return claim[: match.start()] + random.choice(alike) + claim[match.end() :]


def _shuffled(items: Sequence[T], random: Random) -> list[T]:
    return random.sample(list(items), len(items))
