"""One statement for each member of a coordination."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.adjectives import modified, modified_noun
from claimflow.stages.claim_rules.detached import (
    are_joined,
    is_alternative,
    is_negated,
    names_nothing,
    stands_behind,
)
from claimflow.stages.claim_rules.lexicon import (
    COLOURS,
    FIXED_PAIRS,
    MIXED,
    TOGETHER,
    indefinite_article,
    is_person_noun,
)
from claimflow.stages.claim_rules.trees import (
    NAME_TAGS,
    NOUN_TAGS,
    OBJECTS,
    Piece,
    Pieces,
    Tree,
    added,
    again,
    joined,
    trimmed,
)
from claimflow.stages.text.word_lists import word_set

QUANTITIES: Final = word_set("various several numerous many other certain different")
_UNITS: Final = word_set(
    """kg kilogram kilograms g gram grams m metre metres meter meters km kilometre kilometres
    kilometer kilometers cm mm feet foot inch inches mile miles pound pounds ounce ounces dollar
    dollars euro euros cent cents pence year years month months week weeks day days hour hours
    minute minutes second seconds point points percent degree degrees"""
)
"""Of "3 kg and 200 g" neither is claimed."""
_GAPPED_CASES: Final = frozenset({"as", "for", "to", "by", "with", "from"})
"""Prepositions that stand twice where a verb is not said: "as Duke and his wife as Duchess"."""
_INSTITUTIONS: Final = word_set(
    """centre center museum institute department committee commission council agency authority
    association society foundation board bureau office service company corporation university
    college school act festival fund"""
)
"""Last words of names that may hold an "and"."""
_REPORTS: Final = word_set(
    """say says said state states stated report reports reported note notes noted argue argues
    argued mention mentions mentioned indicate indicates indicated claim claims claimed
    explain explains explained announce announces announced show shows showed find finds
    found confirm confirms confirmed add adds added write writes wrote"""
)
"""Verbs that with "that A and B" tell each of both."""
_AT_LAST: Final = frozenset({"finally", "lastly"})
_FIRMS: Final = word_set("sons son co company brothers bros partners associates daughters")
"""Last words of names of firms: "Blake and Sons"."""
_LIMITS: Final = word_set("only just solely mostly mainly primarily exclusively as so too not")
"""Adverbs that hold for all members behind them together, or for none."""


class Coordination(NamedTuple):
    """The words that "and" joins: the first one, and the others in the order of the text."""

    head: int
    others: list[int]


def members(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """A statement for each member of the longest coordination of nouns, adjectives or infinitives.

    Other coordinations stay whole, so that no statement joins members at random.
    """
    here = tree.here(pieces)
    found = [
        one
        for head in _coordination_heads(tree, predicate, here)
        if (one := _coordination(tree, predicate, head, here)) is not None
    ]
    if not found:
        noun = modified_noun(tree, predicate, here)
        return [pieces] if noun is None else modified(tree, noun, pieces)
    longest = max(found, key=lambda one: len(one.others))
    each = _each_member(tree, predicate, longest, pieces, here)
    if not tree.is_verb(longest.head) or len(each) != len(longest.others) + 1:
        return each
    return [
        inner
        for member, statement in zip((longest.head, *longest.others), each, strict=True)
        for inner in _within_verb(tree, predicate, member, statement)
    ]


def _within_verb(tree: Tree, predicate: int, verb: int, pieces: Pieces) -> list[Pieces]:
    """A statement for each member of a coordination that one of several infinitives governs.

    "to make bags and shoes" in "works to make bags and shoes, and to sell them".
    """
    here = tree.here(pieces)
    heads = [n for n in tree.of(verb, "obj", "obl") if n in here and n > verb]
    heads += [n for one in heads for n in tree.of(one, "nmod") if n in here and n > one]
    found = [one for n in heads if (one := _coordination(tree, predicate, n, here)) is not None]
    # ", and" before the second of two begins something else.
    found = [
        one
        for one in found
        if len(one.others) > 1 or not stands_behind(tree, one.others[0], (",",))
    ]
    if not found:
        return [pieces]
    return _each_member(tree, predicate, max(found, key=lambda one: len(one.others)), pieces, here)


def _coordination_heads(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The words whose coordination divides the statement, from the predicate outwards."""

    def behind(index: int, *relations: str) -> list[int]:
        return [n for n in tree.of(index, *relations) if n in here and n > index]

    heads = [predicate] if tree.says_what_is(predicate) else []
    heads += behind(predicate, *OBJECTS, "xcomp")
    heads += [n for n in behind(predicate, "advcl", "csubj") if _takes_verb(tree, predicate, n)]
    for said in filter(partial(_is_reported, tree, predicate), behind(predicate, "ccomp")):
        heads += behind(said, *OBJECTS, "xcomp")
        heads += [n for n in behind(said, "advcl", "csubj") if _takes_verb(tree, said, n)]
    for index in list(heads):
        if tree.is_verb(index) and index != predicate:
            heads += behind(index, "obj", "obl")
    for index in list(heads):
        for clause in tree.of(index, "acl"):
            if tree.tag(clause) in ("VBN", "VBG") and not is_negated(tree, clause):
                heads += behind(clause, "obl", "obj")
    for index in list(heads):
        if tree.tag(index) in ("NN", "NNS") and tree.lows[index] not in MIXED:
            heads += behind(index, "nmod")
    return heads


