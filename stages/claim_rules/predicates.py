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
    if subject is not None and names_nothing(tree, subject):
        return [clause]
    if all(_shares_subject(tree, clause, index) for index in found):
        return [clause, *sorted(found)]
    return [clause]


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
    transitive = any(tree.relation(n) in OBJECTS for n in tail) and tree.is_verb(chain[-1])
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


def _is_bare(tree: Tree, index: int, following: int) -> bool:
    """Whether nothing that a predicate governs stands between it and the following one."""
    return not any(
        index < n < following and tree.relation(n) not in ("cc", "punct")
        for n in tree.children[index]
    )
