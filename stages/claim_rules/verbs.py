"""English verbs: irregular forms, and common verbs with their third-person forms."""

from typing import Final

# Past forms that are never participles, participles that are never past, and forms that are both.
PAST_ONLY: Final = frozenset(
    """wrote became went took gave began broke chose did drew drove ate fell flew forgot froze grew
    hid knew lay rode rang rose ran saw sang sank shook showed spoke stole swam swore threw wore
    woke withdrew undertook oversaw overcame underwent forbade came overtook arose awoke bore
    shrank sprang strove tore wove mistook foresaw befell overthrew rewrote outgrew""".split()
)
PARTICIPLE_ONLY: Final = frozenset(
    """written born known gone taken given begun broken chosen done drawn driven eaten fallen flown
    forgotten frozen grown hidden lain ridden rung risen seen sung sunk shaken shown spoken stolen
    swum sworn thrown worn woken withdrawn undertaken overseen undergone forbidden arisen borne
    shrunk sprung torn woven mistaken foreseen overthrown rewritten proven been sewn""".split()
)
PAST_OR_PARTICIPLE: Final = frozenset(
    """made built held found kept led left lost met paid put read said sent sold spent stood taught
    told thought understood won brought bought caught cut dealt fought felt got heard hit hung laid
    learnt lent lit meant rebuilt set shot shut slept split spread struck swept upheld withheld
    dug bent bound bred fed fled flung forecast hurt knelt leapt sat sought spun spelt stuck stung
    stung swung cost cast broadcast bet burnt dreamt ground wound withstood misled
    outsold""".split()
)
NOT_PAST: Final = frozenset(
    """hundred embed united sacred naked wicked beloved rugged aged kindred infrared shed sled
    so-called renowned talented gifted skilled unidentified unprecedented bobsled""".split()
)
"""Words in -ed that are never verbs."""

OFTEN_ADJECTIVES: Final = frozenset(
    """limited related applied combined mixed advanced animated armed organized distinguished
    celebrated acclaimed dedicated experienced educated retired married detailed increased improved
    reduced""".split()
)
"""Past forms that are verbs only before an object or an adjunct."""

BASES: Final = frozenset(
    """accept accompany achieve acquire act adapt add address administer admire adopt affect
    aim allow analyze announce appear apply appoint approve argue arrange arrive assist assume
    attack attempt attend attract authorize award base beat become begin believe belong blend
    border borrow break bring broadcast build call cause celebrate chair champion claim collaborate
    collect combine command commission compete compile complete compose conceive conduct confirm
    connect conquer consider consist construct contain contest continue contribute control convert
    cook coordinate cost cover create cross dance deal declare decline decrease defeat defend define
    deliver demonstrate deny depend depict derive describe deserve design destroy detail determine
    develop devise die differ direct discover discuss display distribute divide divorce document
    dominate donate draw drive drop earn eat edit educate elect emerge emigrate emphasize employ
    enable encompass encourage end engage enjoy ensure enter entertain equal escape establish
    examine exceed exist expand expect experience explain explore export express extend face
    facilitate fail fall feature feed fight fill finance find fit fly focus follow force form found
    free fund gain generate get give go govern graduate grow guide handle happen have head heal help
    highlight hold host house hunt identify illustrate immigrate implement import improve include
    increase incorporate indicate influence inform inherit initiate inspire install integrate
    intend interpret introduce invent invest investigate invite involve issue join judge keep kill
    know lack land last launch lay lead learn leave lecture let lie link list live locate look lose
    love maintain make manage manufacture mark marry master mean measure meet melt mentor merge
    migrate model monitor motivate move narrate need observe obtain occupy occur offer open operate
    oppose orbit order organize originate oversee own paint participate pass patent pay perform
    pilot plan play point portray possess practice praise predict prefer prepare present preserve
    prevent print process produce progress project promote propose protect prove provide publish
    purchase pursue put raise rank reach read receive recognize recommend record recover reduce
    refer reflect reform refuse reject relate release relocate rely remain remember remove rename
    render renovate replace report represent request require rescue research resemble reside resign
    resolve respond restore result retain retire return reveal review revise ride rise rule run
    satisfy save say scan score seek seem see select sell send separate serve set settle shape share
    show shrink sign sing sit solve speak specialize spend sponsor spread stand star start state
    stay stop store strengthen stress study submit succeed suffer suggest supervise supply support
    surround survive take talk target teach tell tend test think threaten tour trace trade train
    translate transform transport travel treat try turn understand undergo unite update use vary
    visit volunteer vote walk want watch wear weigh win work worship write yield flow stretch span
    empty ban bear belong carry catch change choose cite clarify classify climb close combat come
    commemorate communicate compare concentrate concern deem emit boil freeze rotate digest absorb
    breathe burn evaporate dissolve react bind inhibit stimulate regulate synthesize secrete pump
    filter circulate transmit infect invade multiply hatch lay bloom ripen hibernate roam hover
    accelerate calculate compute detect execute insert delete update validate encrypt authenticate
    deploy configure enforce permit prohibit restrict levy tax invest borrow lease insure audit
    arrest accuse convict sentence sue appeal testify ratify veto legislate negotiate mediate
    assassinate abdicate reign colonize liberate annex besiege bombard surrender retreat
    compile curate illustrate sculpt weave knit embroider rehearse recite improvise broadcast
    ski skate row sail coach referee tackle rebound dribble qualify lag trail outperform""".split()
)


