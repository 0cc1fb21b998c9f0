"""English word lists: closed classes, adjectives, person nouns and verb forms."""

from typing import Final

from claimflow.stages.text.word_lists import word_set

# Closed classes, and what marks adjectives and adverbs.

ARTICLES: Final = word_set("a an")
DETERMINERS: Final = word_set(
    "a an the this these those each every some any no another such my your his her its our their "
    "both either neither several many few most all"
)
PREPOSITIONS: Final = word_set(
    "of in on at by for from with without within into onto upon over under above below between "
    "among amongst through throughout during against toward towards across along around behind "
    "beside besides beyond near off outside inside per via about as after before since until till "
    "than despite except including regarding concerning following like unlike alongside amid to"
)
PRONOUNS: Final = word_set(
    "i he she it they we you him them us me there himself herself itself themselves"
)
SUBORDINATORS: Final = word_set(
    "because although though if unless when whenever where wherever while whereas whether how why "
    "what whatever once lest provided"
)
RELATIVE_PRONOUNS: Final = word_set("who which whose whom")
COORDINATORS: Final = word_set("and but or nor yet &")
BE: Final = word_set("am is are was were isn't aren't wasn't weren't isn’t aren’t wasn’t weren’t")
HAVE: Final = word_set("has had have hasn't hadn't haven't hasn’t hadn’t haven’t")
MODALS: Final = word_set(
    "will would can could may might must shall should do does did cannot won't wouldn't can't "
    "couldn't shouldn't don't doesn't didn't won’t wouldn’t can’t couldn’t don’t doesn’t didn’t"
)
NEGATIONS: Final = word_set("not never no neither nor hardly rarely seldom without")
ADVERBS: Final = word_set(
    "not never also then later once again still already just often always sometimes ever even "
    "there here now soon thereafter afterwards afterward subsequently eventually finally "
    "currently previously formerly originally first initially mainly mostly primarily partly "
    "together twice only too very quite rather almost nearly perhaps however therefore thus hence "
    "instead meanwhile moreover furthermore today yesterday tomorrow well back more most less "
    "least further long abroad away"
)
NOT_ADVERBS: Final = word_set(
    "family july italy ally supply reply assembly monopoly anomaly butterfly jelly rally bully "
    "belly lily fly early daily weekly monthly yearly elderly friendly lonely likely deadly holy "
    "silly ugly costly lively orderly scholarly"
)

DEMONYMS: Final = word_set(
    "german french greek dutch swiss czech welsh thai arab british english irish scottish spanish "
    "polish turkish danish swedish finnish jewish flemish chinese japanese portuguese vietnamese "
    "lebanese maltese burmese nepalese taiwanese american african african-american mexican "
    "canadian australian austrian italian russian ukrainian belgian brazilian hungarian romanian "
    "bulgarian serbian croatian bosnian albanian armenian georgian iranian persian indian "
    "indonesian malaysian korean egyptian ethiopian nigerian ghanaian kenyan algerian tunisian "
    "moroccan libyan syrian jordanian israeli palestinian iraqi pakistani bangladeshi cuban "
    "jamaican haitian colombian venezuelan peruvian chilean argentine argentinian uruguayan "
    "bolivian ecuadorian norwegian icelandic slovak slovenian estonian latvian lithuanian "
    "cypriot filipino asian european afghan roman byzantine ottoman soviet prussian bavarian "
    "venetian florentine catalan basque breton hawaiian texan californian sicilian azerbaijani"
)
ADJECTIVES: Final = word_set(
    "former late early modern ancient old young new good bad great small large big major minor "
    "high low long short senior junior chief main key first second third last next leading "
    "professional retired independent fellow rich poor famous prominent notable popular common "
    "rare strong weak free open own only same different other various pure black white red green "
    "blue yellow dark light hot cold warm dry wet front western eastern northern southern north "
    "south east west inner outer upper lower top military civil private public royal male female "
    "blind deaf future present past left-wing right-wing self-taught award-winning best-selling "
    "full-time part-time well-known pioneering groundbreaking freelance amateur veteran wealthy "
    "naturalized naturalised expert organic quantum nuclear marine naval"
)
ADJECTIVE_ENDINGS: Final = (
    "ical al ic ous ful ive able ible less ish ese ary ent ant ar -born -based -old".split()
)
NOT_ADJECTIVES: Final = word_set(
    "animal capital hospital festival journal metal material signal goal rival arrival survival "
    "general admiral cardinal principal official professional individual criminal proposal appeal "
    "approval canal trial total music public republic topic traffic fabric critic mechanic clinic "
    "logic magic academic cleric medic comic detective native executive relative representative "
    "perspective objective archive olive variable table vegetable cable bible fish dish british "
    "library secretary anniversary dictionary military diary salary boundary missionary "
    "revolutionary student president parent agent event element movement government department "
    "development management treatment client continent content patent resident scientist plant "
    "restaurant giant assistant participant merchant consultant accountant servant lieutenant "
    "sergeant elephant grant war car star year bar scholar calendar dollar sugar radar guitar "
    "finish cheese establishment settlement instrument document experiment environment argument "
    "agreement equipment investment statement moment amount talent accident incident current "
    "descent inhabitant immigrant tyrant pharmacist"
)

