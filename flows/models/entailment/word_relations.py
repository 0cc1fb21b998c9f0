"""Relations between words: opposites, and forms of one word."""

from functools import cache
from typing import Final

from claimflow.flows.models.entailment.tokens import stem
from claimflow.flows.models.entailment.word_lists import folded

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

ROOT_LETTERS: Final = 4
"""Forms of one word share at least this many first letters."""


def share_root(word: str, other: str) -> bool:
    """Whether two words look like forms of one word: the first 60 % of both are equal."""
    length = max(len(word), len(other))
    root = max(ROOT_LETTERS, -(-length * 3 // 5))
    return word[:root] == other[:root] and len(word) >= root and len(other) >= root


def opposites(word: str) -> set[str]:
    """Stems of the opposites of `word`: those listed, and `word` with or without a prefix."""
    root = stem(word)
    listed = _listed_opposites().get(root, set())
    if len(root) <= 3:
        return listed
    bare = {
        root.removeprefix(prefix)
        for prefix in NEGATING_PREFIXES
        if root.startswith(prefix) and len(root) - len(prefix) > 3
    }
    return listed | bare | {prefix + root for prefix in NEGATING_PREFIXES}


@cache
def _listed_opposites() -> dict[str, set[str]]:
    by_stem: dict[str, set[str]] = {}
    for pair in OPPOSITES:
        one, other = map(stem, sorted(pair))
        by_stem.setdefault(one, set()).add(other)
        by_stem.setdefault(other, set()).add(one)
    return by_stem