def _is_reported(tree: Tree, predicate: int, said: int) -> bool:
    """Whether each part of a clause is said: "says that it has parks and zoos"."""
    subject = tree.subject(said)
    if tree.lows[predicate] not in _REPORTS or subject is None:
        return False
    return not (is_negated(tree, said) or names_nothing(tree, subject))


def _takes_verb(tree: Tree, predicate: int, index: int) -> bool:
    """Whether a clause belongs to its predicate: "advertise to sell", "known for driving"."""
    marks = [tree.lows[n] for n in tree.of(index, "mark")]
    if tree.tag(index) == "VB":
        return marks == ["to"]
    if tree.tag(index) != "VBG":
        return False
    if not marks:
        return tree.relation(index) == "csubj"  # "involves asking and answering"
    governed = marks in (["in"], ["for"], ["by"], ["of"], ["at"])
    return marks == ["on"] or (governed and tree.tag(predicate) in ("JJ", "VBN"))


def _coordination(
    tree: Tree, predicate: int, head: int, here: frozenset[int]
) -> Coordination | None:
    """The coordination of a word, if each of its members is claimed."""
    others = [n for n in tree.conjuncts(head) if n in here]
    others = [n for n in others if not is_alternative(tree, n, others)]
    if any(tree.subject(n) is not None for n in others):
        return None  # "films, TV series and stage plays", with "plays" taken for a verb
    whole = not all(tree.is_both(n) for n in tree.of(head, "cc:preconj"))
    chosen = _are_choices(tree, predicate, head, others)
    if (
        whole
        or not others
        or not all(
            (are_joined(tree, head, n) or chosen)
            and stands_behind(tree, n, (",", "and", "&", "but", ";", "or"))
            for n in others
        )
    ):
        return None
    if _say_one_thing(tree, predicate, head, others) or _are_fixed(tree, predicate, head, others):
        return None
    if head == predicate and _are_all(tree, predicate, others):
        return None
    at_last = any(tree.lows[n] in _AT_LAST for m in others for n in tree.of(m, "advmod"))
    if at_last or not all(tree.is_contiguous(n) for n in others):
        return None
    if _is_gapped(tree, head, others) or _has_consequence(tree, predicate, others, here):
        return None
    adjunct = head != predicate and tree.relation(head) in ("nmod", "obl")
    if adjunct and tree.case(head) in ("", "including", "such as", "except", "except on"):
        return None  # Its preposition was taken for another word's; or these are examples.
    if not _are_alike(tree, predicate, [head, *others]):
        return None
    return Coordination(head, sorted(others))


