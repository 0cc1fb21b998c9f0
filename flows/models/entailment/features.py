"""Features of a pair: the evidence window, its alignment with the claim, measurements."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import Final, NamedTuple, Protocol

from claimflow.flows.models.entailment.texts import WEIGHTS, Claim, Part, Premise, legible, reading
from claimflow.flows.models.entailment.tokens import Kind, Token, is_content, stem
from claimflow.flows.models.entailment.word_lists import ANSWERS, NEGATIONS, folded
from claimflow.stages.tools import Pair

# Words that exclude each other.


_OPPOSITES = """
increase decrease|rise fall|rise drop|rise decline|grow shrink|grow decline|gain lose|gain loss
up down|high low|higher lower|highest lowest|raise lower|raise reduce|expand contract
increase reduce|increase decline|increase fall|increase drop|more less|more fewer|most least
many few|much little|large small|big small|big little|larger smaller|bigger smaller
largest smallest|biggest smallest|great small|long short|longer shorter|longest shortest
tall short|taller shorter|tallest shortest|old young|old new|older younger|older newer
oldest youngest|oldest newest|early late|earlier later|earliest latest|first last
before after|begin end|start end|start finish|begin finish|start stop|open close|opened closed
win lose|won lost|win loss|victory defeat|succeed fail|success failure|pass fail
accept reject|accept refuse|approve reject|approve deny|agree disagree|confirm deny|admit deny
allow forbid|allow ban|allow prohibit|permit prohibit|legal illegal|lawful unlawful
true false|right wrong|correct incorrect|correct wrong|good bad|better worse|best worst
strong weak|stronger weaker|fast slow|faster slower|hot cold|warm cool|wet dry|hard soft
hard easy|difficult easy|heavy light|dark light|dark bright|rich poor|expensive cheap
safe dangerous|safe unsafe|healthy sick|healthy ill|happy sad|happy unhappy|love hate|like dislike
alive dead|live die|born died|birth death|male female|man woman|men women|boy girl|boys girls
king queen|prince princess|brother sister|son daughter|father mother|husband wife|uncle aunt
nephew niece|actor actress|he she|his her|him her
north south|northern southern|east west|eastern western|northeast southwest|northwest southeast
left right|front back|top bottom|above below|over under|inside outside|indoors outdoors|in out
near far|far close|here there|full empty|public private|local national|national international
domestic foreign|urban rural|rural city|ancient modern|former current|past future|old modern
temporary permanent|single married|married divorced|married unmarried|positive negative
active passive|active inactive|present absent|include exclude|include omit|add remove|add delete
buy sell|bought sold|give take|lend borrow|send receive|push pull|enter leave|enter exit
arrive depart|arrive leave|come go|join leave|join quit|enable disable|support oppose
support reject|for against|friend enemy|ally enemy|attack defend|war peace|guilty innocent
convicted acquitted|arrested released|hire fire|hired fired|appoint dismiss|employ dismiss
remember forget|find lose|build destroy|create destroy|save destroy|improve worsen
improve deteriorate|protect harm|help harm|help hinder|cause prevent|encourage discourage
common rare|often rarely|often seldom|always never|usually rarely|everyone nobody|everything nothing
all none|every no|some none|everybody nobody|maximum minimum|major minor|majority minority
sitting standing|sit stand|standing lying|walking running|sleeping awake|asleep awake|day night
morning evening|morning night|summer winter|black white|land water|sea land|empty crowded
alone together|clean dirty|quiet loud|quiet noisy|smile frown|laugh cry|smiling frowning
upper lower|inner outer|interior exterior|deep shallow|wide narrow|thick thin|sharp dull
solid liquid|solid gas|natural artificial|real fake|fiction nonfiction|fictional real
liberal conservative|democrat republican|democratic republican|catholic protestant
vertical horizontal|simple complex|simple complicated|optional mandatory|optional required
voluntary mandatory|partial full|partially fully|partly fully|incomplete complete
unknown known|unknown famous|popular unpopular|similar different|same different|equal unequal
rapidly slowly|quickly slowly|gradually suddenly|profit loss|surplus deficit|asset liability
export import|input output|supply demand|teacher student|doctor patient|parent child|host guest
winner loser|victim perpetrator|offense defense|offensive defensive|home away|upstairs downstairs
proud ashamed|brave cowardly|honest dishonest|visible invisible|possible impossible
likely unlikely|able unable|certain uncertain|regular irregular|direct indirect|formal informal
steigen fallen|steigt sinkt|erhöhen senken|groß klein|gut schlecht|alt jung|alt neu|viel wenig
augmenter diminuer|grand petit|bon mauvais|aumentar disminuir|grande pequeño|bueno malo
"""

OPPOSITES: Final = frozenset(
    frozenset(folded(pair)) for line in _OPPOSITES.strip().splitlines() for pair in line.split("|")
)
"""Pairs of words that exclude each other."""

NEGATING_PREFIXES: Final = ("un", "in", "im", "ir", "il", "dis", "non", "anti")
"""Beginnings that turn a word into its opposite."""


def opposites(word: str) -> set[str]:
    """Stems of what excludes `word`: the listed words, and it with or without `un-` and such."""
    root = stem(word)
    listed = _excluded_by().get(root, set())
    if len(root) <= 3:
        return listed
    bare = {
        root.removeprefix(prefix)
        for prefix in NEGATING_PREFIXES
        if root.startswith(prefix) and len(root) - len(prefix) > 3
    }
    return listed | bare | {prefix + root for prefix in NEGATING_PREFIXES}


@cache
def _excluded_by() -> dict[str, set[str]]:
    pairs: dict[str, set[str]] = {}
    for pair in OPPOSITES:
        one, other = map(stem, sorted(pair))
        pairs.setdefault(one, set()).add(other)
        pairs.setdefault(other, set()).add(one)
    return pairs


# Which tokens of a claim its evidence holds, and which it lacks.


_ROOT: Final = 4
"""Akin words share this many first letters at least."""


class Alignment:
    """The tokens of `claim` against those of its `evidence`.

    `content` are the claim's tokens that say something; `absent` those of them whose key
    the evidence lacks; `missing` those of these to which no word of the evidence is akin.
    """

    def __init__(self, claim: Claim, evidence: Sequence[Token]) -> None:
        self.tokens = claim.tokens
        self.evidence = evidence
        self.content = [t for t in claim.tokens if is_content(t)] or claim.tokens
        self.keys = {token.key for token in claim.tokens}
        self.held = {token.key for token in evidence}
        self.unused = [t for t in evidence if is_content(t) and t.key not in self.keys]
        self.absent = [token for token in self.content if token.key not in self.held]
        roots: dict[str, set[str]] = {}
        for token in self.unused:
            roots.setdefault(token.form[:_ROOT], set()).add(token.form)
        relatives = {
            token.form
            for token in {token.form: token for token in self.absent}.values()
            if token.kind != "number"
            and any(akin(token.form, form) for form in roots.get(token.form[:_ROOT], ()))
        }
        self.missing = [token for token in self.absent if token.form not in relatives]

    def covered(self, missing: Iterable[Token]) -> float:
        """Share of the claim's content that is not `missing`, each kind by its weight."""
        total = sum(WEIGHTS[token.kind] for token in self.content)
        return 1 - sum(WEIGHTS[token.kind] for token in missing) / total

    @cached_property
    def opposed(self) -> bool:
        """Whether the evidence says the opposite of a word that it lacks."""
        unused = {stem(token.form) for token in self.unused}
        return any(not unused.isdisjoint(opposites(token.form)) for token in self.missing)

    @cached_property
    def negations(self) -> tuple[int, int]:
        """Negations in the claim, and in the evidence around what it shares with the claim.

        Where the evidence holds the claim word for word, what else it says does not count.
        """
        near = self._verbatim() or self._shared()
        return _negations(self.tokens), _negations(self.evidence[near.start : near.stop])

    def _shared(self) -> range:
        """From two tokens before the first that claim and evidence share to two after the last."""
        places = [
            place
            for place, token in enumerate(self.evidence)
            if is_content(token) and token.key in self.keys
        ]
        return range(max(0, places[0] - 2), places[-1] + 3) if places else range(len(self.evidence))

    def _verbatim(self) -> range:
        """Where the claim stands in the evidence word for word, and two tokens before it."""
        said = [token.key for token in self.tokens]
        told = [token.key for token in self.evidence]
        for start in range(len(told) - len(said) + 1):
            if told[start] == said[0] and told[start : start + len(said)] == said:
                return range(max(0, start - 2), start + len(said))
        return range(0)