_FAME: Final = word_set(
    "pioneering groundbreaking ground-breaking famous renowned celebrated acclaimed influential "
    "notable noted remarkable extraordinary outstanding brilliant prominent eminent distinguished "
    "legendary iconic prestigious impressive innovative revolutionary seminal landmark beautiful "
    "wonderful amazing stunning fascinating well-known world-famous world-renowned beloved "
    "prolific talented gifted visionary tireless exceptional important significant"
)
_DEGREE: Final = word_set(
    "very extremely highly widely truly really quite particularly especially incredibly remarkably "
    "famously notably simply basically actually indeed deeply greatly"
)
EVALUATIVE_WORDS: Final = _FAME | _DEGREE
"""Words of praise and intensifiers, which can be dropped without changing the main statement."""

FIXED_PAIRS: Final = frozenset(
    tuple(pair.split("-"))
    for pair in (
        "rock-roll black-white bed-breakfast research-development trial-error give-take "
        "cause-effect profit-loss back-forth pros-cons salt-pepper cat-mouse question-answer "
        "gin-tonic fish-chips public-private hot-cold sweet-sour "
        "science-technology arts-crafts search-rescue supply-demand"
    ).split()
)
"""Two words joined by "and" that name one thing."""

TOGETHER: Final = word_set(
    "between together jointly collectively combined respectively among alike"
)
"""With these words a coordination says something of its members together."""
MIXED: Final = word_set(
    """mix mixture mixtures combination combinations relationship relationships relations war wars
    conflict difference differences comparison union merger merging pair range variety set series
    blend group sum ratio balance collaboration tension border distance number total majority
    percent average match marriage partnership alliance treaty rivalry friendship similarity
    similarities interaction interactions link links connection parts amounts shares"""
)
"""Nouns that the members behind them make up together."""
COLOURS: Final = word_set(
    "black white red blue green yellow brown grey gray gold golden silver orange purple pink"
)

CONNECTIVES: Final = frozenset(
    (
        "however,therefore,thus,hence,moreover,furthermore,additionally,also,in addition,in fact,"
        "in conclusion,in summary,in short,overall,as a result,consequently,for example,"
        "for instance,on the other hand,nevertheless,nonetheless,meanwhile,besides,indeed,"
        "of course,finally,first,firstly,second,secondly,third,thirdly,lastly,in other words,"
        "that said,similarly,likewise,in contrast,conversely,accordingly,interestingly,notably,"
        "importantly,specifically,generally,ultimately,well,yes,no"
    ).split(",")
)
"""Connectives at the start of a sentence, which claim nothing."""

ENGLISH_FUNCTION_WORDS: Final = word_set(
    "the and who which that with by from for were has had his her their its this these it he she "
    "they but is of was as an"
)
FOREIGN_FUNCTION_WORDS: Final = word_set(
    "der die das und ist ein eine einen dem den des nicht auch wurde werden mit von zu im für auf "
    "le la les du une est et dans pour que qui sur pas avec sont au aux ne el los las y en por con "
    "una del es fue se su al il di che della per sono nel non och att det som är en av het een van "
    "zijn niet voor met op te w na z i że nie jest się do o não uma os em da ve bir bu için dan "
    "yang di untuk dengan och på er til af jeg ikke og è ou mais comme war hat sich als"
)


def indefinite_article(word: str) -> str:
    """The indefinite article before `word`."""
    low = word.lower()
    if low.startswith(("hour", "honest", "honor", "honour", "heir")):
        return "an"
    if low.startswith(("uni", "eu", "use", "usu", "one", "once", "ut", "u.", "ub")):
        return "an" if low.startswith(("unim", "unin", "utt", "utm")) else "a"
    if word.isupper() and len(word) > 1:
        return "an" if word[0] in "AEFHILMNORSX" else "a"
    return "an" if low[:1] in "aeiouáéíóúöüäå" else "a"


_SINGULARS: Final = {
    **{"people": "person", "men": "man", "women": "woman", "children": "child", "series": "series"},
    **{"movies": "movie", "buses": "bus", "viruses": "virus", "shoes": "shoe", "leaves": "leaf"},
}


