"""One statement for each of several adjectives: "a Polish and French physicist"."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from claimflow.stages.claim_rules.detached import (
    are_joined,
    names_nothing,
    stands_behind,
)
from claimflow.stages.claim_rules.lexicon import (
    ARTICLES,
    COLOURS,
    FIXED_PAIRS,
    MIXED,
    TOGETHER,
    indefinite_article,
)
from claimflow.stages.claim_rules.trees import (
    Pieces,
    Tree,
    again,
    joined,
)
from claimflow.stages.text.word_lists import word_set

_NOTHING: Final = word_set("no few hardly any little without every each neither")
_OPPOSED: Final = word_set("equal opposite half different similar")
_COUNTED: Final = word_set("few only last first several")
_REFUSALS: Final = word_set(
    """ban bans banned prohibit prohibits prohibited forbid forbids forbade forbidden eliminate
    eliminates eliminated reject rejects rejected exclude excludes excluded remove removes removed
    oppose opposes opposed"""
)
"""Verbs of which an object with two adjectives need not have each of them."""


def modified_noun(tree: Tree, predicate: int, here: frozenset[int]) -> int | None:
    """The noun whose adjectives divide a statement: what the subject is, or the object."""
    ones = [n for n in (predicate, *tree.of(predicate, "obl", "obj")) if tree.lows[n] == "one"]
    of_them = [n for one in ones for n in tree.of(one, "nmod") if n in here]
    if len(of_them) == 1 and [tree.case(n) for n in of_them] == ["of"]:
        noun = of_them[0]
        counted = {tree.lows[n] for n in tree.subtree(noun) if n < noun} & _COUNTED
        return None if counted or tree.has(noun, "nummod") else noun
    if tree.says_what_is(predicate):
        return predicate
    objects = [n for n in tree.of(predicate, "obj", "xcomp") if n in here and n > predicate]
    if len(objects) != 1 or names_nothing(tree, objects[0]) or tree.has(objects[0], "nummod"):
        return None
    if tree.lows[predicate] in _REFUSALS:
        return None
    noun = objects[0]
    the = {tree.lows[n] for n in tree.of(noun, "det")} - {"a", "an"}
    # "won the first and second prizes" would have one prize each.
    return None if the or tree.lows[noun] in MIXED else noun


def modified(tree: Tree, noun: int, pieces: Pieces) -> list[Pieces]:
    """ "a Polish and French physicist": a Polish physicist, a French physicist."""
    if not tree.tag(noun).startswith("NN"):
        return [pieces]
    coordinated = [n for n in tree.of(noun, "amod") if tree.has(n, "conj") and n < noun]
    if len(coordinated) != 1:
        return [pieces]
    head = coordinated[0]
    others = tree.conjuncts(head)
    members = [head, *others]
    places = tree.places(pieces, tree.subtree(head))
    commas = not any(tree.has(n, "cc") for n in members)  # "a warm, dry climate"
    claimed = all(
        (commas or are_joined(tree, head, n)) and stands_behind(tree, n, (",", "and"))
        for n in others
    )
    colours = {tree.lows[n] for n in members} & COLOURS
    other = any(n > noun or tree.tag(n) in ("NN", "NNS") for n in members)
    if _are_one_kind(tree, noun, members):
        return [pieces]
    preconj = tree.of(head, "cc:preconj") + tree.of(noun, "cc:preconj")
    whole = not all(tree.is_both(n) for n in preconj)
    if not places or not claimed or colours or other or whole:
        return [pieces]
    both = tree.places(pieces, frozenset(preconj))
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
    if any(pair in FIXED_PAIRS for pair in pairwise(lows)) or set(tree.lows) & TOGETHER:
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
