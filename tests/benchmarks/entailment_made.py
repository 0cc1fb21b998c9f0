"""Pairs made by rule from sentences whose meaning is known: polarity, opposites, subjects.

Human-labelled sets hold few claims that differ from their premise in a single `not` or in
a word and its opposite, and few short premises that are silent about a claim on the same
subject. Sentences that people split in two (WikiSplit) give such pairs.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import permutations

from entailment_rows import Labelled

from flows.engine.entailment.opposites import OPPOSITES
from stages.tools import Pair

_AUXILIARY = re.compile(r"\b(is|was|are|were|has been|had been|can|could|will|would)\b")
_NAME = re.compile(r" ([A-Z][a-z]+)\b(?= ?[^\w ]| [a-z])")
_OPPOSITE = {
    one: other for pair in sorted(map(sorted, OPPOSITES)) for one, other in permutations(pair)
}


def made_pairs(rows: Iterable[Labelled]) -> list[Labelled]:
    """Pairs made from the claims of the WikiSplit rows among `rows`, one group per rule."""
    halves: dict[str, list[str]] = {}
    for row in rows:
        if row.group == "further wikisplit.test":
            halves.setdefault(row.pair.premise, []).append(row.pair.claim)
    names = [found[1] for claims in halves.values() if (found := _NAME.search(claims[0]))]
    return [
        Labelled("wikisplit", f"made {rule}", pair, label == "entailed", label, True)
        for number, (premise, claims) in enumerate(halves.items())
        for rule, pair, label in _made(premise, claims, names[number % len(names)])
    ]


def _made(premise: str, claims: list[str], name: str) -> Iterator[tuple[str, Pair, str]]:
    for one, other in permutations(claims, 2):
        yield "subject", Pair(one, other), "neutral"
    for claim in claims:
        yield "subject", Pair(claim, claim), "entailed"
        denied = _AUXILIARY.sub(r"\1 not", claim, count=1)
        if denied != claim:
            yield "negation", Pair(premise, denied), "contradicted"
            yield "negation", Pair(denied, claim), "contradicted"
            yield "negation", Pair(denied, denied), "entailed"
            yield "negation", Pair(claim, claim), "entailed"
        renamed = _NAME.sub(lambda found: f" {name}", claim, count=1)
        if renamed != claim:
            yield "name", Pair(claim, renamed), "contradicted"
            yield "name", Pair(renamed, renamed), "entailed"
        turned = re.sub(r"\w+", lambda word: _OPPOSITE.get(word[0], word[0]), claim)
        if turned != claim:
            yield "opposite", Pair(claim, turned), "contradicted"
            yield "opposite", Pair(turned, turned), "entailed"