def _third(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


THIRDS: Final = frozenset(_third(base) for base in BASES)

NOUN_FORMS: Final = frozenset(
    """processes works studies plays features stars names results reports records forms points
    states issues covers claims causes needs uses tests costs dances changes matches trains moves
    views marks guides hosts judges leads links lists means orders parts places practices programs
    projects ranks rules runs scores shows signs sites sounds stages stores tours trades treats
    turns visits votes walks waves deals designs details documents drives aims answers attacks
    attempts benefits books calls centers changes controls crosses debates experiences
    experiments exports faces fears feeds fights fills finishes flies focuses
    functions funds grants heads helps holds homes hopes houses imports increases influences
    interests lands launches lectures limits lives looks measures models models offers
    paints pilots plans presents prints progresses promises protests purchases
    questions releases requests returns reviews rides sales searches seats services sets
    shapes shares sides skills smiles starts stays steps stops stories stresses
    supplies supports talks targets taxes teams touches transports travels types
    values ways winds words worships""".split()
)
"""Words in -s that after "and" are more often nouns."""

INTRANSITIVE: Final = frozenset(
    """died lived moved served worked became went came remained returned retired emigrated
    immigrated arrived appeared existed happened occurred emerged grew rose fell resigned
    graduated participated competed belonged contributed collaborated traveled travelled
    studied lectured played taught joined succeeded migrated resided stayed settled""".split()
)
"""Past forms that are not passive when they follow "was ... and"."""

STATES: Final = frozenset(
    "located situated based known called named titled entitled considered used designed intended "
    "regarded recognized recognised found composed surrounded bordered divided made".split()
)
"""Participles that describe a state and take the tense of the sentence."""

EVENTS: Final = frozenset(
    "born written published directed founded built produced released recorded created developed "
    "established composed painted discovered invented performed built constructed designed formed "
    "launched introduced elected appointed killed named signed educated raised hosted broadcast "
    "commissioned played sung filmed adapted edited distributed".split()
)
"""Participles that tell of an event and are put in the past."""


def is_past_or_participle(word: str) -> bool:
    """Whether `word` can be both, as all regular forms in -ed can."""
    if word in PAST_OR_PARTICIPLE:
        return True
    regular = len(word) > 3 and word.endswith("ed") and not word.endswith("eed")
    return regular and word not in NOT_PAST