def _are_all(tree: Tree, predicate: int, others: Sequence[int]) -> bool:
    """Whether names are together what a subject is: "The authors are Ann Lee and Bo Lind".

    Or whether a second subject is among them: "Its capital is Rome and its largest city Oslo".
    """
    subject = tree.subject(predicate)
    if subject is None:
        return False
    owners = {tree.lows[n] for n in tree.of(subject, "nmod:poss")}
    apart = any(tree.lows[n] in owners for m in others for n in tree.of(m, "nmod:poss"))
    definite = bool(owners) or "the" in {tree.lows[n] for n in tree.of(subject, "det")}
    names = tree.tag(predicate) in NAME_TAGS
    return apart or (names and definite and tree.tag(subject) == "NNS")


def _are_choices(tree: Tree, predicate: int, head: int, others: Sequence[int]) -> bool:
    """Whether each of the members joined by "or" is possible: "can be paid in cash or by card"."""
    links = [tree.lows[cc] for n in others for cc in tree.of(n, "cc")]
    can = any(tree.lows[n] == "can" for n in tree.of(predicate, "aux"))
    governed = tree.relation(head) in (*OBJECTS, "xcomp", "advcl")
    governed &= not stands_behind(tree, head, (",",))  # "in cash, by card or by phone"
    return links == ["or"] and tree.has(others[-1], "cc") and can and governed


def _say_one_thing(tree: Tree, predicate: int, head: int, others: Sequence[int]) -> bool:
    """Whether members are not claimed one by one, or some may belong to another word."""
    around = tree.subtree(head) | set(tree.children[predicate])
    if any(tree.lows[n] in TOGETHER for n in around) or _has_pairs(tree, others):
        return True
    if any(tree.lows[n] == "both" and not tree.is_both(n) for n in around):
        return True
    above = tree.words[head].head
    if head != predicate and above >= 0 and tree.lows[above] in MIXED:
        return True
    if tree.relation(head) == "nmod" and tree.tag(above) in NAME_TAGS:
        return True  # "the Pools of Light and Dark Glory"
    if _has_clause_between(tree, head, others) or ";" in tree.texts[head : max(others)]:
        return True  # "Ann on drums; Bo on bass"
    if tree.in_brackets(head) or _is_crossed(tree, head, min(others)):
        return True
    if any(_is_name_of_one(tree, head, n) or _titles_one(tree, head, n) for n in others):
        return True
    # "a professor of law and judge" is a judge
    roles = [n for n in others if tree.tag(n) == "NN" and not tree.has(n, "det")]
    inner = tree.relation(head) == "nmod" and not is_person_noun(tree.lows[head])
    if inner and any(is_person_noun(tree.lows[n]) for n in roles):
        return True
    # "his status as a hero and focus on war": his focus
    bare = any(not tree.has(n, "det", "nmod:poss", "case") for n in others)
    return bare and tree.relation(head) == "nmod" and _has_article(tree, head)


def _has_pairs(tree: Tree, others: Sequence[int]) -> bool:
    """Whether members of a list hold "and": "Romeo and Juliet, War and Peace, and Emma"."""
    linked = [tree.has(n, "cc") for n in others]
    return sum(linked) > 1 and not all(linked)


def _has_consequence(
    tree: Tree, predicate: int, others: Sequence[int], here: frozenset[int]
) -> bool:
    """Whether what follows is true of all members: "contains copper and zinc, making it brass"."""
    clauses = tree.of(predicate, "advcl")
    return any(n > max(others) and n in here and tree.tag(n) == "VBG" for n in clauses)


def _is_name_of_one(tree: Tree, head: int, member: int) -> bool:
    """Whether the words of one name are taken for two members.

    "The Exhibition and Convention Centre"; "Minister of Economy and Production".
    """
    if tree.has(member, "det", "nmod:poss", "case", "conj") or not tree.texts[member].istitle():
        return False
    if tree.lows[member] in _FIRMS:
        return True
    before = min(tree.subtree(member)) - 1
    named = tree.tag(before) in NAME_TAGS and "the" in tree.lows[max(0, before - 5) : before]
    if named and tree.lows[member] in _INSTITUTIONS and tree.lows[before] not in _INSTITUTIONS:
        return True
    office = is_person_noun(tree.lows[head]) and not is_person_noun(tree.lows[member])
    return office and any(
        head < n < member and tree.case(n) == "of" and tree.texts[n].istitle()
        for n in tree.of(head, "nmod")
    )


