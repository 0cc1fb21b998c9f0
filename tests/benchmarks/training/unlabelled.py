"""Pairs of a text and a claim without a label, which teachers judge and the student learns from.

Claims are read off premises by the embedded decomposer. Each is put to its own text, to that text
without the sentence that it stands in, and to other texts with similar words; it is changed, joined
with others and shortened. What such a pair should be called is often not known, which is why the
teachers are asked.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from claimflow.flows.models.parser import EmbeddedParser
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.text.sentences import Span, split_sentences
from tests.benchmarks.training import changes
from tests.benchmarks.training.examples import FURTHER, Labelled, read_labelled
from tests.benchmarks.training.read_claims import Source, number_of_premise, swapped, words_of

_READ: Final = {
    "wice_claim.dev": (349, 30), "realsumm_scu.test": (1112, 6),
    "factcheckgpt_stance.test": (569, 8), "foolmetwice.dev": (1024, 4), "begin_wow.test": (798, 4),
    "summedits.test": (14, 20), "faithdial_audit.test": (221, 4), "mnli.dev": (800, 3),
    "wikisplit.test": (800, 2), "fever": (3000, 4), "factcg_doc": (1672, 5),
    "factcg_multihop": (877, 5), "wikisplit.more": (1500, 2), "folio": (200, 4),
    "factscore_bio.test": (2, 20),
}  # fmt: skip
"""By source: premises that are read, and sentences of each, at most."""

_EXCHANGED: Final = (
    "foolmetwice.dev", "fever", "begin_wow.test", "realsumm_scu.test", "factcheckgpt_stance.test",
    "mnli.dev", "summedits.test", "infotabs", "wice_claim.dev",
)  # fmt: skip
"""Sources whose claims are put to other premises of the source."""

_GROUP: Final = 6
"""Neighbouring sentences of an article (a premise of WiCE) that are read together."""


class Passage(NamedTuple):
    """Neighbouring sentences of a premise, and the claims read off them."""

    text: str
    sentences: list[str]
    claims: list[str]


class Read(NamedTuple):
    """A premise and the passages of it that were read."""

    source: str
    premise: str
    passages: list[Passage]


def unlabelled_pairs() -> list[tuple[str, str]]:
    """Distinct pairs of premise and claim; the same at every call. Takes six CPU minutes."""
    random = Random(77)
    rows = [*read_labelled(), *read_labelled(FURTHER)]
    names = [name for row in rows[::5] for name in changes.NAME.findall(row.premise[:2_000])]
    read = list(_read(rows, random))
    claims = defaultdict[str, list[str]](list)
    for one in read:
        claims[one.source] += [claim for passage in one.passages for claim in passage.claims]
    found = [pair for one in read for pair in _pairs(one, claims[one.source], names, random)]
    found += _exchanged(rows, random)
    usable = ((p, c) for p, c in found if c and p.strip() and 8 < len(c) < 400)
    return list(dict.fromkeys(usable))


def _read(rows: Sequence[Labelled], random: Random) -> Iterator[Read]:
    premises = defaultdict[str, dict[str, None]](dict)
    for row in rows:
        if len(row.premise) > 100:
            premises[row.source][row.premise] = None
    parser = EmbeddedParser()
    for source, (count, sentences) in _READ.items():
        own = list(premises[source])
        random.shuffle(own)
        for premise in own[:count]:
            spans = [s for s in split_sentences(premise[:20_000]) if 25 < s.end - s.start < 350]
            groups = _groups(spans, sentences, random, articles=source.startswith("wice"))
            passages = [_passage(premise, group, parser) for group in groups if group]
            if kept := [passage for passage in passages if passage.claims]:
                yield Read(source, premise, kept)


def _groups(
    spans: list[Span], sentences: int, random: Random, *, articles: bool
) -> list[list[Span]]:
    if len(spans) <= sentences:
        return [spans]
    if not articles:
        first = random.randint(0, len(spans) - sentences)
        return [spans[first : first + sentences]]
    places = range(len(spans) - _GROUP + 1)
    starts = random.sample(places, min(sentences // _GROUP, len(places)))
    return [spans[start : start + _GROUP] for start in sorted(starts)]


def _passage(premise: str, spans: list[Span], parser: EmbeddedParser) -> Passage:
    text = premise[spans[0].start : spans[-1].end]
    found = decompose(text, atomicity="high", coverage="high", parser=parser)
    claims = [one.claim for one in found if 12 < len(one.claim) < 300]
    return Passage(text, [premise[s.start : s.end] for s in spans], claims)


def _pairs(
    read: Read, others: list[str], names: list[str], random: Random
) -> Iterator[tuple[str, str | None]]:
    premise = read.premise
    for text, sentences, claims in read.passages:
        for claim in random.sample(claims, min(4, len(claims))):
            yield premise, claim
        for claim in random.sample(claims, min(3, len(claims))):
            words = words_of(claim)
            rest = premise.replace(max(sentences, key=lambda s: len(words & words_of(s))), " ")
            if len(rest.strip()) > 40:
                yield rest, claim
        for claim in list(swapped(Source(read.source, premise, claims), random))[:2]:
            yield premise, claim
        for claim in random.sample(claims, min(5, len(claims))):
            yield premise, _changed(claim, premise, names, random)
        near = random.sample(others, min(60, len(others)))
        words = words_of(text)
        near.sort(key=lambda claim: -len(words_of(claim) & words) / (len(words_of(claim)) + 1))
        for claim in near[:2]:
            yield premise, claim
        if len(claims) > 1:
            first, second = random.sample(claims, 2)
            yield premise, changes.joined(first, second, random)
            half = [first, random.choice(near)]
            random.shuffle(half)
            yield premise, changes.joined(half[0], half[1], random)
        yield premise, _shortened(random.choice(claims), random)


def _changed(claim: str, premise: str, names: list[str], random: Random) -> str | None:
    drawn = random.random()
    if drawn < 0.35:
        return number_of_premise(claim, premise, random)
    if drawn < 0.65:
        return changes.other_name(claim, premise, names, random)
    return changes.opposite(claim, random) if drawn < 0.85 else changes.denied(claim, random)


def _shortened(claim: str, random: Random) -> str | None:
    words = claim.split()
    if len(words) <= 8:
        return None
    return " ".join(words[: random.randint(5, len(words) - 2)]).rstrip(",;") + "."


def _exchanged(rows: Sequence[Labelled], random: Random) -> Iterator[tuple[str, str | None]]:
    """Claims with the premise of another claim that shares most words, and claims changed."""
    for source in _EXCHANGED:
        own = [row for row in rows if row.source == source]
        # In the order of the rows: that of a set differs from run to run.
        premises = list(dict.fromkeys(row.premise for row in own))
        words = [words_of(premise) for premise in premises]
        for row in random.sample(own, min(1_500, len(own))):
            wanted = words_of(row.claim)
            drawn = random.sample(range(len(premises)), min(200, len(premises)))
            others = [number for number in drawn if premises[number] != row.premise]
            if others:
                yield premises[max(others, key=lambda n: len(wanted & words[n]))], row.claim
            rule = random.choice([changes.opposite, changes.denied])
            yield row.premise, rule(row.claim, random)
