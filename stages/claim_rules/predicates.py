"""The predicates of a clause that share its subject, and the words of each."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from claimflow.stages.claim_rules.detached import (
    are_joined,
    is_negated,
    names_nothing,
)
from claimflow.stages.claim_rules.lexicon import (
    INTRANSITIVE,
)
from claimflow.stages.claim_rules.trees import (
    OBJECTS,
    Tree,
)

_BE: Final = frozenset({"is", "are", "was", "were", "am", "be", "been", "'s", "'re", "’s", "’re"})
_PAIRS: Final = frozenset({"both", "either", "neither"})


class Predicate(NamedTuple):
    """One of the predicates of a clause: its words, and those of the last one that it shares."""

    head: int
    words: Collection[int]
    shared: Sequence[int]


def predicates(tree: Tree, clause: int, own: frozenset[int]) -> list[int]:
    """The predicate of a clause and those coordinated with it that share its subject.

    The first alone where it is not certain that each of them is claimed.
    """
    found = [index for index in tree.conjuncts(clause) if index in own]
    contrasted = all({tree.lows[cc] for cc in tree.of(n, "cc")} == {"but"} for n in found)
    if not found or (is_negated(tree, clause) and not contrasted):
        return [clause]
    if any(tree.lows[n] in _PAIRS and not tree.is_both(n) for n in tree.children[clause]):
        return [clause]
    subject = tree.subject(clause)
    if subject is not None and (names_nothing(tree, subject) or _is_counted(tree, subject)):
        return [clause]
    chain = [clause, *sorted(found)]
    if any(_begins_with_clause(tree, n) for n in found):
        return [clause]
    if any(_shares_object(tree, one, other) for one, other in pairwise(chain)):
        return [clause]
    return chain if all(_shares_subject(tree, clause, index) for index in found) else [clause]


def _is_counted(tree: Tree, subject: int) -> bool:
    """Whether a subject is counted for all predicates together: "only two men ate and drank"."""
    words = [tree.lows[n] for n in sorted(tree.subtree(subject))]
    return bool(_COUNTING & set(words)) or ("at", "most") in pairwise(words)


_COUNTING: Final = frozenset({"only", "exactly", "just"})


def _begins_with_clause(tree: Tree, predicate: int) -> bool:
    """Whether "when she left" or the like stands before a predicate: its subject is further on."""
    return any(n < predicate and tree.has(n, "mark", "advmod") for n in tree.of(predicate, "advcl"))


def _shares_object(tree: Tree, one: int, other: int) -> bool:
    """Whether a verb shares the noun in a phrase of the next: "led and worked for the club"."""
    between = [n for n in tree.children[one] if one < n < other]
    bare = all(tree.relation(n) in ("cc", "punct", "advmod") for n in between)
    transitive = tree.is_verb(one) and tree.lows[one] not in INTRANSITIVE
    return bare and transitive and tree.lows[other] in INTRANSITIVE and tree.has(other, "obl")


def divided(tree: Tree, chain: Sequence[int], own: frozenset[int]) -> list[Predicate]:
    """The words of each of the predicates in `chain`.

    What stands behind one and hangs on an earlier one is taken for its own; a transitive verb
    without an object shares the next one: "designed and built a bicycle, and sold it".
    """
    members = [set(tree.subtree(index) & own) for index in chain]
    for place, index in enumerate(chain):
        for other in chain:
            if other != index and other in tree.subtree(index):
                members[place] -= tree.subtree(other)
    for place, later in enumerate(chain[1:], start=1):
        behind = {n for words in members[:place] for n in words if n > later}
        members[:place] = [words - behind for words in members[:place]]
        members[place] |= behind
    tails = [_tail(tree, index, words, chain) for index, words in zip(chain, members, strict=True)]
    found = []
    for place, index in enumerate(chain):
        own_words = {
            n
            for n in members[place]
            if not (tree.relation(n) in ("cc", "cc:preconj") and tree.words[n].head in chain)
        }
        lender = next((n for n in range(place, len(chain)) if tails[n]), place)
        # "wrote, cut and sold the film", but not "broken, mended in May and sold in June"
        # In "was born and raised in Rome, and left" both in Rome.
        paired = lender == place + 1 and tree.tag(index) == "VBN" and tree.has(chain[lender], "cc")
        governed = OBJECTS if lender == len(chain) - 1 or paired else ("obj",)
        lends = any(tree.relation(n) in governed for n in tails[lender])
        lends &= tree.is_verb(index) and tree.is_verb(chain[lender])
        # "was not destroyed, and was repaired by 1956"
        lends &= not (index != chain[0] and _are_complete(tree, index, chain[lender]))
        # "was elected and served two terms": a passive has no object
        passive = tree.has(index, "aux:pass") and index == chain[0]
        lends &= not (passive and any(tree.relation(n) == "obj" for n in tails[lender]))
        shares = lender != place and lends and tree.lows[index] not in INTRANSITIVE
        last = sorted(tree.subtrees(tails[lender]) & members[lender]) if shares else []
        found.append(Predicate(index, own_words, tree.tidied(last)))
    return found


def _are_complete(tree: Tree, *verbs: int) -> bool:
    """Whether passive verbs each have a finite form of their own."""
    return all(tree.has(n, "aux:pass") and tree.finite(n) is not None for n in verbs)


def _tail(tree: Tree, index: int, words: Collection[int], chain: Sequence[int]) -> list[int]:
    """What stands behind a predicate, and hangs on it or on an earlier one."""
    return [
        n for n in words
        if n > index and tree.words[n].head in chain and tree.relation(n) not in ("cc", "punct")
    ]  # fmt: skip


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
    if tree.tag(member) == "VBG":
        be = any(tree.lows[n] in _BE for n in tree.of(clause, "aux", "aux:pass", "cop"))
        return be or tree.tag(clause) == "VBG"
    return tree.tag(member) != "VB" or tree.has(clause, "aux")
