"""One statement for each of several subjects of which each is the same."""

from collections.abc import Mapping, Sequence
from typing import Final

from claimflow.stages.claim_rules.coordinated import Coordination, other_member
from claimflow.stages.claim_rules.detached import are_joined, stands_behind
from claimflow.stages.claim_rules.lexicon import indefinite_article, singular
from claimflow.stages.claim_rules.trees import NOUN_TAGS, Pieces, Tree, added, joined
from claimflow.stages.text.word_lists import word_set

_EACH: Final = frozenset({"all", "both", "each"})
_OF_ONE: Final = {"are": "is", "were": "was", "have": "has"}
_OF_EACH_OTHER: Final = word_set(
    """friends brothers sisters siblings twins rivals partners neighbours neighbors cousins spouses
    enemies allies competitors lovers colleagues opposites synonyms equals parts halves sides
    relatives counterparts"""
)
_SOME: Final = word_set("some many most several few certain various all no any")
"""Words that may count the nouns behind them, too: "some cats and dogs"."""
_ALIKE: Final = word_set("same different similar opposite other equal separate respective common")


def each_subject(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "Mars and Venus are planets": Mars is a planet, Venus is a planet.

    So of other predicates with "all", "both" or "each".
    """
    here = tree.here(pieces)
    subject, finite = tree.subject(predicate), tree.finite(predicate)
    if subject is None or finite is None or subject not in here or finite not in here:
        return [pieces]
    found = Coordination(subject, [n for n in tree.conjuncts(subject) if n in here])
    each = [n for n in tree.children[predicate] if n > subject and tree.lows[n] in _EACH]
    if len(each) > 1 or not _are_several(tree, found) or tree.lows[finite] not in _OF_ONE:
        return [pieces]
    others: dict[int, list[str]] = {n: [] for n in each}
    verb = _OF_ONE[tree.lows[finite]]
    if tree.tag(predicate) == "NNS" and not tree.has(predicate, "case"):
        kind = _kind_of_each(tree, predicate, each)
        verbal = max([finite, *each])
        if kind is None or predicate < verbal:
            return [pieces]
        first = min(n for n in tree.subtree(predicate) if n > verbal)
        article = indefinite_article(kind if first == predicate else tree.texts[first])
        others |= {verbal: [article], predicate: [kind]}
        others[finite] = [verb, *others.get(finite, [])]
    elif each:
        others[finite] = [verb]
    else:
        return [pieces]
    places = tree.places(pieces, tree.subtree(subject) & here)
    before, behind = pieces[: places[0]], pieces[places[-1] + 1 :]
    one = _reworded(tree, behind, others)
    several = _reworded(tree, behind, {n: [] for n in each})
    head = tree.pieces(tree.tidied((tree.subtree(subject) & here) - tree.subtrees(found.others)))
    statements_of = [[*joined(before, head), *(several if _takes_are(tree, subject) else one)]]
    for member in found.others:
        named = joined(before, other_member(tree, found, member, here, joins=bool(before)))
        statements_of.append([*named, *(several if _takes_are(tree, member) else one)])
    return statements_of


def _are_several(tree: Tree, found: Coordination) -> bool:
    """Whether a subject is several nouns that "and" joins."""
    head, others = found
    counted = {tree.lows[n] for n in tree.of(head, "det", "amod")} & _SOME
    if not others or counted:
        return False
    return all(
        are_joined(tree, head, n)
        and stands_behind(tree, n, (",", "and"))
        and tree.is_contiguous(n)
        and {tree.tag(head), tree.tag(n)} <= NOUN_TAGS
        for n in others
    )


def _takes_are(tree: Tree, noun: int) -> bool:
    """Whether a noun takes "are": "the Alps", but not "Windows"."""
    return tree.tag(noun) == "NNS" or (tree.tag(noun) == "NNPS" and tree.has(noun, "det"))


def _kind_of_each(tree: Tree, predicate: int, each: Sequence[int]) -> str | None:
    """The singular of what several are; None where it is not that of each, as of "friends"."""
    if tree.has(predicate, "nummod", "conj", "acl:relcl"):
        return None
    if any(tree.lows[n] in _ALIKE for n in tree.subtree(predicate)):
        return None  # "are members of the same band"
    definite = set(tree.of(predicate, "det", "nmod:poss")) - set(each)
    if tree.lows[predicate] in _OF_EACH_OTHER or definite:
        return None
    return singular(tree.lows[predicate])


def _reworded(tree: Tree, pieces: Pieces, others: Mapping[int, Sequence[str]]) -> Pieces:
    """Pieces with other words in place of some."""
    by_start = {tree.words[n].start: words for n, words in others.items()}
    made: Pieces = []
    for piece in pieces:
        first, *more = by_start.get(piece.start, [piece.text]) or [""]
        if first:
            made.append(piece._replace(text=first))
        made += [added(word) for word in more]
    return made