def _titles_one(tree: Tree, head: int, member: int) -> bool:
    """Whether both nouns belong to one name: "by Irish actor and singer Ann Lee"."""
    bare = not tree.has(head, "det", "nmod:poss", "nummod") and tree.tag(head) == "NN"
    own = sorted(tree.subtree(member) - set(tree.of(member, "cc", "punct")))
    named = any(tree.tag(n) in NAME_TAGS and is_person_noun(tree.lows[n - 1]) for n in own)
    persons = is_person_noun(tree.lows[head]) and named
    return persons and bare and tree.relation(head) in ("obl", "obl:agent", "obj", "nmod")


def _are_fixed(tree: Tree, predicate: int, head: int, others: Sequence[int]) -> bool:
    """Whether members are one thing by their words: "gin and tonic", "red and white"."""
    members = [head, *others]
    lows = [tree.lows[n] for n in members]
    if any(pair in FIXED_PAIRS for pair in pairwise(lows)) or set(lows) & COLOURS:
        return True
    limited = any(tree.lows[n] in _LIMITS for m in members for n in tree.of(m, "advmod"))
    copula = tree.relation(head) == "xcomp" and tree.has(head, "cop")
    subject = tree.subject(predicate)
    # "The victims were men and women"
    plural = head == predicate and tree.tag(head) == "NNS" and not tree.has(head, "det")
    plural &= subject is not None and tree.tag(subject) == "NNS"
    above = tree.words[head].head
    gerund = above >= 0 and tree.tag(above) == "VBG"
    # "writing novels and directing films", with films taken for a second object
    lost = gerund and any(
        tree.tag(c) == "VBG" for n in others for c in tree.of(n, "amod", "compound")
    )
    return limited or copula or plural or lost


def _is_gapped(tree: Tree, head: int, others: Sequence[int]) -> bool:
    """Whether a member has a verb that is not said: "known as Duke and his wife as Duchess"."""
    case, above = tree.case(head), tree.words[head].head
    if case not in _GAPPED_CASES or above < 0:
        return False
    return any(
        n > other and tree.case(n) == case
        for other in others
        if not tree.has(other, "case")
        for n in (*tree.of(other, "nmod"), *tree.of(above, "obl"))
    )


def _is_crossed(tree: Tree, head: int, second: int) -> bool:
    """Whether a coordination within the first member goes on behind the second."""
    return any(
        tree.relation(n) == "conj" and head < tree.words[n].head < second < n
        for n in tree.subtree(head)
    )


def _has_article(tree: Tree, noun: int) -> bool:
    return any(tree.lows[n] in ("a", "an") for n in tree.of(noun, "det"))


def _has_clause_between(tree: Tree, head: int, others: Sequence[int]) -> bool:
    """Whether a member may belong to a clause before it: "a rate applying to gains and rents".

    "to" shows that a member does not belong to a clause without an infinitive.
    """
    marked = all(tree.tag(n) == "VB" and tree.has(n, "mark") for n in (head, *others))
    clauses = [
        n
        for n in tree.subtree(head)
        if n > head and tree.relation(n) in ("acl", "acl:relcl", "advcl")
        if not marked or any(tree.tag(inner) == "VB" for inner in tree.subtree(n))
    ]
    return any(n < member for n in clauses for member in others)


def _are_alike(tree: Tree, predicate: int, members: Sequence[int]) -> bool:
    head = members[0]
    tags = {tree.tag(n) for n in members}
    if tags <= {"JJ", "JJR", "JJS", "VBN", "VBG"} and head == predicate:
        return True
    if tree.relation(head) in ("xcomp", "advcl", "csubj") and tags in ({"VB"}, {"VBG"}):
        return True
    if not (tags <= {"NN", "NNS", *NAME_TAGS} or tags <= {"NNS", "CD"}):
        return False
    if head == predicate:
        return True
    if any(tree.lows[n] in _UNITS and tree.has(n, "nummod") for n in members):
        return False
    if _belongs_to_another(tree, members):
        return False
    counted = [tree.has(n, "nummod") for n in members]
    if counted[0] and not all(counted):
        return False  # "two sons, Ann and Bo" are not two sons each
    if not tags <= NAME_TAGS or len(members) > 2:
        return True
    # "Romeo and Juliet" may be one name.
    named = tree.has(members[1], "det", "nmod:poss", "case")
    return named or _are_persons(tree, predicate, members)


