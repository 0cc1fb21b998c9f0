"""Words for what a person is: a list, their endings, and the words that only look so."""

from typing import Final

_ROLES: Final = frozenset(
    """poet chef judge nurse king queen prince princess president politician scientist athlete
    coach model host critic general admiral saint spy architect monarch emperor advocate
    diplomat playwright screenwriter economist pilot soldier knight bishop priest monk nun rabbi
    imam pope lawyer attorney scholar student scribe bard duke earl count baron lord bassist
    novelist essayist entrepreneur businessman businesswoman executive ceo cto cfo co-founder
    captain colonel lieutenant major sergeant naturalist activist missionary revolutionary
    assistant accountant consultant merchant professional detective official mechanic academic
    cleric medic vocalist celebrity personality star hero heroine patron sculptor goalkeeper
    midfielder striker quarterback guard surgeon clown magician shaman thief slave peasant
    philanthropist polymath guru mystic prophet statesman nobleman courtier senator governor
    mayor ambassador chancellor minister secretary chairman chairwoman chairperson spokesman
    spokesperson representative delegate commissioner sheriff marshal cardinal abbot abbess
    theologian pedagogue virtuoso maestro impresario cook baker tailor smith blacksmith
    goldsmith farmer miner fisherman citizen resident native veteran volunteer intern apprentice
    graduate alumnus alumna fellow dean provost rector lecturer professor teacher tutor youtuber
    rapper dj hacker programmer geek analyst cosmonaut astronaut aeronaut jockey matador acrobat
    man woman person boy girl father mother son daughter brother sister husband wife widow
    orphan twin member head chief chair leader boss champion medalist medallist olympian
    laureate recipient author publicist""".split()
)
_ROLE_ENDINGS: Final = ("ist", "ician", "logian", "arian", "woman", "man", "ess", "er", "or", "eer")
_NOT_ROLES: Final = frozenset(
    """computer river water tower number order power matter paper letter chapter factor sector
    vector color colour summer winter weather center centre theater theatre character newspaper
    border corner cover layer filter offer answer cancer fiber fever flower finger shoulder
    ladder powder timber silver copper rubber leather feather dinner supper butter sugar other
    another further rather over under after ever never however motor door floor mirror error
    terror horror major minor interior exterior superior inferior prior senior junior harbor
    harbour labor labour flavor flavour humor humour honor honour odor tumor vapor rigor list
    mist twist fist wrist exist consist resist persist happiness illness business process
    success access mass class glass press stress address congress progress wilderness fitness
    less unless bless helpless human german roman career beer deer pier cheer sheer eager bigger
    greater larger smaller higher lower older younger later former latter upper inner outer
    proper monster cluster disaster meter liter quarter barrier carrier container server browser
    parameter register chamber trigger corridor indoor outdoor poor cylinder thriller bestseller
    trailer planner buffer router laser scanner printer hunger anger danger suburb her per super
    hyper cyber amber ember december november october september semester reactor tractor
    detector sensor monitor processor transistor resistor capacitor elevator escalator
    refrigerator generator indicator compressor folder header footer wrapper pointer counter
    encounter wonder thunder gender tender slender surrender shower bower prayer manner banner
    dress""".split()
)


def is_role(word: str) -> bool:
    """Whether `word` (lower case) names what a person is: physicist, engineer, poet."""
    word = word.rsplit("-", 1)[-1]
    if word in _ROLES:
        return True
    return len(word) > 4 and word.endswith(_ROLE_ENDINGS) and word not in _NOT_ROLES
