"""The statements of one predicate with its subject."""

from itertools import pairwise
from typing import Final

from claimflow.stages.claim_rules.adjuncts import adjuncts, places_of_predicate
from claimflow.stages.claim_rules.coordinated import members, phrase_of
from claimflow.stages.claim_rules.detached import NAMING, is_negated, names_nothing
from claimflow.stages.claim_rules.examples import examples
from claimflow.stages.claim_rules.subjects import each_subject
from claimflow.stages.claim_rules.trees import OBJECTS, Pieces, Tree, added, again, joined, trimmed
from claimflow.stages.text.word_lists import word_set

_RECIPROCAL: Final = word_set(
    """met meet married marry divorced differ differed similar different equal separated merged
    joined combined agree agreed compared mixed separate separates distinguish distinguishes
    convert converts converted turn turns turned exchange exchanges exchanged alternate
    alternates balance balances balanced compare compares combine combines mix mixes match
    matches consist consists consisted consisting compose composed comprise comprises comprised"""
)
_SHARES: Final = word_set(
    """half most majority third thirds quarter quarters percent rest proportion share part"""
)


def statements(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """The statements of one predicate with its subject: for each example, member and adjunct."""
    if is_negated(tree, predicate) or tree.lows[predicate] in NAMING:
        return [pieces]
    subject = tree.subject(predicate)
    if subject is not None and (names_nothing(tree, subject) or _is_share(tree, subject)):
        return [pieces]
    if _is_reciprocal(tree, predicate):
        return adjuncts(tree, predicate, pieces)
    kept, denied = _contrasted(tree, predicate, _without_more(tree, pieces))
    claimed = [
        statement
        for one in each_subject(tree, predicate, kept)
        for example in examples(tree, predicate, one)
        for member in members(tree, predicate, example)
        for place in places_of_predicate(tree, predicate, member)
        for statement in adjuncts(tree, predicate, place)
    ]
    return [*claimed, *denied]


def _without_more(tree: Tree, pieces: Pieces) -> Pieces:
    """ "A and B" of "A, B, and more", which says nothing of what there is more."""
    for index in tree.here(pieces):
        links = tree.of(index, "cc", "punct")
        if (tree.lows[index], tree.relation(index)) != ("more", "conj"):
            continue
        if len(tree.conjuncts(tree.words[index].head)) > 1 and tree.children[index] == links:
            more = set(tree.places(pieces, frozenset({index, *links})))
            return trimmed(piece for place, piece in enumerate(pieces) if place not in more)
    return pieces


def _contrasted(tree: Tree, predicate: int, pieces: Pieces) -> tuple[Pieces, list[Pieces]]:
    """ "is found on Mars, but not on the Sun": is found on Mars; is not found on the Sun.

    Only where the verb has an auxiliary or a copula, behind which "not" can stand.
    """
    here = tree.here(pieces)
    verbs = [n for n in tree.auxiliaries(predicate) if n in here]
    for head in [predicate, *tree.of(predicate, *OBJECTS, "xcomp")]:
        denied = [n for n in tree.conjuncts(head) if n in here and _is_denied(tree, n)]
        phrase = phrase_of(tree, predicate, head, here)
        places = tree.places(pieces, phrase)
        if len(denied) != 1 or not verbs or not places or tree.is_verb(head):
            continue
        words = tree.subtree(denied[0]) & here
        rest = [n for n in range(places[0], places[-1] + 1) if pieces[n].start >= 0]
        if tree.subtree(head) & here - phrase or places != rest or max(words) != max(phrase):
            continue
        place = tree.places(pieces, frozenset(verbs[:1]))[0]
        links = {n for n in tree.of(denied[0], "cc", "advmod") if tree.lows[n] in ("but", "not")}
        other = tree.pieces(tree.tidied(words - links))
        if not tree.has(denied[0], "case"):
            other = joined(tree.pieces(tree.of(head, "case"), again=True), other)
        verb = [pieces[place], added("not", "RB")]
        if pieces[place].low == "can":
            verb = [pieces[place]._replace(text="cannot")]
        opening = joined(again([*pieces[:place], *verb]), again(pieces[place + 1 : places[0]]))
        out = set(tree.places(pieces, words))
        kept = trimmed(piece for n, piece in enumerate(pieces) if n not in out)
        return kept, [[*joined(opening, other), *pieces[places[-1] + 1 :]]]
    return pieces, []


def _is_denied(tree: Tree, index: int) -> bool:
    """Whether a member is one of ", but not A"."""
    but = [tree.lows[n] for n in tree.of(index, "cc")] == ["but"]
    return but and any(tree.lows[n] == "not" for n in tree.of(index, "advmod"))


def _is_share(tree: Tree, subject: int) -> bool:
    """Whether a subject is a part of several: "half of them are doctors and nurses"."""
    return tree.lows[subject] in _SHARES or tree.texts[subject].endswith("%")


def _is_reciprocal(tree: Tree, predicate: int) -> bool:
    lows = [tree.lows[index] for index in sorted(tree.subtree(predicate))]
    each_other = any(a in ("each", "one") and b in ("other", "another") for a, b in pairwise(lows))
    return each_other or tree.lows[predicate] in _RECIPROCAL
