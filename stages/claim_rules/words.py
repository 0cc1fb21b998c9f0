"""Word lists: closed classes, adjective endings, words for people."""

from typing import Final

# Closed classes of English words, and the words and endings that mark adjectives.


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ARTICLES: Final = _set("a an")
DETERMINERS: Final = _set(
    "a an the this these those each every some any no another such my your his her its our their "
    "both either neither several many few most all"
)
PREPOSITIONS: Final = _set(
    "of in on at by for from with without within into onto upon over under above below between "
    "among amongst through throughout during against toward towards across along around behind "
    "beside besides beyond near off outside inside per via about as after before since until till "
    "than despite except including regarding concerning following like unlike alongside amid to"
)
PRONOUNS: Final = _set(
    "i he she it they we you him them us me there himself herself itself themselves"
)
SUBORDINATORS: Final = _set(
    "because although though if unless when whenever where wherever while whereas whether how why "
    "what whatever once lest provided"
)
RELATIVES: Final = _set("who which whose whom")
COORDINATORS: Final = _set("and but or nor yet &")
BE: Final = _set("am is are was were isn't aren't wasn't weren't isn’t aren’t wasn’t weren’t")
HAVE: Final = _set("has had have hasn't hadn't haven't hasn’t hadn’t haven’t")
MODALS: Final = _set(
    "will would can could may might must shall should do does did cannot won't wouldn't can't "
    "couldn't shouldn't don't doesn't didn't won’t wouldn’t can’t couldn’t don’t doesn’t didn’t"
)
NEGATIONS: Final = _set("not never no neither nor hardly rarely seldom without")
ADVERBS: Final = _set(
    "not never also then later once again still already just often always sometimes ever even "
    "there here now soon thereafter afterwards afterward subsequently eventually finally "
    "currently previously formerly originally first initially mainly mostly primarily partly "
    "together twice only too very quite rather almost nearly perhaps however therefore thus hence "
    "instead meanwhile moreover furthermore today yesterday tomorrow well back more most less "
    "least further long abroad away"
)
NOT_ADVERBS: Final = _set(
    "family july italy ally supply reply assembly monopoly anomaly butterfly jelly rally bully "
    "belly lily fly early daily weekly monthly yearly elderly friendly lonely likely deadly holy "
    "silly ugly costly lively orderly scholarly"
)

DEMONYMS: Final = _set(
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
ADJECTIVES: Final = _set(
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
NOT_ADJECTIVES: Final = _set(
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

_FAME: Final = _set(
    "pioneering groundbreaking ground-breaking famous renowned celebrated acclaimed influential "
    "notable noted remarkable extraordinary outstanding brilliant prominent eminent distinguished "
    "legendary iconic prestigious impressive innovative revolutionary seminal landmark beautiful "
    "wonderful amazing stunning fascinating well-known world-famous world-renowned beloved "
    "prolific talented gifted visionary tireless exceptional important significant"
)
_DEGREE: Final = _set(
    "very extremely highly widely truly really quite particularly especially incredibly remarkably "
    "famously notably simply basically actually indeed deeply greatly"
)
EVALUATIONS: Final = _FAME | _DEGREE
"""Words that praise or stress and whose loss leaves the main point standing."""

FIXED_PAIRS: Final = frozenset(
    tuple(pair.split("-"))
    for pair in (
        "rock-roll black-white bed-breakfast research-development trial-error give-take "
        "cause-effect profit-loss back-forth pros-cons salt-pepper cat-mouse question-answer "
        "science-technology arts-crafts search-rescue supply-demand"
    ).split()
)
"""Two words joined by "and" that name one thing."""

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
"""Openings that tie a sentence to the one before and claim nothing."""

ENGLISH: Final = _set(
    "the and who which that with by from for were has had his her their its this these it he she "
    "they but is of was as an"
)
FOREIGN: Final = _set(
    "der die das und ist ein eine einen dem den des nicht auch wurde werden mit von zu im für auf "
    "le la les du une est et dans pour que qui sur pas avec sont au aux ne el los las y en por con "
    "una del es fue se su al il di che della per sono nel non och att det som är en av het een van "
    "zijn niet voor met op te w na z i że nie jest się do o não uma os em da ve bir bu için dan "
    "yang di untuk dengan och på er til af jeg ikke og è ou mais comme war hat sich als"
)


def article(word: str) -> str:
    """The indefinite article before `word`."""
    low = word.lower()
    if low.startswith(("hour", "honest", "honor", "honour", "heir")):
        return "an"
    if low.startswith(("uni", "eu", "use", "usu", "one", "once", "ut", "u.", "ub")):
        return "an" if low.startswith(("unim", "unin", "utt", "utm")) else "a"
    if word.isupper() and len(word) > 1:
        return "an" if word[0] in "AEFHILMNORSX" else "a"
    return "an" if low[:1] in "aeiouáéíóúöüäå" else "a"


def possessive(name: str) -> str:
    """The name with the ending of an owner: Curie's, Charles'."""
    return name + ("'" if name.endswith("s") else "'s")


# Words for what a person is: a list, their endings, and the words that only look so.


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
