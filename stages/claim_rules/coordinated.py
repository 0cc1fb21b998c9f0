"""One statement for each member of a coordination, each example and each adjunct."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.detached import (
    NAMING,
    are_joined,
    is_negated,
    names_nothing,
    stands_behind,
)
from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    FIXED_PAIRS,
    INTRANSITIVE,
    indefinite_article,
    is_person_noun,
)
from claimflow.stages.claim_rules.trees import (
    NAME_TAGS,
    Piece,
    Pieces,
    Tree,
    added,
    again,
    joined,
    trimmed,
)
from claimflow.stages.text.word_lists import word_set

_OBJECTS: Final = ("obj", "obl", "obl:agent")
_TOGETHER: Final = word_set(
    "between together jointly collectively combined respectively among alike"
)
"""With these words a coordination says something of its members together."""
_RECIPROCAL: Final = word_set(
    """met meet married marry divorced differ differed similar different equal separated merged
    joined combined agree agreed compared mixed separate separates distinguish distinguishes
    exchange exchanges exchanged alternate alternates balance balances balanced compare compares
    combine combines mix mixes match matches consist consists consisted consisting compose composed
    comprise comprises comprised"""
)
_NOTHING: Final = word_set("no few hardly any little without every each neither")
_OPPOSED: Final = word_set("equal opposite half different similar")
_PAIRS: Final = frozenset({"both", "either", "neither"})
_MIXED: Final = word_set(
    """mix mixture mixtures combination combinations relationship relationships relations war wars
    conflict difference differences comparison union merger merging pair range variety set series
    blend group sum ratio balance collaboration tension border distance number total majority
    percent average match marriage partnership alliance treaty rivalry friendship similarity
    similarities interaction interactions link links connection"""
)
"""Nouns that the members behind them make up together."""
_COUNTED: Final = word_set("few only last first several")
_SEVERAL: Final = word_set("number variety range series string lot list host")
"""In "a number of towns, including Rome" it is the towns of which Rome is an example."""
_SHARES: Final = word_set(
    """half most majority third thirds quarter quarters percent rest proportion share part"""
)
_UNITS: Final = word_set(
    """kg kilogram kilograms g gram grams m metre metres meter meters km kilometre kilometres
    kilometer kilometers cm mm feet foot inch inches mile miles pound pounds ounce ounces dollar
    dollars euro euros cent cents pence year years month months week weeks day days hour hours
    minute minutes second seconds point points percent degree degrees"""
)
"""Of "3 kg and 200 g" neither is claimed."""
_LIMITS: Final = word_set("only just solely mostly mainly primarily exclusively as so too not")
"""Adverbs that hold for all members behind them together, or for none."""
_REFUSALS: Final = word_set(
    """ban bans banned prohibit prohibits prohibited forbid forbids forbade forbidden eliminate
    eliminates eliminated reject rejects rejected exclude excludes excluded remove removes removed
    oppose opposes opposed"""
)
"""Verbs of which an object with two adjectives need not have each of them."""
_COLOURS: Final = word_set(
    "black white red blue green yellow brown grey gray gold golden silver orange purple pink"
)
_SCOPED: Final = word_set(
    "only mostly mainly primarily exclusively first last most least best more less rather twice"
)
"""Adverbs whose meaning depends on all that follows."""

_ADJUNCTS: Final = word_set(
    """in at on near as with by under alongside during for against after before throughout within
    across"""
)
_TIME_CASES: Final = frozenset({"", "in", "on", "during", "at", "since", "throughout", "by"})
_FIXED_CASES: Final = word_set("between than until till")
"""Cases with which an adjunct belongs to another: "until 1995"."""
_MOTION: Final = word_set(
    """moved relocated returned travelled traveled emigrated immigrated transferred promoted
    inducted admitted exported deported exiled"""
)
"""Verbs whose "to" or "into" can be stated apart from the time."""
_WITH_ARGUMENT: Final = word_set(
    """put placed based divided split compared associated replaced provided filled equipped known
    regarded considered described used referred defined classified depends depend focused focuses
    consists rose fell increased decreased turned ask asks asked look looks looked wait waits waited
    search searched apply applies applied pay pays paid account accounts accounted"""
)
"""Verbs that say little without the phrase that follows."""
_TIME: Final = re.compile(
    r"""(?:\d{3,4}s?|january|february|march|april|may|june|july|august|september|october|november
    |december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|years?|months?|days?
    |century|decades?|weeks?|morning|night|season|age)""",
    re.VERBOSE,
)
_CLAUSE_TAGS: Final = frozenset({"VBD", "VBZ", "VBP", "VBG", "VBN"})
_LATEST: Final = word_set("earliest latest least most")
_MOST_ADJUNCTS: Final = 4


# Predicates.


def predicates(tree: Tree, clause: int, own: frozenset[int]) -> list[int]:
    """The predicate of a clause and those coordinated with it that share its subject.

    The first alone where it is not certain that each of them is claimed.
    """
    found = [index for index in tree.conjuncts(clause) if index in own]
    contrasted = all({tree.lows[cc] for cc in tree.of(n, "cc")} == {"but"} for n in found)
    if not found or (is_negated(tree, clause) and not contrasted):
        return [clause]
    if any(tree.lows[n] in _PAIRS and not _is_both(tree, n) for n in tree.children[clause]):
        return [clause]
    subject = tree.subject(clause)
    if subject is not None and names_nothing(tree, subject):
        return [clause]
    if all(_shares_subject(tree, clause, index) for index in found):
        return [clause, *sorted(found)]
    return [clause]


def _shares_subject(tree: Tree, clause: int, member: int) -> bool:
    if not are_joined(tree, clause, member) or tree.subject(member) is not None:
        return False
    if not tree.is_contiguous(member):
        return False
    if not tree.is_predicate(member) or not tree.is_predicate(clause):
        return False
    if tree.auxiliaries(member):
        return True
    # A participle is one of a passive, by the auxiliary or copula of the first, or a past form.
    return tree.tag(member) not in ("VB", "VBG") or tree.has(clause, "aux")


class Predicate(NamedTuple):
    """One of the predicates of a clause: its words, and those of the last one that it shares."""

    head: int
    words: Collection[int]
    shared: Sequence[int]


def divided(tree: Tree, chain: Sequence[int], own: frozenset[int]) -> list[Predicate]:
    """The words of each of the predicates in `chain`.

    What stands behind the last one and hangs on an earlier one is taken for its own; a transitive
    verb without an object shares that of the last: "designed and built a bicycle".
    """
    members = [set(tree.subtree(index) & own) for index in chain]
    for place, index in enumerate(chain):
        for other in chain:
            if other != index and other in tree.subtree(index):
                members[place] -= tree.subtree(other)
    behind = {n for words in members[:-1] for n in words if n > chain[-1]}
    members = [words - behind for words in members[:-1]] + [members[-1] | behind]
    tail = [
        n for n in members[-1]
        if n > chain[-1] and tree.words[n].head in chain and tree.relation(n) not in ("cc", "punct")
    ]  # fmt: skip
    last = sorted(tree.subtrees(tail) & members[-1])
    transitive = any(tree.relation(n) in _OBJECTS for n in tail) and tree.is_verb(chain[-1])
    bare = [_is_bare(tree, one, other) for one, other in pairwise(chain)]
    found = []
    for place, index in enumerate(chain):
        own_words = {
            n
            for n in members[place]
            if not (tree.relation(n) in ("cc", "cc:preconj") and tree.words[n].head in chain)
        }
        # "wrote, cut and sold the film", but not "broken, mended in May and sold in June"
        lends = place < len(bare) and all(bare[place:]) and transitive and tree.is_verb(index)
        shares = lends and tree.lows[index] not in INTRANSITIVE
        found.append(Predicate(index, own_words, tree.tidied(last) if shares else []))
    return found


def _is_bare(tree: Tree, index: int, following: int) -> bool:
    """Whether nothing that a predicate governs stands between it and the following one."""
    return not any(
        index < n < following and tree.relation(n) not in ("cc", "punct")
        for n in tree.children[index]
    )


# One predicate.


def statements(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """The statements of one predicate with its subject: for each example, member and adjunct."""
    if is_negated(tree, predicate) or tree.lows[predicate] in NAMING:
        return [pieces]
    subject = tree.subject(predicate)
    if subject is not None and (names_nothing(tree, subject) or _is_share(tree, subject)):
        return [pieces]
    if _is_reciprocal(tree, predicate):
        return _adjuncts(tree, predicate, pieces)
    return [
        statement
        for example in _examples(tree, predicate, pieces)
        for member in _members(tree, predicate, example)
        for place in _places_of_predicate(tree, predicate, member)
        for statement in _adjuncts(tree, predicate, place)
    ]


def _is_share(tree: Tree, subject: int) -> bool:
    """Whether a subject is a part of several: "half of them are doctors and nurses"."""
    return tree.lows[subject] in _SHARES or tree.texts[subject].endswith("%")


def _is_reciprocal(tree: Tree, predicate: int) -> bool:
    lows = [tree.lows[index] for index in sorted(tree.subtree(predicate))]
    each_other = any(a in ("each", "one") and b in ("other", "another") for a, b in pairwise(lows))
    return each_other or tree.lows[predicate] in _RECIPROCAL


def _names(tree: Tree, predicate: int) -> bool:
    """Whether a predicate says what its subject is."""
    return tree.has(predicate, "cop") or tree.relation(predicate) == "appos"


def _here(tree: Tree, pieces: Pieces) -> frozenset[int]:
    """The words whose own place is in `pieces`."""
    starts = {piece.start for piece in pieces if piece.start >= 0}
    return frozenset(n for n, word in enumerate(tree.words) if word.start in starts)


def _places(tree: Tree, pieces: Pieces, words: frozenset[int]) -> list[int]:
    """Where in `pieces` the words stand."""
    starts = {tree.words[n].start for n in words}
    return [place for place, piece in enumerate(pieces) if piece.start in starts]


# Examples.


def _examples(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "in films such as A and B": in films, in A, in B."""
    here = _here(tree, pieces)
    for noun in _objects(tree, predicate, here):
        several = tree.of(noun, "nmod") if tree.lows[noun] in _SEVERAL else []
        for first in [n for one in (noun, *several) for n in tree.of(one, "nmod")]:
            members = [first, *tree.conjuncts(first)]
            if first in here and _introduces_examples(tree, noun, first, members):
                return _with_examples(tree, noun, members, pieces)
    return [pieces]


