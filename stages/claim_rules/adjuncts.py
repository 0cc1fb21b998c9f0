"""One statement for each place and each adjunct: "was born in 1879 in Ulm"."""

import re
from itertools import pairwise
from typing import Final

from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    TOGETHER,
    is_person_noun,
)
from claimflow.stages.claim_rules.trees import (
    NAME_TAGS,
    Pieces,
    Tree,
    again,
    joined,
    trimmed,
)
from claimflow.stages.text.word_lists import word_set

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
    rely relies relied consists rose fell increased decreased turned ask asks asked look looks
    looked wait waits waited search searched apply applies applied pay pays paid account accounts
    accounted go goes went"""
)
"""Verbs that say little without the phrase that follows."""
_SAID_TO_BE: Final = word_set(
    """recognised recognized acknowledged acclaimed seen viewed perceived hailed treated depicted
    portrayed interpreted cited praised"""
)
"""Verbs that say something else without the "as" that follows."""
_TIME: Final = re.compile(
    r"""(?:\d{3,4}s?|january|february|march|april|may|june|july|august|september|october|november
    |december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|years?|months?|days?
    |century|decades?|weeks?|morning|night|season|age)""",
    re.VERBOSE,
)
_CLAUSE_TAGS: Final = frozenset({"VBD", "VBZ", "VBP", "VBG", "VBN"})
_LATEST: Final = word_set("earliest latest least most")
_MOST_ADJUNCTS: Final = 4


def places_of_predicate(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "X is a writer from Japan": X is a writer, X is from Japan.

    "A professor of law at Yale" is a professor at Yale. A person is only where she is from: "a
    judge in France" need not be in France.
    """
    if not tree.has(predicate, "cop") or not tree.tag(predicate).startswith("NN"):
        return [pieces]
    here = tree.here(pieces)
    articles = [n for n in tree.of(predicate, "det") if tree.lows[n] in ARTICLES and n in here]
    cases = ("from", "at") if is_person_noun(tree.lows[predicate]) else ("from", "in")
    places = [n for n in tree.of(predicate, "nmod") if n > predicate and n in here]
    found = [n for n in places if _is_named(tree, n) and tree.case(n) in cases]
    if any(tree.case(n) == "to" for n in tree.subtrees(found)):
        return [pieces]  # "a gift from France to Ann"
    others = [n for n in places if n not in found]
    at = bool(found) and tree.case(found[0]) == "at"
    of_subject = at and [tree.case(n) for n in others] == ["of"] and others[0] < found[0]
    if len(articles) != 1 or not found or not (of_subject if at else not others):
        return [pieces]
    if at and len(found) > 1:
        return [pieces]
    opening = pieces[: tree.places(pieces, frozenset(articles))[0]]
    if at:
        kind = tree.of(predicate, "det", "amod", "compound")
        opening = joined(opening, tree.pieces([*(n for n in kind if n < predicate), predicate]))
    apart = found if len(found) == 1 else found[1:]
    out = set(tree.places(pieces, tree.subtrees(apart)))
    main = trimmed(piece for place, piece in enumerate(pieces) if place not in out)
    where = [tree.pieces(tree.tidied(tree.subtree(n) & here)) for n in apart]
    return [main, *(joined(again(opening), one) for one in where)]


def _is_named(tree: Tree, noun: int) -> bool:
    """Whether a noun is a name, or has one: "the region of Limousin"."""
    return tree.tag(noun) in NAME_TAGS or any(
        tree.tag(n) in NAME_TAGS for n in tree.of(noun, "nmod", "compound", "appos")
    )


def adjuncts(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "was born in 1879 in Ulm": was born in 1879, was born in Ulm."""
    here = tree.here(pieces)
    if not _has_free_adjuncts(tree, predicate, here):
        return [pieces]
    free = _free_adjuncts(tree, predicate, here)
    if not 1 < len(free) <= _MOST_ADJUNCTS:
        return [pieces]
    # "by Nasser in 1956, which led to the crisis": Nasser did not.
    if any(tree.has(n, "acl:relcl") and not tree.is_contiguous(n) for n in free):
        return [pieces]
    bound = {other for one, other in pairwise(free) if _belongs_to(tree, other, one)}
    each: list[frozenset[int]] = []
    for n in free:
        each += [tree.subtree(n)] if n not in bound else [each.pop() | tree.subtree(n)]
    if len(each) == 1:
        return [pieces]
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
    return not {tree.lows[n] for n in tree.children[predicate]} & (_SCOPED | TOGETHER)


def _free_adjuncts(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The adjuncts that can be stated one by one; empty where two of them belong together."""
    free = []
    goes = [case for n in tree.of(predicate, "obl") if (case := tree.case(n)) in ("to", "from")]
    adjuncts = _ADJUNCTS | {"from"} if "to" not in goes else _ADJUNCTS
    if "from" not in goes and tree.lows[predicate] in _MOTION:
        adjuncts |= {"to", "into"}
    for index in tree.of(predicate, "obl", "obl:tmod", "obl:unmarked", "obl:agent"):
        if index < predicate or index not in here or tree.in_brackets(index):
            continue
        case = tree.case(index)
        if case == "as" and tree.lows[predicate] in _SAID_TO_BE:
            return []  # "recognised by FIFA as the birthplace of football"
        if {tree.lows[n] for n in tree.children[index]} & _LATEST or tree.lows[index] in _LATEST:
            return []
        time = _is_time(tree, index)
        if case in _FIXED_CASES or (time and case not in _TIME_CASES):
            return []
        if time or case in adjuncts:
            free.append(index)
    years = [tree.case(n) for n in free if _is_time(tree, n)]
    if len(years) > len(set(years)):
        return []  # "released A in 2017 and B in 2019"
    if len(free) == 1 and _is_time(tree, free[0]):
        # "made her debut with the club on 3 May": what hangs on the object may be one, too.
        free += [
            n
            for noun in tree.of(predicate, "obj")
            if tree.tag(noun) in NAME_TAGS or tree.texts[noun].islower()  # "Money in the Bank"
            for n in tree.of(noun, "nmod")
            if n > noun and n in here and tree.case(n) in ("with", "at", "in", "for", "against")
        ]
    return sorted(free)


def _belongs_to(tree: Tree, adjunct: int, before: int) -> bool:
    """Whether an adjunct tells of the one right before it.

    "as the chair for the conference"; "..., with Ann on drums".
    """
    first = min(tree.subtree(before))
    if (
        tree.has(adjunct, "nummod")
        or _is_time(tree, adjunct)
        or min(tree.subtree(adjunct)) != max(tree.subtree(before)) + 1
    ):
        return False
    if tree.case(before) == "with":
        return tree.texts[max(0, first - 1)] == "," or tree.texts[first] == ","
    role = is_person_noun(tree.lows[before]) or tree.case(adjunct) in ("for", "with")
    return tree.case(before) == "as" and role and tree.tag(before) == "NN"


def _is_time(tree: Tree, index: int) -> bool:
    words = tree.subtree(index)
    dated = any(_TIME.fullmatch(tree.lows[n]) for n in words)
    return dated and not any(tree.tag(n) in _CLAUSE_TAGS for n in words)


def _with_adjunct(
    tree: Tree, pieces: Pieces, own: frozenset[int], others: frozenset[int], *, first: bool
) -> Pieces:
    left_out = set(tree.places(pieces, others))
    kept_places = set(tree.places(pieces, own))
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