def _negations(tokens: Sequence[Token]) -> int:
    """Negations among `tokens`, without a "no" that only answers a question."""
    found = 0
    for place, token in enumerate(tokens):
        if token.form in NEGATIONS:
            after = tokens[place + 1].start if place + 1 < len(tokens) else token.end
            answers = token.form in ANSWERS and after - token.end > 1
            found += not answers
    return found


def akin(word: str, other: str) -> bool:
    """Whether two words look like forms of one word: their first 60 % are equal."""
    length = max(len(word), len(other))
    root = max(_ROOT, -(-length * 3 // 5))
    return word[:root] == other[:root] and len(word) >= root and len(other) >= root


# Where in a premise the evidence for a sentence of a claim lies.


_CANDIDATES: Final = 4
"""Pieces around which evidence is looked for."""

_WIDEST: Final = 3
"""Neighbouring pieces that one window of evidence joins at most."""

_PIECE_COST: Final = 0.06
"""What a further piece in the window must add to be worth it."""


def candidates(premise: Premise, part: Part) -> list[int]:
    """The pieces that hold most of what `part` wants; the first ones where many are equal.

    Every piece of the premise is weighed, in time linear in where the words occur.
    """
    held: dict[int, float] = {}
    for key, weight in part.wanted.items():
        for piece in premise.holding.get(key, ()):
            held[piece] = held.get(piece, 0.0) + weight
    best = sorted(held, key=lambda piece: (-held[piece], piece))[:_CANDIDATES]
    others = (piece for piece in range(len(premise.pieces)) if piece not in held)
    return best + [piece for piece, _ in zip(others, range(_CANDIDATES - len(best)), strict=False)]


def best_window(premise: Premise, part: Part) -> range:
    """One to three neighbouring pieces that cover most of `part`, the first of equal ones."""
    found = set(candidates(premise, part))
    near = sorted({piece + step for piece in found for step in range(1 - _WIDEST, _WIDEST)})
    hits = {
        piece: {token.key for token in premise.tokens[piece]} & part.wanted.keys()
        for piece in near
        if 0 <= piece < len(premise.pieces)
    }
    windows = (
        range(first, first + width)
        for width in range(1, _WIDEST + 1)
        for first in hits
        if first + width - 1 in hits and found & set(range(first, first + width))
    )

    def worth(window: range) -> float:
        held = set(chain.from_iterable(hits[piece] for piece in window))
        covered = sum(part.wanted[key] for key in sorted(held)) / part.total
        return round(covered - _PIECE_COST * (len(window) - 1), 9)

    return max(windows, key=worth)


# What is measured of a claim and its evidence, as numbers that a logistic model weighs.


FEATURES_VERSION: Final = 2
"""Raised when the same texts start to give other numbers."""

READ: Final = ("read_entailed", "read_contradicted")
"""What the network says; the rest is counted."""

SURE: Final = ("complete", "number_missing", "number_alone_missing", "denied", "opposite")
"""What a small network overlooks, and counting does not."""

COUNTED: Final = (*SURE, "covered")
"""What there is to judge by where the network cannot read."""

_EXACT: Final[tuple[Kind, ...]] = ("number", "calendar")
"""Kinds of token for which nothing else will do."""


def measure(
    alignment: Alignment, premise: Premise, logits: Sequence[float] | None
) -> dict[str, float]:
    """Features by name: `COUNTED`, and `READ` where the network has read the pair.

    `logits` are the network's, of entailed, contradicted, neutral. Counted is whether every
    word of the claim is there, whether the premise lacks a number, day or month of it, and
    alone that, and whether one side denies what the other says or says the opposite.
    """
    complete = not alignment.missing
    wrong = [t for t in alignment.missing if t.kind in _EXACT and t.key not in premise.holding]
    claim, evidence = alignment.negations
    return {
        **(_read(*map(float, logits)) if logits is not None else {}),
        "complete": float(complete),
        "number_missing": float(bool(wrong)),
        "number_alone_missing": float(bool(wrong) and len(wrong) == len(alignment.missing)),
        "denied": float(complete and (claim - evidence) % 2 == 1),
        "opposite": float(alignment.opposed),
        "covered": alignment.covered(alignment.missing),
    }


def _read(entailed: float, contradicted: float, neutral: float) -> dict[str, float]:
    """Logarithms of odds: entailed against the others, and contradicted against neutral."""
    high = max(contradicted, neutral)
    either = high + math.log1p(math.exp(min(contradicted, neutral) - high))
    odds = entailed - either, contradicted - neutral
    return dict(zip(READ, odds, strict=True))


# From pairs of texts to features: evidence is looked for, and the claim aligned with it.


_CHARACTERS: Final = 2_000_000
"""Premises are held in groups of about this many characters, which bounds memory."""


class Measured(NamedTuple):
    """Features of a pair by name, and the characters `start:end` of the premise they are of."""

    features: dict[str, float]
    start: int
    end: int


class Reader(Protocol):
    """Reads a premise and a claim together."""

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Iterable[Sequence[float]]:
        """Of entailed, contradicted and neutral, for each of `pairs` in order."""
        ...


class _Question(NamedTuple):
    pair: Pair
    premise: Premise
    claim: Claim


def measure_pairs(pairs: Iterable[Pair], reader: Reader) -> dict[Pair, Measured]:
    """Features of the distinct `pairs`; a pair is left out where either text has no word.

    A premise is prepared once for all its claims. The reader is given what matters of it,
    and is not asked at all when there are no pairs.
    """
    measured: dict[Pair, Measured] = {}
    for group in _groups(pairs):
        questions = list(_questions(group))
        legibles = [question for question in questions if legible(question.pair.claim)]
        texts = [(reading(one.premise, one.claim), one.pair.claim) for one in legibles]
        read = reader.logits(texts) if texts else ()
        logits = dict(zip((one.pair for one in legibles), read, strict=True))
        for question in questions:
            measured[question.pair] = _measure(question, logits.get(question.pair))
    return measured


def _groups(pairs: Iterable[Pair]) -> Iterator[dict[str, list[Pair]]]:
    by_premise: dict[str, list[Pair]] = {}
    for pair in dict.fromkeys(pairs):
        by_premise.setdefault(pair.premise, []).append(pair)
    group: dict[str, list[Pair]] = {}
    characters = 0
    for premise, asked in by_premise.items():
        group[premise] = asked
        characters += len(premise) + sum(len(pair.claim) for pair in asked)
        if characters >= _CHARACTERS:
            yield group
            group, characters = {}, 0
    yield group


def _questions(group: Mapping[str, Sequence[Pair]]) -> Iterator[_Question]:
    for text, pairs in group.items():
        premise = Premise(text)
        for pair in pairs:
            claim = Claim(pair.claim)
            if premise.pieces and claim.parts:
                yield _Question(pair, premise, claim)


def _measure(question: _Question, logits: Sequence[float] | None) -> Measured:
    premise, claim = question.premise, question.claim
    windows = (best_window(premise, part) for part in claim.parts)
    pieces = dict.fromkeys(chain.from_iterable(windows))
    evidence = list(chain.from_iterable(premise.tokens[piece] for piece in pieces))
    features = measure(Alignment(claim, evidence), premise, logits)
    start, end = premise.pieces[min(pieces)].start, premise.pieces[max(pieces)].end
    return Measured(features, start, end)