def _objects(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The nouns behind a predicate that it governs, outermost first: "wrote songs for films"."""
    found: list[int] = []
    waiting = [predicate]
    while waiting:
        inner = [
            n
            for n in tree.of(waiting.pop(0), "obj", "obl", "nmod")
            if n in here and n > predicate and not names_nothing(tree, n)
        ]
        found += inner
        waiting += inner
    return found


def _introduces_examples(tree: Tree, noun: int, first: int, members: Sequence[int]) -> bool:
    case = [tree.lows[n] for n in sorted(tree.subtrees(tree.of(first, "case")))]
    joined_all = all(
        are_joined(tree, first, member) and stands_behind(tree, member, (",", "and", "&"))
        for member in members[1:]
    )
    told = joined_all and case in (["such", "as"], ["including"])
    if not told or tree.in_brackets(first) or tree.has(first, "acl:relcl"):
        return False
    # "resources for its members, such as advice": not of the members
    return tree.relation(noun) != "nmod" or not stands_behind(tree, first, (",",))


def _with_examples(tree: Tree, noun: int, members: list[int], pieces: Pieces) -> list[Pieces]:
    first = members[0]
    shown = _places(tree, pieces, tree.subtree(first))
    main = trimmed(pieces[: shown[0]])
    behind = trimmed(pieces[shown[-1] + 1 :])  # "in 1987" in "prizes, such as A in 1987"
    case = tree.subtrees(tree.of(noun, "case"))
    before = pieces[: _places(tree, pieces, tree.subtree(noun) - case)[0]]
    here = _here(tree, pieces)
    begins = [min(tree.subtree(member)) for member in members]
    begins[0] = min(tree.subtree(first))
    found = [main]
    for place, member in enumerate(members):
        end = begins[place + 1] if member != members[-1] else len(tree.words)
        left_out = tree.subtrees(tree.of(member, "case", "cc"))
        shown_here = (tree.subtree(first) & here) - left_out
        words = tree.tidied(n for n in shown_here if begins[place] <= n < end)
        example = joined(again(before), tree.pieces(words))
        found.append(joined(example, behind) if member == members[-1] else example)
    return found


# Members.


class _Coordination(NamedTuple):
    head: int
    others: list[int]


def _members(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """A statement for each member of the longest coordination of nouns, adjectives or infinitives.

    Other coordinations stay whole, so that no statement joins members at random.
    """
    here = _here(tree, pieces)
    found = [
        one
        for head in _coordination_heads(tree, predicate, here)
        if (one := _coordination(tree, predicate, head, here)) is not None
    ]
    if not found:
        noun = _modified_noun(tree, predicate, here)
        return [pieces] if noun is None else _modified(tree, noun, pieces)
    longest = max(found, key=lambda one: len(one.others))
    return _each_member(tree, predicate, longest, pieces, here)


def _coordination_heads(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The words whose coordination divides the statement, from the predicate outwards."""

    def behind(index: int, *relations: str) -> list[int]:
        return [n for n in tree.of(index, *relations) if n in here and n > index]

    heads = [predicate] if _names(tree, predicate) else []
    heads += behind(predicate, *_OBJECTS, "xcomp")
    heads += [n for n in behind(predicate, "advcl") if _takes_verb(tree, predicate, n)]
    for index in list(heads):
        if tree.is_verb(index) and index != predicate:
            heads += behind(index, "obj", "obl")
    for index in list(heads):
        for clause in tree.of(index, "acl"):
            if tree.tag(clause) in ("VBN", "VBG") and not is_negated(tree, clause):
                heads += behind(clause, "obl", "obj")
    for index in list(heads):
        if tree.tag(index) in ("NN", "NNS") and tree.lows[index] not in _MIXED:
            heads += behind(index, "nmod")
    return heads


def _takes_verb(tree: Tree, predicate: int, index: int) -> bool:
    """Whether a clause belongs to its predicate: "advertise to sell", "known for driving"."""
    marks = [tree.lows[n] for n in tree.of(index, "mark")]
    if tree.tag(index) == "VB":
        return marks == ["to"]
    gerund = tree.tag(index) == "VBG" and marks in (["in"], ["for"], ["by"], ["of"], ["at"])
    return gerund and tree.tag(predicate) in ("JJ", "VBN")


def _coordination(
    tree: Tree, predicate: int, head: int, here: frozenset[int]
) -> _Coordination | None:
    """The coordination of a word, if each of its members is claimed."""
    others = [n for n in tree.conjuncts(head) if n in here and tree.subject(n) is None]
    others = [n for n in others if not _is_alternative(tree, n, others)]
    whole = not all(_is_both(tree, n) for n in tree.of(head, "cc:preconj"))
    if (
        whole
        or not others
        or not all(
            are_joined(tree, head, n) and stands_behind(tree, n, (",", "and", "&", "but", ";"))
            for n in others
        )
    ):
        return None
    if _say_one_thing(tree, predicate, head, others) or _are_fixed(tree, predicate, head, others):
        return None
    if not all(tree.is_contiguous(n) for n in others):
        return None
    adjunct = head != predicate and tree.relation(head) in ("nmod", "obl")
    if adjunct and _case(tree, head) in ("", "including", "such as"):
        return None  # Its preposition was taken for another word's; or these are examples.
    if not _are_alike(tree, predicate, [head, *others]):
        return None
    return _Coordination(head, sorted(others))


def _say_one_thing(tree: Tree, predicate: int, head: int, others: Sequence[int]) -> bool:
    """Whether members are not claimed one by one, or some may belong to another word."""
    around = tree.subtree(head) | set(tree.children[predicate])
    if any(tree.lows[n] in _TOGETHER for n in around):
        return True
    if any(tree.lows[n] == "both" and not _is_both(tree, n) for n in around):
        return True
    above = tree.words[head].head
    if head != predicate and above >= 0 and tree.lows[above] in _MIXED:
        return True
    if tree.relation(head) == "nmod" and tree.tag(above) in NAME_TAGS:
        return True  # "the Pools of Light and Dark Glory"
    if _has_clause_between(tree, head, others) or ";" in tree.texts[head : max(others)]:
        return True  # "Ann on drums; Bo on bass"
    if tree.in_brackets(head) or _is_crossed(tree, head, min(others)):
        return True
    # "his status as a hero and focus on war": his focus
    bare = any(not tree.has(n, "det", "nmod:poss", "case") for n in others)
    return bare and tree.relation(head) == "nmod" and _has_article(tree, head)


def _are_fixed(tree: Tree, predicate: int, head: int, others: Sequence[int]) -> bool:
    """Whether members are one thing by their words: "gin and tonic", "red and white"."""
    members = [head, *others]
    lows = [tree.lows[n] for n in members]
    if any(pair in FIXED_PAIRS for pair in pairwise(lows)) or set(lows) & _COLOURS:
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


def _is_both(tree: Tree, index: int) -> bool:
    """Whether a word is the "both" of "both A and B", which each statement goes without."""
    return tree.lows[index] == "both" and tree.relation(index) == "cc:preconj"


def _is_crossed(tree: Tree, head: int, second: int) -> bool:
    """Whether a coordination within the first member goes on behind the second."""
    return any(
        tree.relation(n) == "conj" and head < tree.words[n].head < second < n
        for n in tree.subtree(head)
    )


def _is_alternative(tree: Tree, index: int, others: Sequence[int]) -> bool:
    """Whether a word is one of a pair within a member: "to find or buy" in a list of purposes."""
    own = {tree.lows[n] for n in tree.of(index, "cc")}
    return tree.words[index].head in others and bool(own) and own <= {"or", "nor"}


def _has_article(tree: Tree, noun: int) -> bool:
    return any(tree.lows[n] in ("a", "an") for n in tree.of(noun, "det"))


def _has_clause_between(tree: Tree, head: int, others: Sequence[int]) -> bool:
    """Whether a member may belong to a clause before it: "a rate applying to gains and rents"."""
    clauses = [
        n
        for n in tree.subtree(head)
        if n > head and tree.relation(n) in ("acl", "acl:relcl", "advcl")
    ]
    return any(n < member for n in clauses for member in others)


def _are_alike(tree: Tree, predicate: int, members: Sequence[int]) -> bool:
    head = members[0]
    tags = {tree.tag(n) for n in members}
    if tags <= {"JJ", "JJR", "JJS", "VBN", "VBG"} and head == predicate:
        return True
    if tree.relation(head) in ("xcomp", "advcl") and tags in ({"VB"}, {"VBG"}):
        return True
    if not (tags <= {"NN", "NNS", *NAME_TAGS} or tags <= {"NNS", "CD"}):
        return False
    if head == predicate:
        return True
    if any(tree.lows[n] in _UNITS for n in members):
        return False
    if tree.tag(head) in NAME_TAGS and any(_has_article(tree, n) for n in members[1:]):
        return False  # "a professor at Yale and a judge"
    counted = [tree.has(n, "nummod") for n in members]
    if counted[0] and not all(counted):
        return False  # "two sons, Ann and Bo" are not two sons each
    if not tags <= NAME_TAGS or len(members) > 2:
        return True
    # "Romeo and Juliet" may be one name.
    return tree.has(members[1], "det", "nmod:poss", "case")


def _phrase(tree: Tree, predicate: int, head: int, here: frozenset[int]) -> frozenset[int]:
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
    tree: Tree, predicate: int, found: _Coordination, pieces: Pieces, here: frozenset[int]
) -> list[Pieces]:
    head, others = found
    phrase = _phrase(tree, predicate, head, here)
    places = _places(tree, pieces, phrase)
    if not places:
        return [pieces]
    first, last = places[0], places[-1]
    inside = set(places)
    if any(n not in inside for n in range(first, _places(tree, pieces, frozenset({head}))[0])):
        return [pieces]
    # "in 2000" in "into A in 2000 and B in 2003" belongs to the first member.
    between = trimmed(pieces[n] for n in range(first, last) if n not in inside)
    before, after = pieces[:first], pieces[last + 1 :]
    own = phrase - tree.subtrees(others) - set(tree.of(head, "cc:preconj"))
    if any(n > others[-1] and n in here for n in tree.of(head, "appos", "acl:relcl")):
        return [pieces]
    begin = min(min(tree.subtree(n)) for n in others)
    tail = tree.tidied(n for n in own if n > others[-1])
    statements_of: list[Pieces] = []
    for member in (head, *others):
        is_first, is_last = member == head, member == others[-1]
        if is_first:
            words = tree.tidied(n for n in own if n < begin and not _is_link(tree, n, found))
            core = joined(tree.pieces(words), between)
        else:
            core = _other_member(tree, found, member, here, joins=bool(before))
        shared = tree.pieces(tail or _shared_tail(tree, found, member), again=not is_last)
        opening = before if is_first else again(before)
        closing = after if is_last else again(after)
        statement = [*joined(opening, core), *joined(core, shared)[len(core) :], *closing]
        if head == predicate and _names(tree, predicate):
            statements_of += _modified(tree, member, statement)
        else:
            statements_of.append(statement)
    return statements_of