def _belongs_to_another(tree: Tree, members: Sequence[int]) -> bool:
    """Whether a noun behind a name is coordinated with a word before it.

    "a professor at Yale and a judge"; "with its start in Rome and its end in Ostia".
    """
    head = members[0]
    if tree.tag(head) in NAME_TAGS and any(_has_article(tree, n) for n in members[1:]):
        return True
    above = {tree.lows[n] for n in tree.of(tree.words[head].head, "nmod:poss")}
    owners = {tree.lows[n] for m in members[1:] for n in tree.of(m, "nmod:poss")}
    return tree.relation(head) == "nmod" and bool(above & owners)


def _are_persons(tree: Tree, predicate: int, members: Sequence[int]) -> bool:
    """Whether two names are those of two persons: "written by Ann Lee and Bo Lind".

    Not in "by physicists Ann Lee and Bo Lind", nor where another adjunct follows, such as a date.
    """
    head = members[0]
    agent = tree.relation(head) == "obl:agent" and tree.tag(head - 1) == "IN"
    alone = not tree.has(predicate, "obl", "obl:unmarked", "advcl", "parataxis", "conj")
    return agent and alone and all(tree.has(n, "flat") for n in members)


def phrase_of(tree: Tree, predicate: int, head: int, here: frozenset[int]) -> frozenset[int]:
    """The words of a coordinated phrase: of a predicate noun those behind its copula."""
    if head != predicate:
        return tree.subtree(head) & here
    start = max([-1, *tree.of(head, "cop", "aux", "nsubj", "nsubj:pass")])
    clausal = ("nsubj", "nsubj:pass", "csubj", "expl", "cop", "aux", "punct", "mark", "parataxis")
    parts = [
        n for n in tree.children[head]
        if n > start and tree.relation(n) not in (*clausal, "advcl")
    ]  # fmt: skip
    return (tree.subtrees(parts) | {head}) & here


def _each_member(
    tree: Tree, predicate: int, found: Coordination, pieces: Pieces, here: frozenset[int]
) -> list[Pieces]:
    head, others = found
    phrase = phrase_of(tree, predicate, head, here)
    places = tree.places(pieces, phrase)
    if not places:
        return [pieces]
    first, last = places[0], places[-1]
    inside = set(places)
    if any(n not in inside for n in range(first, tree.places(pieces, frozenset({head}))[0])):
        return [pieces]
    # "in 2000" in "into A in 2000 and B in 2003" belongs to the first member.
    between = trimmed(pieces[n] for n in range(first, last) if n not in inside)
    before, after = pieces[:first], pieces[last + 1 :]
    own = phrase - tree.subtrees(others) - set(tree.of(head, "cc:preconj"))
    if any(n > others[-1] and n in here for n in tree.of(head, "appos", "acl:relcl")):
        return [pieces]
    begin = min(min(tree.subtree(n)) for n in others)
    if any(begin < n < others[-1] and tree.relation(n) not in ("punct", "cc") for n in own):
        return [pieces]  # "for food and drink, for roads and in processes"
    tail = tree.tidied(n for n in own if n > others[-1])
    statements_of: list[Pieces] = []
    for member in (head, *others):
        is_first, is_last = member == head, member == others[-1]
        if is_first:
            words = tree.tidied(n for n in own if n < begin and not _is_link(tree, n, found))
            core = joined(tree.pieces(words), between)
        else:
            core = other_member(tree, found, member, here, joins=bool(before))
        # "fraud and breach of contract" is no fraud of contract
        bare = tree.tag(head) == "NN" and not tree.has(head, "det", "nmod:poss", "amod")
        whose = [] if bare and not is_last and head != predicate else tail
        shared = tree.pieces(whose or _shared_tail(tree, found, member), again=not is_last)
        opening = before if is_first else again(before)
        closing = after if is_last else again(after)
        statement = [*joined(opening, core), *joined(core, shared)[len(core) :], *closing]
        if head == predicate and tree.says_what_is(predicate):
            statements_of += modified(tree, member, statement)
        else:
            statements_of.append(statement)
    return statements_of


