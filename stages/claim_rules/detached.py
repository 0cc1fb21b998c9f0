"""Which parts of a parsed clause are statements of their own."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from claimflow.stages.claim_rules.lexicon import ARTICLES, NEGATIONS, TOGETHER, is_person_noun
from claimflow.stages.claim_rules.trees import NAME_TAGS, NOUN_TAGS, Tree
from claimflow.stages.text.word_lists import word_set

Kind = Literal[
    "clause",  # "..., and she left": a clause with a subject of its own
    "contrast",  # "while she left"
    "reason",  # "because she left": stays in its clause, too
    "opening",  # "Born in Kyoto, ..."
    "gerund",  # "..., becoming the first": the subject became the first
    "having",  # "..., having founded the club": the subject founded the club
    "after",  # "After leaving Rome, ...": stays in its clause, too
    "absolute",  # "..., with sales reaching 2 million": sales reached 2 million
    "when",  # "... in 1986, when she left": she left in 1986
    "making",  # "..., making him the oldest": the subject is the oldest
    "appositive",  # "Paris, the capital of France,"
    "participle",  # "a novel written by her": of a noun
    "relative",  # "Ann, who lives in Rome,"
]


class Detached(NamedTuple):
    """A part of a clause that is a statement of its own: the word `node`, that hangs on `head`."""

    kind: Kind
    node: int
    head: int

    @property
    def stays(self) -> bool:
        """Whether the clause keeps it: without it the clause would lose a reason or an order."""
        return self.kind in ("reason", "after")


CONTRASTS: Final = word_set("while whereas although though")
_DENIALS: Final = NEGATIONS | word_set(
    """n't n’t barely scarcely fail fails failed refuse refuses refused decline declines declined
    deny denies denied avoid avoids avoided lack lacks lacked prevent prevents prevented forget
    forgets forgot unable"""
)
"""Words that deny what follows: "failed to shoot and score" denies neither alone."""
_NEGATIVE_PRONOUNS: Final = word_set("no nobody none neither few nothing little")
_QUANTIFIERS: Final = word_set("any every each")
_UNIQUE: Final = word_set("only mostly mainly first last most least best largest")
_NO_STATEMENT: Final = word_set(
    """including following according regarding concerning depending given compared
    considering owing starting ranging beginning excluding containing meaning allowing causing
    resulting suggesting ensuring showing indicating"""
)
"""Participles that are prepositions, or whose subject is the whole event."""
_WHOLE_EVENTS: Final = word_set(
    """mean means meant make makes made lead leads led allow allows allowed help helps helped cause
    causes caused result results resulted surprise surprised contribute contributed contributes
    enable enables enabled prompt prompted explain explains explained suggest suggests suggested
    show shows showed"""
)
"""Verbs whose "which" is often the whole event before the comma."""

PAST_OF_GERUND: Final = dict(
    pair.split(":")
    for pair in """
    achieving:achieved appearing:appeared attending:attended beating:beat becoming:became
    breaking:broke bringing:brought completing:completed covering:covered defeating:defeated
    directing:directed dying:died earning:earned establishing:established finding:found
    finishing:finished
    founding:founded gaining:gained giving:gave graduating:graduated helping:helped holding:held
    joining:joined killing:killed landing:landed launching:launched leading:led leaving:left
    losing:lost making:made moving:moved performing:performed playing:played
    producing:produced publishing:published reaching:reached receiving:received releasing:released
    relocating:relocated representing:represented retiring:retired returning:returned
    scoring:scored selling:sold serving:served setting:set settling:settled signing:signed
    spending:spent starring:starred starting:started studying:studied switching:switched
    taking:took teaching:taught transferring:transferred turning:turned winning:won
    working:worked writing:wrote
    """.split()
)
"""Gerunds that become a past form where they are a statement of their own."""

_PRESENT_OF_GERUND: Final = {
    f"{base.removesuffix('e')}ing": base
    for base in """
    account appear attend become belong bring carry cause come compete consist contain
    contribute cover depend describe enjoy feature focus follow form give hold help include
    increase indicate involve lead live make mean move occupy offer perform play produce
    provide range reach receive rely remain represent rise serve show speak stand start surround
    take target vary work write
    """.split()
} | {"lying": "lie", "beginning": "begin", "winning": "win", "having": "have"}
_IRREGULAR: Final = {
    ("being", True, True): "were",
    ("being", True, False): "was",
    ("being", False, True): "are",
    ("being", False, False): "is",
    ("having", True, True): "had",
    ("having", True, False): "had",
    ("having", False, False): "has",
}


def finite_form(gerund: str, *, past: bool, plural: bool) -> str | None:
    """The form of a verb behind its subject: "reached" for "reaching"; None where it is unknown."""
    if (gerund, past, plural) in _IRREGULAR:
        return _IRREGULAR[gerund, past, plural]
    if past:
        return PAST_OF_GERUND.get(gerund)
    base = _PRESENT_OF_GERUND.get(gerund)
    if base is None or plural:
        return base
    if base.endswith(("s", "sh", "ch", "x")):
        return f"{base}es"
    return f"{base[:-1]}ies" if base.endswith("y") and base[-2] not in "aeiou" else f"{base}s"


_IMAGINED: Final = word_set(
    """dreamed dreamt dreams plan plans planned imagine imagined hoped hopes search searched wants
    wanted seek sought looking"""
)
_MADE_OR_HAD: Final = word_set(
    """has have had built builds build wrote writes written published publishes released releases
    founded founds made makes opened opens launched launches won wins joined joins owns owned own
    runs ran leads led heads headed bought buys sold sells directed directs produced produces
    developed develops designed designs composed composes recorded records received receives signed
    signs married met hired hires established establishes formed forms acquired acquires uses used
    introduced introduces contains contained includes included features featured offers offered
    publish release build write make open launch join run lead direct produce develop design use
    contain include feature offer"""
)
"""Verbs of which the object exists."""
_IN_PLACES: Final = word_set(
    "located lives lived lies lay works worked born stands stood situated based housed stored"
)
_ATTENDED: Final = word_set("attended entered joined visited left")
_TREATED: Final = word_set(
    """kept stored left taken used served treated cooked eaten applied opened mixed combined heated
    given handled seen viewed read played worn added stirred frozen thawed cut"""
)
"""Participles that before a general statement name its condition: "Kept cool, it lasts"."""
NAMING: Final = word_set("called named titled entitled nicknamed dubbed")
_BECOME: Final = word_set("become becomes became")
_RELATIVE_TAGS: Final = ("WP", "WDT", "WP$", "WRB")
_PLACE_CASES: Final = word_set("in at on to from near into")
_SOME: Final = word_set("both all some each most many none one half few several any neither")
_DEFINITE: Final = word_set("a an the his her its their one")
_OPENING_MARKS: Final = (",", "(", "–", "—", "-", "--")
_NOT_ENTERED: Final = frozenset(
    {"ccomp", "csubj", "csubj:pass", "acl:relcl", "acl", "advcl", "parataxis", "xcomp"}
)
"""Relations below which nothing is detached: attitudes, questions, and what has no subject."""


def detached_parts(tree: Tree, clause: int, allowed: Collection[int]) -> list[Detached]:
    """What is a statement of its own in a clause, of its words in `allowed`; outermost first."""
    found: list[Detached] = []
    waiting = [clause]
    while waiting:
        head = waiting.pop()
        for node in tree.children[head]:
            if node not in allowed:
                continue
            kind = _kind(tree, node, head, clause) if tree.is_contiguous(node) else None
            if kind is not None:
                found.append(Detached(kind, node, head))
            elif tree.relation(node) not in _NOT_ENTERED or is_nominal_predicate(
                tree, node, clause
            ):
                waiting.append(node)
    return found


def is_negated(tree: Tree, clause: int) -> bool:
    """Whether a clause, or a noun phrase of it, is negated."""
    if tree.lows[clause] in ("unlikely", "impossible"):
        return True
    own = {clause, *tree.children[clause]}
    for part in tree.of(clause, "obj", "obl", "nsubj", "nsubj:pass", "advmod"):
        own.update(tree.children[part])
    return any(tree.lows[index] in _DENIALS for index in own)


def names_nothing(tree: Tree, noun: int) -> bool:
    """Whether a noun phrase names nothing in particular: "no player", "every town"."""
    determiners = {tree.lows[index] for index in tree.of(noun, "det")}
    if determiners & (_NEGATIVE_PRONOUNS | _QUANTIFIERS):
        return True
    if not determiners and {tree.lows[n] for n in tree.of(noun, "amod")} & {"few", "little"}:
        return True
    return tree.lows[noun] in _NEGATIVE_PRONOUNS


def is_nominal_predicate(tree: Tree, noun: int, clause: int) -> bool:
    """Whether a noun is what a clause says that its subject is, or coordinated with that."""
    if tree.lows[clause] in _BECOME and noun in tree.of(clause, "xcomp"):
        return tree.tag(noun) == "NN"
    if not tree.has(clause, "cop") or tree.has(clause, "case"):
        return False
    coordinated = tree.relation(noun) == "conj" and tree.words[noun].head == clause
    return noun == clause or (coordinated and not tree.has(noun, "cop"))


def are_joined(tree: Tree, head: int, member: int) -> bool:
    """Whether "and" or "but" coordinates a member with its head; "or" claims neither side."""
    own = [tree.lows[index] for index in tree.of(member, "cc")]
    if own:
        with_so = tree.subject(member) is not None
        return all(one in ("and", "but", "&") or (one == "so" and with_so) for one in own)
    others = tree.conjuncts(head)
    later = [n for n in others if n > member and not is_alternative(tree, n, others)]
    if later:
        links = {tree.lows[cc] for index in later for cc in tree.of(index, "cc")}
        return bool(links) and links <= {"and", "but"}
    return stands_behind(tree, member, (";",))


def is_alternative(tree: Tree, index: int, others: Sequence[int]) -> bool:
    """Whether a word is one of a pair within a member.

    "to find or buy" in a list of purposes; "law and order" in "art, law and order, and trade".
    """
    own = {tree.lows[n] for n in tree.of(index, "cc")}
    above = tree.words[index].head
    if above not in others or not own:
        return False
    lists = tree.words[above].head
    ends = any(n > index and tree.words[n].head == lists and tree.has(n, "cc") for n in others)
    return own <= {"or", "nor"} or (own == {"and"} and ends)


def stands_behind(tree: Tree, node: int, marks: Collection[str]) -> bool:
    """Whether a subtree begins with one of `marks`, or one stands right before it."""
    first = min(tree.subtree(node))
    return any(tree.lows[index] in marks for index in range(max(0, first - 1), first + 1))


def _kind(tree: Tree, node: int, head: int, clause: int) -> Kind | None:
    found: Kind | None = None
    match tree.relation(node):
        case "appos":
            found = "appositive" if _is_appositive(tree, node, head) else None
        case "acl:relcl":
            found = "relative" if _is_relative(tree, node, head, clause) else None
        case "acl" | "advcl" if _is_absolute(tree, node, clause):
            found = "absolute"
        case "acl" if _is_participle(tree, node, head, clause):
            found = "participle"
        case "acl" if is_nominal_predicate(tree, head, clause) and _is_having(tree, node, clause):
            found = "having"
        case "parataxis" | "conj" if head == clause and _is_clause(tree, node, clause):
            found = "clause"
        case "advcl" if _is_where(tree, node) and tree.subject(node) is not None:
            found = "relative"
        case "advcl" if head == clause:
            found = _adverbial_kind(tree, node, clause)
        case _:
            pass
    return found or ("participle" if _is_adjective(tree, node, head, clause) else None)


def _is_absolute(tree: Tree, node: int, clause: int) -> bool:
    """Whether "with" begins a statement of another subject: ", with sales reaching 2 million"."""
    if tree.tag(node) != "VBG" or [tree.lows[n] for n in tree.of(node, "mark")] != ["with"]:
        return False
    subject = tree.subject(node)
    if subject is None or tree.tag(subject) not in NOUN_TAGS or not _comma_before(tree, node):
        return False
    form = finite_form(tree.lows[node], past=tree.is_past(clause), plural=False)
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    denied = is_negated(tree, clause) or is_negated(tree, node) or names_nothing(tree, subject)
    whole = tree.has(node, "conj", "aux") or modal or denied
    return form is not None and not whole and node > clause


def _comma_before(tree: Tree, node: int) -> bool:
    first = min(tree.subtree(node))
    return tree.texts[first] in _OPENING_MARKS or tree.texts[max(0, first - 1)] in _OPENING_MARKS


def _is_clause(tree: Tree, node: int, clause: int) -> bool:
    """Whether a coordinated clause has a subject and a verb of its own."""
    subject = tree.subject(node)
    if subject is None or tree.finite(node) is None or tree.subject(clause) is None:
        return False
    if tree.relation(node) == "conj":
        asks = any(tree.tag(n) in _RELATIVE_TAGS for n in tree.children[node] if n <= subject)
        asks |= tree.lows[subject] in ("that", "which", "who")
        return are_joined(tree, clause, node) and not (asks or begins_with_that(tree, node))
    first = min(n for n in tree.subtree(node) if tree.relation(n) != "punct")
    return stands_behind(tree, node, (";", "so")) or tree.lows[first] == "so"


def begins_with_that(tree: Tree, node: int) -> bool:
    """Whether "that" introduces a clause, as the second one of "knows that ..., and that ..."."""
    return any(tree.lows[n] == "that" for n in tree.of(node, "mark"))


def _is_appositive(tree: Tree, node: int, head: int) -> bool:
    """Whether an apposition says what its noun is: "Paris, the capital", "his wife, Ann Lee"."""
    comma = _comma_before(tree, node) and tree.is_closed(node)  # "Bob, a doctor until 1990, died"
    if not comma or len(tree.of(head, "appos")) > 1:
        return False
    if tree.in_brackets(node) or _begins_relative(tree, node):  # "(NFL)"
        return False
    others = [*tree.conjuncts(node), *(n for n in tree.conjuncts(head) if n > node)]
    if {tree.lows[cc] for n in others for cc in tree.of(n, "cc")} & {"or", "nor"}:
        return False
    if any(n < node for n in tree.conjuncts(head)) or tree.relation(head) == "conj":
        return False  # "New York and Albany, the capital": the nearest, or both
    names = any(tree.tag(n) in NAME_TAGS for n in tree.conjuncts(node))
    if tree.relation(head) == "appos" or (names and tree.tag(node) not in NAME_TAGS):
        return False  # "CafeMom, a network, and Shue, a charity"
    first = min(n for n in tree.subtree(node) if tree.relation(n) != "punct")
    if tree.tag(first) in ("RB", "RBR", "RBS"):
        return False  # "the Axis powers, particularly Japan"; "John Hale, later his biographer"
    parts = {tree.tag(n) for n in tree.of(head, "compound")}
    named = parts == {"NNP"} and not tree.has(head, "det", "amod", "nmod", "nmod:poss", "nummod")
    if tree.tag(head) in NAME_TAGS or named:
        definite = tree.lows[first] in _DEFINITE or tree.has(node, "nmod:poss")
        return tree.tag(node) in NOUN_TAGS and definite
    if tree.tag(head) not in NOUN_TAGS or tree.tag(node) not in NAME_TAGS:
        return False
    opening = tree.lows[min(tree.subtree(head))]
    definite = tree.has(head, "det", "nmod:poss") and opening not in ARTICLES
    return definite and not tree.has(node, "conj") and not tree.has(head, "conj")


def _is_indefinite(tree: Tree, noun: int) -> bool:
    """Whether a noun phrase says "a" or "an" and nothing that makes it the only one."""
    determiners = [tree.lows[index] for index in tree.of(noun, "det")]
    unique = any(tree.lows[index] in _UNIQUE for index in tree.children[noun])
    return determiners[:1] in (["a"], ["an"]) and not unique


def _is_relative(tree: Tree, node: int, head: int, clause: int) -> bool:
    """Whether a relative clause tells more of its noun, and does not choose among several."""
    pronoun = relative_pronoun(tree, node)
    if pronoun is None or tree.finite(node) is None or names_nothing(tree, head):
        return False
    if tree.lows[pronoun] == "where" and not _is_where(tree, node):
        return False
    if not _can_be_restated(tree, node, pronoun):
        return False
    if tree.lows[pronoun] == "which" and is_nominal_predicate(tree, head, clause):
        # "X is a model for dialogues, which ...": the nearest noun is meant if it is a name.
        nearest = nearest_noun(tree, node)
        if nearest not in (None, head) and tree.tag(nearest or 0) not in NAME_TAGS:
            return False
    if _comma_before(tree, node):
        return _is_further(tree, node, head, clause, pronoun)
    return _describes_predicate(tree, head, clause) or _needs_no_clause(
        tree, node, head, clause, pronoun
    )


def _is_further(tree: Tree, node: int, head: int, clause: int, pronoun: int) -> bool:
    """Whether a relative clause behind a comma is about its noun, and not about a whole event."""
    if not tree.is_closed(node):
        return False  # it would go on
    if tree.has(head, "conj") or tree.relation(head) == "conj":
        return is_nominal_predicate(tree, head, clause)  # "Ann and Bo, who ..." may be of both
    # "The fins, which help control the board, are"; "Aloha, which means love in Hawaiian"
    meaning = tree.lows[node] in ("means", "meant") and "in" in map(tree.case, tree.of(node, "obl"))
    of_event = _may_be_event(tree, node, pronoun) and node > clause and not meaning
    return tree.lows[pronoun] != "that" and not (of_event and tree.relation(pronoun) == "nsubj")


def _may_be_event(tree: Tree, node: int, pronoun: int) -> bool:
    return tree.lows[pronoun] == "which" and tree.lows[node] in _WHOLE_EVENTS


def _needs_no_clause(tree: Tree, node: int, head: int, clause: int, pronoun: int) -> bool:
    """Whether a noun is clear without its relative clause, which no comma parts from it."""
    nearest = nearest_noun(tree, node)
    # "met a man who lived in Rome and studied law": who studied?
    both = any(tree.is_predicate(n) for n in tree.conjuncts(node))
    # "built a house that burned and a barn"
    words = tree.lows[min(tree.subtree(node)) : max(tree.subtree(node)) + 1]
    both |= any(one == "and" and other in ("a", "an") for one, other in pairwise(words))
    if nearest is None or both or not _ends_phrase(tree, node, head):
        return False
    if nearest == head:
        return _is_named(tree, head, node, pronoun) or _is_object_that_is(tree, head, clause)
    # "an approach to AI that": not of a noun with an article or of one behind "and"
    other = nearest not in tree.subtree(head) or tree.has(nearest, "det")
    other |= tree.relation(nearest) == "conj" or tree.has(head, "conj")
    return not other and _is_object_that_is(tree, head, clause)


def _ends_phrase(tree: Tree, node: int, head: int) -> bool:
    """Whether the phrase of a noun ends with its clause, before a mark of punctuation or "and"."""
    end = max(tree.subtree(node))
    later = [n for n in tree.subtree(head) if n > end and tree.relation(n) != "punct"]
    return not later and tree.is_closed(node)


def _is_named(tree: Tree, noun: int, node: int, pronoun: int) -> bool:
    """Whether a name needs no clause to say which is meant: "Ann Lee who", "the N2 road which"."""
    if tree.lows[pronoun] not in ("who", "which") or tree.has(noun, "conj", "amod", "nummod"):
        return False
    if _may_be_event(tree, node, pronoun) or tree.relation(noun) == "conj":
        return False
    determiners = [tree.lows[n] for n in tree.of(noun, "det")]
    if tree.tag(noun) == "NNP":
        return not determiners
    named = any(tree.tag(n) == "NNP" for n in tree.of(noun, "compound"))
    return tree.tag(noun) == "NN" and named and determiners == ["the"]


def _is_object_that_is(tree: Tree, noun: int, clause: int) -> bool:
    """Whether a clause says that there is such a thing: "She wrote a book that won a prize".

    Not of what is wanted, shown or told of, nor in general statements: "Cooks need a knife that".
    """
    relation, verb = tree.relation(noun), tree.lows[clause]
    agent = relation == "obl:agent"
    placed = relation == "obl" and tree.case(noun) in ("in", "at", "on") and verb in _IN_PLACES
    known = relation == "obj" and verb in _MADE_OR_HAD
    subject = tree.subject(clause)
    if tree.words[noun].head != clause or not (agent or placed or known) or subject is None:
        return False
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    whole = modal or not _is_indefinite(tree, noun) or tree.has(noun, "conj")
    return not whole and not is_negated(tree, clause) and _is_one(tree, subject)


def _is_one(tree: Tree, subject: int) -> bool:
    """Whether a subject names something in particular, as a general statement does not."""
    opening = tree.lows[min(tree.subtree(subject))]
    definite = opening in ("the", "this", "his", "her", "its", "their", "my", "our", "your")
    return tree.tag(subject) in ("PRP", "NNP", "NNPS") or (definite and tree.tag(subject) == "NN")


def relative_pronoun(tree: Tree, node: int) -> int | None:
    """The relative pronoun or adverb of a clause; None where it has none."""
    found = (n for n in sorted(tree.subtree(node)) if is_relative_word(tree, n))
    return next(found, None)


def _can_be_restated(tree: Tree, node: int, pronoun: int) -> bool:
    """Whether a relative clause becomes a sentence with its noun in place of the pronoun."""
    above, relation = tree.words[pronoun].head, tree.relation(pronoun)
    subject = tree.subject(node)
    if subject is not None and tree.lows[subject] in _SOME:
        return False  # "both of which"
    if tree.lows[pronoun] == "whose":
        owned = tree.words[above].head == node
        return owned and tree.relation(above) in ("nsubj", "nsubj:pass")
    if above != node:
        return False
    if relation in ("nsubj", "nsubj:pass"):
        subjects = tree.of(node, "nsubj", "nsubj:pass")
        return all(n == pronoun or tree.lows[n] in ("both", "all", "each") for n in subjects)
    if tree.lows[pronoun] == "when":
        noun = nearest_noun(tree, node)
        return noun is not None and has_number(tree, tree.subtree(noun) - tree.subtree(node))
    placed = tree.lows[pronoun] == "where" or relation == "obj"
    return subject is not None and (placed or (relation == "obl" and tree.has(pronoun, "case")))


def is_relative_word(tree: Tree, index: int) -> bool:
    """Whether a word is a relative pronoun or adverb, or one that asks."""
    return tree.tag(index) in _RELATIVE_TAGS or tree.lows[index] == "whose"


def _is_where(tree: Tree, node: int) -> bool:
    """Whether an adverbial clause tells more of a place: "..., where she died"."""
    first = next((n for n in sorted(tree.subtree(node)) if tree.relation(n) != "punct"), node)
    where = tree.lows[first] == "where" and tree.words[first].head == node
    where = where and [tree.lows[n] for n in tree.subtree(node)].count("where") == 1
    noun = place_noun(tree, node)
    if not where or noun is None or not _comma_before(tree, node):
        return False
    if any(tree.relation(n) in ("acl:relcl", "ccomp") for n in tree.subtree(node) - {node}):
        return False  # "in the bed" behind "he met a doctor, who spoke" would be where she spoke.
    placed = any(tree.lows[n] in _PLACE_CASES for n in tree.of(noun, "case"))
    return placed or (tree.lows[tree.words[noun].head] in _ATTENDED and not tree.has(noun, "case"))


def _describes_predicate(tree: Tree, noun: int, clause: int) -> bool:
    """Whether what hangs on a noun is true of the subject: "X is a town that has a harbour"."""
    described = noun if tree.relation(noun) == "xcomp" else clause
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    return not modal and (
        is_nominal_predicate(tree, noun, clause)
        and _is_indefinite(tree, described)
        and not is_negated(tree, clause)
        and tree.subject(clause) is not None
    )


def _is_participle(tree: Tree, node: int, head: int, clause: int) -> bool:
    if tree.tag(node) != "VBN" or tree.lows[node] in _NO_STATEMENT or names_nothing(tree, head):
        return False
    if tree.in_brackets(node) and tree.texts[max(tree.subtree(node))] not in (")", "]"):
        return False
    if tree.has(node, "mark", "nsubj", "aux") or _begins_relative(tree, node):
        return False
    if tree.lows[node] in NAMING and _is_indefinite(tree, head):
        return _names_one(tree, node, clause)
    if tree.relation(clause) == "acl" and _comma_before(tree, node):
        return False  # "a film based on a book, directed by Ann": either
    if (
        tree.has(clause, "cop")
        and head != clause
        and head in tree.subtree(clause)
        and head > clause
    ):
        # In "a song by the band Slade, released in 1973" it is the song.
        return is_nominal_predicate(tree, head, clause)
    return _comma_before(tree, node) or _describes_predicate(tree, head, clause)


def _names_one(tree: Tree, node: int, clause: int) -> bool:
    """Whether "called ..." names a thing that there is: not in "did not buy a boat called ..."."""
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    own = tree.subtree(node)
    another = any(tree.relation(n) == "conj" and tree.has(n, "det") for n in own)
    named = any(tree.tag(n) in NAME_TAGS for n in own)
    imagined = tree.lows[clause] in _IMAGINED
    return named and not (modal or another or imagined or is_negated(tree, clause))


def _begins_relative(tree: Tree, node: int) -> bool:
    first = min(n for n in tree.subtree(node) if tree.relation(n) != "punct" or n == node)
    return is_relative_word(tree, first)


def _is_adjective(tree: Tree, node: int, head: int, clause: int) -> bool:
    """Whether a phrase behind a comma says more of the subject: "..., capable of 200 km/h"."""
    return (
        tree.relation(node) in ("amod", "acl", "advcl", "conj")
        and tree.tag(node) == "JJ"
        and not _begins_relative(tree, node)
        and node > head
        and _comma_before(tree, node)
        and is_nominal_predicate(tree, head, clause)
        and tree.subject(clause) is not None
        and not tree.has(node, "cop", "nsubj", "cc", "mark")
    )


def _adverbial_kind(tree: Tree, node: int, clause: int) -> Kind | None:
    subject = tree.subject(clause)
    if subject is None or tree.finite(clause) is None:
        return None
    marks = [tree.lows[n] for n in tree.of(node, "mark", "advmod") if tree.tag(n) in ("IN", "WRB")]
    if _is_having(tree, node, clause):
        return "having"
    if _is_when(tree, node, clause):
        return "when"
    if tree.tag(node) == "VBN" and is_nominal_predicate(tree, clause, clause) and node > clause:
        opens = min(n for n in tree.subtree(node) if tree.relation(n) != "punct")
        own = opens == node or (tree.relation(opens) == "advmod" and tree.words[opens].head == node)
        own &= not tree.has(node, "nsubj:pass", "aux:pass")
        own &= TOGETHER.isdisjoint(tree.lows[n] for n in tree.children[node])
        return "participle" if own and _is_participle(tree, node, clause, clause) else None
    if tree.tag(node) == "VBN":
        return "opening" if _is_opening(tree, node, clause, subject) else None
    if tree.tag(node) == "VBG":
        return _gerund_kind(tree, node, clause, subject)
    if tree.subject(node) is None or tree.finite(node) is None or not marks:
        return None
    if marks == ["because"]:
        return None if is_negated(tree, clause) else "reason"
    return "contrast" if marks[0] in CONTRASTS else None


def time_before(tree: Tree, node: int) -> int | None:
    """The time that stands right before a clause: 1986 in "in 1986, when she left"."""
    index = min(tree.subtree(node)) - 1
    while index >= 0 and tree.relation(index) in ("punct", "flat"):
        index -= 1
    dated = index >= 0 and tree.tag(index) == "CD" and tree.relation(index) == "obl"
    return index if dated and len(tree.texts[index]) == 4 else None


def _is_when(tree: Tree, node: int, clause: int) -> bool:
    """Whether a clause tells more of a time: "... in 1986, when she left"."""
    marks = [n for n in tree.of(node, "mark", "advmod") if tree.lows[n] == "when"]
    finite = tree.subject(node) is not None and tree.finite(node) is not None
    told = len(marks) == 1 and finite and _comma_before(tree, node) and node > clause
    denied = is_negated(tree, clause) or is_negated(tree, node)
    return told and tree.is_past(clause) and not denied and time_before(tree, node) is not None


def _is_having(tree: Tree, node: int, clause: int) -> bool:
    """Whether a participle tells what the subject had done: "..., having founded the club"."""
    if tree.tag(node) != "VBN" or [tree.lows[n] for n in tree.of(node, "aux")] != ["having"]:
        return False
    whole = tree.has(node, "nsubj", "nsubj:pass", "aux:pass", "mark", "conj")
    denied = is_negated(tree, clause) or is_negated(tree, node)
    behind = node > clause and _comma_before(tree, node) and tree.subject(clause) is not None
    return behind and not whole and not denied


def _is_opening(tree: Tree, node: int, clause: int, subject: int) -> bool:
    questions = any(tree.tag(n) == "WRB" for n in tree.children[node])
    if is_condition(tree, node, clause):
        return False
    own = tree.has(node, "mark", "nsubj", "nsubj:pass", "aux", "aux:pass")
    there = tree.tag(subject) == "EX"
    return node < subject and not (questions or own or there or tree.lows[node] in _NO_STATEMENT)


def is_condition(tree: Tree, node: int, clause: int) -> bool:
    """Whether an opening participle says when a clause holds: "Taken with food, it may help".

    One with a date is a fact: "Founded in 1867, the company may be sold".
    """
    if any(tree.lows[n] == "once" for n in tree.children[node]):
        return True
    if has_number(tree, tree.subtree(node)):
        return False
    modal = any(tree.tag(n) == "MD" for n in tree.auxiliaries(clause))
    return modal or (tree.lows[node] in _TREATED and not tree.is_past(clause))


def _gerund_kind(tree: Tree, node: int, clause: int, subject: int) -> Kind | None:
    """What a gerund is whose subject is that of the clause, and which tells what happened."""
    if made_of_subject(tree, node, clause) is not None:
        return "making"
    if is_negated(tree, node) or any(tree.lows[n] in _MADE for n in tree.of(node, "obj", "iobj")):
        return None
    gerunds = [node, *(n for n in tree.conjuncts(node) if tree.tag(n) == "VBG")]
    if not all(tree.lows[n] in PAST_OF_GERUND for n in gerunds):
        return None
    if tree.has(node, "nsubj", "nsubj:pass", "aux"):
        return None
    if not tree.is_past(clause) or is_negated(tree, clause):
        return None
    marks = [tree.lows[n] for n in tree.of(node, "mark")]
    if not marks:
        return "gerund" if node > clause and _comma_before(tree, node) else None
    if marks not in (["before"], ["after"]):
        return None
    if node > clause:
        return "gerund"
    return "after" if marks == ["after"] and node < subject else None


def made_of_subject(tree: Tree, node: int, clause: int) -> int | None:
    """What the subject is in "..., making it the largest port"; None where it may be another.

    The pronoun must agree with the subject, and with no object or owner in the clause.
    """
    pronouns = [n for n in tree.of(node, "obj", "iobj") if tree.lows[n] in _MADE]
    subject = tree.subject(clause)
    if tree.lows[node] != "making" or len(pronouns) != 1 or subject is None:
        return None
    what = [n for n in tree.of(node, "xcomp", "obj") if n > pronouns[0]]
    whole = is_negated(tree, clause) or tree.has(node, "advmod", "mark", "conj", "advcl")
    if len(what) != 1 or tree.tag(what[0]) not in (*NOUN_TAGS, "CD") or whole:
        return None
    others = tree.of(clause, "obj", "iobj", "obl:agent")
    others += [n for noun in (subject, *others) for n in tree.of(noun, "nmod:poss")]
    pronoun = tree.lows[pronouns[0]]
    if not _agrees(tree, subject, pronoun) or any(_agrees(tree, n, pronoun) for n in others):
        return None
    return what[0] if node > clause and _comma_before(tree, node) else None


_MADE: Final = word_set("him her it them")


def _agrees(tree: Tree, noun: int, pronoun: str) -> bool:
    """Whether a pronoun may stand for a noun or a pronoun."""
    low, tag = tree.lows[noun], tree.tag(noun)
    person = is_person_noun(low) or low in ("he", "she", "his", "her")
    plural = tag in ("NNS", "NNPS") or low in ("they", "their") or tree.has(noun, "conj")
    if pronoun == "them":
        return plural
    if pronoun == "it":
        return not (plural or person) and low not in ("i", "you", "we", "my", "your", "our")
    if low in ("he", "his", "she", "her"):
        return (low in ("he", "his")) == (pronoun == "him")
    return not plural and (person or tag == "NNP")


# Which noun a relative clause is about.


def place_noun(tree: Tree, node: int) -> int | None:
    """The place before ", where": the university in "at the University of Leeds, where"."""
    noun = nearest_noun(tree, node)
    while noun is not None and [tree.lows[n] for n in tree.of(noun, "case")] == ["of"]:
        above = tree.words[noun].head
        noun = above if above >= 0 and tree.tag(above) in NOUN_TAGS else None
    return noun


def nearest_noun(tree: Tree, node: int) -> int | None:
    """The head of the noun phrase that ends right before a clause; None for another word."""
    index = min(tree.subtree(node)) - 1
    while index >= 0 and tree.relation(index) == "punct":
        index -= 1
    if index < 0 or tree.tag(index) not in NOUN_TAGS:
        return None
    while tree.relation(index) in ("compound", "flat", "appos"):
        above = tree.words[index].head
        if tree.tag(above) not in NOUN_TAGS:
            break
        index = above
    return index


def noun_phrase(tree: Tree, noun: int, part: int) -> list[int]:
    """The words of a noun phrase, without what tells more of its noun, such as `part`."""
    left_out: set[int] = set()
    for child in tree.children[noun]:
        if child == part or child > part > noun or not _belongs(tree, noun, child):
            left_out |= tree.subtree(child)
    return tree.tidied(tree.subtree(noun) - left_out)


_OUTSIDE: Final = frozenset(
    {
        *("acl:relcl", "acl", "case", "cc", "conj", "cop", "nsubj", "nsubj:pass", "advmod"),
        *("advcl", "parataxis", "aux", "mark", "obl", "cc:preconj"),
    }
)


def _belongs(tree: Tree, noun: int, child: int) -> bool:
    if tree.relation(child) == "appos":  # "the company Mey Eden", but not "Ann, a poet"
        return not any(tree.texts[n] in (",", "(") for n in range(noun + 1, child))
    if tree.in_brackets(child):
        return False
    if tree.relation(child) == "cc":  # "the Aeronautics and Space Administration"
        return child < noun and tree.tag(noun) in NAME_TAGS
    if tree.relation(child) == "acl" and tree.lows[child] in NAMING:
        return True  # "molecules called nucleotides"
    return tree.relation(child) not in _OUTSIDE and tree.texts[child] not in (",", ".", ";", ":")


def has_number(tree: Tree, indices: Collection[int]) -> bool:
    """Whether one of the words has a digit."""
    return any(character.isdigit() for index in indices for character in tree.texts[index])