def _is_link(tree: Tree, index: int, found: _Coordination) -> bool:
    return tree.relation(index) == "cc" and tree.words[index].head in (found.head, *found.others)


def _other_member(
    tree: Tree, found: _Coordination, member: int, here: frozenset[int], *, joins: bool
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


def _shared_tail(tree: Tree, found: _Coordination, member: int) -> list[int]:
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


def _modified_noun(tree: Tree, predicate: int, here: frozenset[int]) -> int | None:
    """The noun whose adjectives divide a statement: what the subject is, or the object."""
    ones = [n for n in (predicate, *tree.of(predicate, "obl", "obj")) if tree.lows[n] == "one"]
    of_them = [n for one in ones for n in tree.of(one, "nmod") if n in here]
    if len(of_them) == 1 and [_case(tree, n) for n in of_them] == ["of"]:
        noun = of_them[0]
        counted = {tree.lows[n] for n in tree.subtree(noun) if n < noun} & _COUNTED
        return None if counted or tree.has(noun, "nummod") else noun
    if _names(tree, predicate):
        return predicate
    objects = [n for n in tree.of(predicate, "obj", "xcomp") if n in here and n > predicate]
    if len(objects) != 1 or names_nothing(tree, objects[0]) or tree.has(objects[0], "nummod"):
        return None
    if tree.lows[predicate] in _REFUSALS:
        return None
    noun = objects[0]
    the = {tree.lows[n] for n in tree.of(noun, "det")} - {"a", "an"}
    # "won the first and second prizes" would have one prize each.
    return None if the or tree.lows[noun] in _MIXED else noun


def _modified(tree: Tree, noun: int, pieces: Pieces) -> list[Pieces]:
    """ "a Polish and French physicist": a Polish physicist, a French physicist."""
    if not tree.tag(noun).startswith("NN"):
        return [pieces]
    coordinated = [n for n in tree.of(noun, "amod") if tree.has(n, "conj") and n < noun]
    if len(coordinated) != 1:
        return [pieces]
    head = coordinated[0]
    others = tree.conjuncts(head)
    members = [head, *others]
    places = _places(tree, pieces, tree.subtree(head))
    commas = not any(tree.has(n, "cc") for n in members)  # "a warm, dry climate"
    claimed = all(
        (commas or are_joined(tree, head, n)) and stands_behind(tree, n, (",", "and"))
        for n in others
    )
    colours = {tree.lows[n] for n in members} & _COLOURS
    other = any(n > noun or tree.tag(n) in ("NN", "NNS") for n in members)
    if _are_one_kind(tree, noun, members):
        return [pieces]
    preconj = tree.of(head, "cc:preconj") + tree.of(noun, "cc:preconj")
    whole = not all(_is_both(tree, n) for n in preconj)
    if not places or not claimed or colours or other or whole:
        return [pieces]
    both = _places(tree, pieces, frozenset(preconj))
    before = [pieces[place] for place in range(places[0]) if place not in both]
    rest = pieces[places[-1] + 1 :]
    found = []
    for group in _hyphenated(tree, members):
        member = group[0]
        own = tree.subtrees(group)
        if member == head:
            own -= tree.subtrees(n for n in others if n not in group)
        words = tree.tidied(n for n in own if tree.relation(n) not in ("cc", "cc:preconj"))
        if member != head and not tree.has(member, "advmod") and tree.tag(member) == "JJ":
            words = [*tree.of(head, "advmod"), *words]  # "the most gifted and famous"
        opening = before if member == head else again(before)
        if opening and opening[-1].low in ARTICLES:
            article = indefinite_article(tree.texts[words[0]])
            opening = [*opening[:-1], opening[-1]._replace(text=article)]
        closing = rest if others[-1] in group else again(rest)
        found.append([*joined(opening, tree.pieces(words)), *closing])
    return found


def _are_one_kind(tree: Tree, noun: int, members: Sequence[int]) -> bool:
    """Whether the adjectives of a noun are not said one by one: "no clear and simple rules"."""
    lows = [tree.lows[n] for n in members]
    if any(pair in FIXED_PAIRS for pair in pairwise(lows)) or set(tree.lows) & _TOGETHER:
        return True
    span = range(min(tree.subtree(members[0])), max(members) + 2)
    before = {tree.lows[n] for n in tree.subtree(noun) if n < members[0]}
    if before & _NOTHING or set(lows) & _OPPOSED:
        return True
    # "Swedish-born and London-based"
    return any(
        tree.texts[n] == "-" and not (n - 1 in members and n + 1 in members)
        for n in span
        if 0 < n < len(tree.texts) - 1
    )


def _hyphenated(tree: Tree, members: Sequence[int]) -> list[list[int]]:
    """Members in groups: those that a hyphen makes one word, as "naturalized-French"."""
    groups: list[list[int]] = []
    for member in members:
        tight = member >= 2 and tree.texts[member - 1] == "-" and not tree.is_spaced(member - 1)
        if groups and tight and member - 2 in tree.subtrees(groups[-1]):
            groups[-1].append(member)
        else:
            groups.append([member])
    return groups


# The place of what the subject is.


def _places_of_predicate(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "X is a writer from Japan": X is a writer, X is from Japan.

    "A professor of law at Yale" is a professor at Yale. A person is only where she is from: "a
    judge in France" need not be in France.
    """
    if not tree.has(predicate, "cop") or not tree.tag(predicate).startswith("NN"):
        return [pieces]
    here = _here(tree, pieces)
    articles = [n for n in tree.of(predicate, "det") if tree.lows[n] in ARTICLES and n in here]
    cases = ("from", "at") if is_person_noun(tree.lows[predicate]) else ("from", "in")
    places = [n for n in tree.of(predicate, "nmod") if n > predicate and n in here]
    found = [n for n in places if _is_named(tree, n) and _case(tree, n) in cases]
    if any(_case(tree, n) == "to" for n in tree.subtrees(found)):
        return [pieces]  # "a gift from France to Ann"
    others = [n for n in places if n not in found]
    at = bool(found) and _case(tree, found[0]) == "at"
    of_subject = at and [_case(tree, n) for n in others] == ["of"] and others[0] < found[0]
    if len(articles) != 1 or not found or not (of_subject if at else not others):
        return [pieces]
    if at and len(found) > 1:
        return [pieces]
    opening = pieces[: _places(tree, pieces, frozenset(articles))[0]]
    if at:
        kind = tree.of(predicate, "det", "amod", "compound")
        opening = joined(opening, tree.pieces([*(n for n in kind if n < predicate), predicate]))
    apart = found if len(found) == 1 else found[1:]
    out = set(_places(tree, pieces, tree.subtrees(apart)))
    main = trimmed(piece for place, piece in enumerate(pieces) if place not in out)
    where = [tree.pieces(tree.tidied(tree.subtree(n) & here)) for n in apart]
    return [main, *(joined(again(opening), one) for one in where)]


def _is_named(tree: Tree, noun: int) -> bool:
    """Whether a noun is a name, or has one: "the region of Limousin"."""
    return tree.tag(noun) in NAME_TAGS or any(
        tree.tag(n) in NAME_TAGS for n in tree.of(noun, "nmod", "compound", "appos")
    )


# Adjuncts.


def _adjuncts(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "was born in 1879 in Ulm": was born in 1879, was born in Ulm."""
    here = _here(tree, pieces)
    if not _has_free_adjuncts(tree, predicate, here):
        return [pieces]
    free = _free_adjuncts(tree, predicate, here)
    if not 1 < len(free) <= _MOST_ADJUNCTS:
        return [pieces]
    each = [frozenset(tree.subtree(n)) for n in free]
    return [
        _with_adjunct(tree, pieces, own, frozenset().union(*each) - own, first=not place)
        for place, own in enumerate(each)
    ]


def _has_free_adjuncts(tree: Tree, predicate: int, here: frozenset[int]) -> bool:
    if not tree.is_verb(predicate) or tree.has(predicate, "cop"):
        return False
    if tree.lows[predicate] in _WITH_ARGUMENT or any(
        tree.texts[n] in (":", "—") or (tree.texts[n] in ("-", "–") and tree.is_spaced(n))
        for n in here
    ):
        return False
    clauses = tree.of(predicate, "ccomp", "xcomp", "advcl", "parataxis", "csubj")
    clauses += [n for n in tree.conjuncts(predicate) if tree.is_verb(n)]
    if any(n > predicate and n in here for n in clauses):
        return False
    return not {tree.lows[n] for n in tree.children[predicate]} & (_SCOPED | _TOGETHER)


def _case(tree: Tree, index: int) -> str:
    return " ".join(tree.lows[n] for n in sorted(tree.of(index, "case")))


def _free_adjuncts(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The adjuncts that can be stated one by one; empty where two of them belong together."""
    free = []
    goes = [case for n in tree.of(predicate, "obl") if (case := _case(tree, n)) in ("to", "from")]
    adjuncts = _ADJUNCTS | {"from"} if "to" not in goes else _ADJUNCTS
    if "from" not in goes and tree.lows[predicate] in _MOTION:
        adjuncts |= {"to", "into"}
    for index in tree.of(predicate, "obl", "obl:tmod", "obl:unmarked", "obl:agent"):
        if index < predicate or index not in here or tree.in_brackets(index):
            continue
        case = _case(tree, index)
        if {tree.lows[n] for n in tree.children[index]} & _LATEST or tree.lows[index] in _LATEST:
            return []
        time = _is_time(tree, index)
        if case in _FIXED_CASES or (time and case not in _TIME_CASES):
            return []
        if time or case in adjuncts:
            free.append(index)
    years = [_case(tree, n) for n in free if _is_time(tree, n)]
    if len(years) > len(set(years)):
        return []  # "released A in 2017 and B in 2019"
    if len(free) == 1 and _is_time(tree, free[0]):
        # "made her debut with the club on 3 May": what hangs on the object may be one, too.
        free += [
            n
            for noun in tree.of(predicate, "obj")
            for n in tree.of(noun, "nmod")
            if n > noun and n in here and _case(tree, n) in ("with", "at", "in", "for", "against")
        ]
    return sorted(free)


def _is_time(tree: Tree, index: int) -> bool:
    words = tree.subtree(index)
    dated = any(_TIME.fullmatch(tree.lows[n]) for n in words)
    return dated and not any(tree.tag(n) in _CLAUSE_TAGS for n in words)


def _with_adjunct(
    tree: Tree, pieces: Pieces, own: frozenset[int], others: frozenset[int], *, first: bool
) -> Pieces:
    left_out = set(_places(tree, pieces, others))
    kept_places = set(_places(tree, pieces, own))
    kept: Pieces = []
    for place, piece in enumerate(pieces):
        if place in left_out:
            continue
        behind_gap = place - 1 in left_out
        if behind_gap and piece.text == ",":
            continue
        if behind_gap and kept and kept[-1].text == ",":
            kept.pop()
        kept.append(piece if first or place in kept_places else again([piece])[0])
    return trimmed(kept)