def singular(plural: str) -> str | None:
    """The singular of a noun; None where its ending does not tell."""
    if plural in _SINGULARS:
        return _SINGULARS[plural]
    if plural.endswith(("ss", "us", "is", "ves", "uses", "xes", "zzes")) or plural[-1:] != "s":
        return None
    if plural.endswith("ies"):
        return f"{plural[:-3]}y" if len(plural) > 5 else None
    if plural.endswith(("sses", "shes", "ches", "oes")):
        return plural[:-2]
    return plural[:-1]


def possessive(name: str) -> str:
    """The possessive of a name: Curie's, Charles'."""
    return name + ("'" if name.endswith("s") else "'s")


# Person nouns: a list, their endings, and exceptions.

_PERSON_NOUNS: Final = word_set(
    """poet chef judge nurse historian comedian king queen prince princess president politician
    scientist athlete
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
    laureate recipient author publicist"""
)
_PERSON_ENDINGS: Final = (
    "ist",
    "ician",
    "logian",
    "arian",
    "woman",
    "man",
    "ess",
    "er",
    "or",
    "eer",
)
_NOT_PERSON_NOUNS: Final = word_set(
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
    dress"""
)


def is_person_noun(word: str) -> bool:
    """Whether `word` (lower case) names what a person is: physicist, engineer, poet."""
    word = word.rsplit("-", 1)[-1]
    if word in _PERSON_NOUNS:
        return True
    return len(word) > 4 and word.endswith(_PERSON_ENDINGS) and word not in _NOT_PERSON_NOUNS


# Verbs: irregular forms, and common verbs with their third-person forms.
#
# Past forms that are never participles, participles that are never past, and forms that are both.
PAST_ONLY: Final = word_set(
    """wrote became went took gave began broke chose did drew drove ate fell flew forgot froze grew
    hid knew lay rode rang rose ran saw sang sank shook showed spoke stole swam swore threw wore
    woke withdrew undertook oversaw overcame underwent forbade came overtook arose awoke bore
    shrank sprang strove tore wove mistook foresaw befell overthrew rewrote outgrew"""
)
PARTICIPLE_ONLY: Final = word_set(
    """written born known gone taken given begun broken chosen done drawn driven eaten fallen flown
    forgotten frozen grown hidden lain ridden rung risen seen sung sunk shaken shown spoken stolen
    swum sworn thrown worn woken withdrawn undertaken overseen undergone forbidden arisen borne
    shrunk sprung torn woven mistaken foreseen overthrown rewritten proven been sewn"""
)
PAST_OR_PARTICIPLE: Final = word_set(
    """made built held found kept led left lost met paid put read said sent sold spent stood taught
    told thought understood won brought bought caught cut dealt fought felt got heard hit hung laid
    learnt lent lit meant rebuilt set shot shut slept split spread struck swept upheld withheld
    dug bent bound bred fed fled flung forecast hurt knelt leapt sat sought spun spelt stuck stung
    stung swung cost cast broadcast bet burnt dreamt ground wound withstood misled
    outsold"""
)
NOT_PAST: Final = word_set(
    """hundred embed united sacred naked wicked beloved rugged aged kindred infrared shed sled
    so-called renowned talented gifted skilled unidentified unprecedented bobsled"""
)
"""Words in -ed that are never verbs."""

OFTEN_ADJECTIVES: Final = word_set(
    """limited related applied combined mixed advanced animated armed organized distinguished
    celebrated acclaimed dedicated experienced educated retired married detailed increased improved
    reduced"""
)
"""Past forms that are verbs only before an object or an adjunct."""

BASE_FORMS: Final = word_set(
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
    ski skate row sail coach referee tackle rebound dribble qualify lag trail outperform"""
)


def _third(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


THIRD_PERSON_FORMS: Final = frozenset(_third(base) for base in BASE_FORMS)

NOUN_FORMS: Final = word_set(
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
    values ways winds words worships"""
)
"""Words in -s that after "and" are more often nouns."""

INTRANSITIVE: Final = word_set(
    """died lived moved served worked became went came remained returned retired emigrated
    immigrated arrived appeared existed happened occurred emerged grew rose fell resigned
    graduated participated competed belonged contributed collaborated traveled travelled
    spread studied lectured played taught joined succeeded migrated resided stayed settled"""
)
"""Past forms that are not passive when they follow "was ... and"."""


EVENT_PARTICIPLES: Final = word_set(
    "born written published directed founded built produced released recorded created developed "
    "established composed painted discovered invented performed built constructed designed formed "
    "launched introduced elected appointed killed named signed educated raised hosted broadcast "
    "commissioned played sung filmed adapted edited distributed"
)
"""Participles that denote an event and take the past tense."""


def is_past_or_participle(word: str) -> bool:
    """Whether `word` can be both, as all regular forms in -ed can."""
    if word in PAST_OR_PARTICIPLE:
        return True
    regular = len(word) > 3 and word.endswith("ed") and not word.endswith("eed")
    return regular and word not in NOT_PAST
