"""The training examples: labelled pairs, and pairs made of them by rule.

Made by rule are claims with another number, name, polarity or opposite; claims paired with
other documents; half-supported claims; claims copied from the premise; and both directions of a
sentence that people split in two. `read_claims.py` makes more, of claims that the embedded
decomposer finds in premises. How often a premise stands among sentences of other documents is said
with each example, since evidence is seldom isolated; `encoding.py` puts them there.
"""

import gzip
import json
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from claimflow.stages.text.sentences import split_sentences
from tests.benchmarks.training import changes
from tests.benchmarks.verification import overlap

LABELLED: Final = Path(__file__).parents[2] / "data" / "entailment" / "nli_train.jsonl.gz"

FURTHER: Final = LABELLED.with_name("nli_more.jsonl.gz")
"""Short pairs in which shared words say less about the label."""

Label = Literal["entailed", "contradicted", "neutral", "not"]
"""`not`: not entailed, either contradicted or neutral."""

TWICE: Final = (
    "wice_claim.dev", "wice_oracle.dev", "summedits.test", "foolmetwice.dev",
    "factcheckgpt_stance.test",
)  # fmt: skip
"""Small sources that are used twice: long premises, claims written to deceive."""

FILLING: Final = (
    "wikisplit.test", "mnli.dev", "foolmetwice.dev", "begin_wow.test", "realsumm_scu.test",
    "summedits.test", "wice_oracle.dev",
)  # fmt: skip
"""Sources of the sentences that are put around other premises."""

SPLIT: Final = "wikisplit.test"
SHORT: Final = ("mnli.dev", "snli.dev")

MADE: Final = 0.7
"""Weight of a row made by rule."""

TEMPLATES: Final = (
    "made_numbers", "made_roles", "hans_templates", "help_and", "help_or",
    "entailmentbank_withheld",
)  # fmt: skip
"""Sources of further pairs that were made of few templates: fewer of them are read."""

_TEMPLATE: Final = 0.5
"""Weight of such a row."""

_BANDS: Final = (0.3, 0.6, 0.9)
"""Word overlap at which further pairs of one source and label are divided into cells."""

_CELL, _TEMPLATE_CELL = 2_500, 900
"""Rows of a cell that an epoch has, on average, at most."""

_DRAWS: Final = 3
"""Draws of the pairs made by rule that are read in turn."""

_LONGEST: Final = 900
"""Characters of the longest premise to which sentences are added."""


class Labelled(NamedTuple):
    """A human-labelled pair, and its source."""

    source: str
    premise: str
    claim: str
    label: Label


class Example(NamedTuple):
    """A training pair with its weight in the loss.

    `among` is the probability that sentences of other documents are put around the premise, `times`
    how often an epoch has the example on average. Without a label only teachers say what it is.
    """

    premise: str
    claim: str
    label: Label | None
    weight: float
    among: float
    times: float = 1.0