def _is_link(tree: Tree, index: int, found: Coordination) -> bool:
    return tree.relation(index) == "cc" and tree.words[index].head in (found.head, *found.others)


def other_member(
    tree: Tree, found: Coordination, member: int, here: frozenset[int], *, joins: bool
) -> Pieces:
    """A member that is not the first, with the article, preposition or "to" of the first."""
    head, others = found
    own = tree.subtree(member) & here
    for other in others:
        if other != member and other in own:
            own -= tree.subtree(other)
    links = {
        n for n in tree.children[member]
        if tree.relation(n) == "cc" or tree.texts[n] in (",", ";")
    }  # fmt: skip
    words = tree.tidied(own - links)
    if not words:
        return []
    core = tree.pieces(words)
    if article := _shared_article(tree, head, member, tree.texts[words[0]]):
        core = joined([article], core)
    elif owner := _shared_owner(tree, head, member):
        core = joined(tree.pieces(owner, again=True), core)
    if tree.tag(member) == "NNS" and not tree.has(member, "det", "amod", "nummod", "nmod:poss"):
        # "various papers and magazines": various magazines
        several = [n for n in tree.of(head, "amod") if tree.lows[n] in QUANTITIES]
        core = joined(tree.pieces(several, again=True), core)
    if not tree.has(member, "case", "mark"):
        markers = tree.of(head, "case")
        if tree.tag(member) in ("VB", "VBG"):
            markers += tree.of(head, "mark")
        core = joined(tree.pieces(sorted(tree.subtrees(markers)), again=True), core)
    return [core[0]._replace(spaced=True), *core[1:]] if joins else core


def _shared_article(tree: Tree, head: int, member: int, first: str) -> Piece | None:
    articles = [tree.lows[n] for n in tree.of(head, "det") if tree.lows[n] in ("a", "an", "the")]
    if not articles or tree.has(member, "det", "nmod:poss", "case"):
        return None
    if articles[0] == "the":
        bare = not tree.has(member, "amod", "compound")
        return added("the", "DT") if bare and tree.tag(member) in ("NN", "NNS", "CD") else None
    singular = tree.tag(member) in ("NN", "NNP")
    return added(indefinite_article(first), "DT") if singular else None


def _shared_owner(tree: Tree, head: int, member: int) -> list[int]:
    """ "the singer's" in "the singer's looks and voice", for the voice."""
    owners = [n for n in tree.of(head, "nmod:poss") if tree.tag(n) in (*NOUN_TAGS, "PRP$")]
    own = tree.has(member, "det", "nmod:poss", "case", "nummod")
    own |= tree.texts[min(tree.subtree(member) - set(tree.of(member, "cc", "punct")))][0].isupper()
    if own or len(owners) != 1 or tree.tag(member) in NAME_TAGS or tree.tag(head) in NAME_TAGS:
        return []
    return sorted(tree.subtree(owners[0]))


def _shared_tail(tree: Tree, found: Coordination, member: int) -> list[int]:
    """ "of the board" in "the chairman and head of the board", for the chairman."""
    head, last = found.head, found.others[-1]
    the = [tree.lows[n] for n in tree.of(head, "det")] == ["the"]
    if member == last or not the or tree.has(member, "nmod"):
        return []
    if any(tree.has(n, "det", "nmod:poss", "amod") for n in found.others):
        return []
    tails = [
        n for n in tree.of(last, "nmod")
        if n > last and [tree.lows[c] for c in tree.of(n, "case")] == ["of"]
    ]  # fmt: skip
    return tree.tidied(tree.subtrees(tails))