def read_labelled(path: Path = LABELLED) -> list[Labelled]:
    """The rows of `path`: JSON lines, compressed."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = list(map(json.loads, lines))
    return [Labelled(r["source"], r["premise"], r["claim"], r["label"]) for r in rows]


def further_examples(rows: list[Labelled]) -> Iterator[Example]:
    """`rows`, with no more of a source, label and band of word overlap than of the others."""
    cells = defaultdict[tuple[str, str, int], list[Labelled]](list)
    for row in rows:
        cells[row.source, row.label, bisect(_BANDS, overlap(row.premise, row.claim))].append(row)
    for (source, _, _), cell in sorted(cells.items()):
        template = source in TEMPLATES
        times = min(1.0, (_TEMPLATE_CELL if template else _CELL) / len(cell))
        changed = MADE if source.startswith("wikisplit.more_") else 1.0
        for row in cell:
            weight = _TEMPLATE if template else changed
            yield example(row.premise, row.claim, row.label, weight, 0.3)._replace(times=times)


def example(premise: str, claim: str, label: Label | None, weight: float, among: float) -> Example:
    """An example; a long premise stays alone."""
    return Example(premise, claim, label, weight, 0.0 if len(premise) > _LONGEST else among)


class Examples:
    """Draws examples from labelled rows, different ones each time.

    `filling` are sentences to put around the premises of others.
    """

    def __init__(self, rows: list[Labelled], seed: int) -> None:
        self._rows = rows
        self._random = Random(seed)
        self._of: dict[str, list[Labelled]] = defaultdict(list)
        self._entailed: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            self._of[row.source].append(row)
            if row.label == "entailed":
                self._entailed[row.premise].append(row.claim)
        self._names = [n for row in self._of[SPLIT][::3] for n in changes.NAME.findall(row.premise)]
        self.filling = list(self._sentences())
        self._halves: dict[str, list[str]] = defaultdict(list)
        for row in self._of[SPLIT]:
            self._halves[row.premise].append(row.claim)

    def _sentences(self) -> Iterator[str]:
        for row in (row for source in FILLING for row in self._of[source][::2]):
            if len(row.premise) < 3000:
                for start, end in split_sentences(row.premise)[:6]:
                    if 25 < end - start < 300:
                        yield row.premise[start:end]

    def drawn(self, draws: int = _DRAWS) -> list[Example]:
        """The distinct examples of `draws` draws; one that all have counts once an epoch."""
        found = Counter(one for _ in range(draws) for one in self._draw())
        return [one._replace(times=count / draws) for one, count in found.items()]

    def _draw(self) -> Iterator[Example]:
        twice = [row for source in TWICE for row in self._of[source]]
        for row in [*self._rows, *twice]:
            yield from self._from(row)
        for whole, halves in self._halves.items():
            yield from self._directions(whole, halves)

    def _from(self, row: Labelled) -> Iterator[Example]:
        share = 0.12 if row.source in SHORT else 0.3
        yield example(row.premise, row.claim, row.label, 1.0, share)
        if row.label == "entailed":
            yield from self._changed(row)
        if self._random.random() < 0.06:
            other = self._random.choice(self._of[row.source]).premise
            if other != row.premise:
                yield self._made(other, row.claim, "neutral", 0.35)
        if row.label != "entailed":
            yield from self._half_supported(row)
        if row.label == "entailed" and self._random.random() < 0.15:
            yield self._longer(row)
        if self._random.random() < 0.05 and row.label != "entailed":
            yield from self._copied(row.premise)

    def _made(self, premise: str, claim: str, label: Label, among: float = 0.25) -> Example:
        return example(premise, claim, label, MADE, among)

    def _changed(self, row: Labelled) -> Iterator[Example]:
        drawn = self._random.random()
        name = partial(changes.other_name, premise=row.premise, names=self._names)
        rules: list[Callable[..., str | None]] = [
            changes.other_number, name, changes.denied, changes.opposite,
            changes.other_number, name,
        ]  # fmt: skip
        rule = self._random.choice(rules)
        changed = rule(row.claim, random=self._random)
        if changed and drawn < 0.6:
            denied = rule is changes.denied
            yield self._made(row.premise, changed, "contradicted" if denied else "not")
        elif not changed and drawn < 0.25 and (denial := changes.denied(row.claim, self._random)):
            yield self._made(row.premise, denial, "contradicted")

    def _half_supported(self, row: Labelled) -> Iterator[Example]:
        if self._random.random() >= 0.25:
            return
        entailed = self._entailed.get(row.premise)
        if entailed:
            claims = [self._random.choice(entailed), row.claim]
            if self._random.random() < 0.5:
                claims.reverse()
            first, second = claims
            both = changes.joined(first, second, self._random)
            yield self._made(row.premise, both, "not")

    def _longer(self, row: Labelled) -> Example:
        """The claim joined with another entailed one if there is one, else with a random one."""
        others = [claim for claim in self._entailed[row.premise] if claim != row.claim]
        if others:
            both = changes.joined(row.claim, self._random.choice(others), self._random)
            return self._made(row.premise, both, "entailed")
        claims = [row.claim, self._random.choice(self._rows).claim]
        if self._random.random() >= 0.5:
            claims.reverse()
        first, second = claims
        both = changes.joined(first, second, self._random)
        return self._made(row.premise, both, "neutral")

    def _copied(self, premise: str) -> Iterator[Example]:
        spans = split_sentences(premise) if len(premise) < 4000 else []
        sentences = [premise[start:end] for start, end in spans if end - start > 20]
        if sentences:
            yield self._made(premise, self._random.choice(sentences), "entailed", 0.8)

    def _directions(self, whole: str, halves: list[str]) -> Iterator[Example]:
        """Both halves entail the whole; one half entails neither the whole nor the other half."""
        if len(halves) != 2:
            return
        drawn = self._random.random()
        if drawn < 0.3:
            yield self._made(" ".join(halves), whole, "entailed")
        elif drawn < 0.6:
            yield self._made(halves[self._random.randint(0, 1)], whole, "neutral")
        elif drawn < 0.8:
            yield self._made(halves[0], halves[1], "neutral", 0.35)
