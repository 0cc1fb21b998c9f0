"""One statement for each example: "in films such as A and B"."""

from collections.abc import Sequence
from typing import Final

from claimflow.stages.claim_rules.coordinated import QUANTITIES
from claimflow.stages.claim_rules.detached import are_joined, names_nothing, stands_behind
from claimflow.stages.claim_rules.lexicon import indefinite_article, singular
from claimflow.stages.claim_rules.trees import Pieces, Tree, added, again, joined, trimmed
from claimflow.stages.text.word_lists import word_set

_SEVERAL: Final = word_set("number variety range series string lot list host")
"""In "a number of towns, including Rome" it is the towns of which Rome is an example."""


def examples(tree: Tree, predicate: int, pieces: Pieces) -> list[Pieces]:
    """ "in films such as A and B": in films, in A, in B."""
    here = tree.here(pieces)
    for noun in _objects(tree, predicate, here):
        several = tree.of(noun, "nmod") if tree.lows[noun] in _SEVERAL else []
        kinds = [noun, *several]
        for kind, first in ((one, n) for one in kinds for n in tree.of(one, "nmod")):
            members = [first, *(n for n in tree.conjuncts(first) if n in here)]
            if first in here and _introduces_examples(tree, noun, first, members):
                return _with_examples(tree, noun, kind, members, pieces)
    return [pieces]


def _objects(tree: Tree, predicate: int, here: frozenset[int]) -> list[int]:
    """The nouns behind a predicate that it governs, outermost first: "wrote songs for films"."""
    found: list[int] = []
    waiting = [predicate]
    while waiting:
        above = waiting.pop(0)
        inner = [
            n
            for n in tree.of(above, "obj", "obl", "nmod")
            if n in here and n > predicate and not names_nothing(tree, n)
        ]
        found += inner
        # Such as the songs of "continued to write songs".
        waiting += [*inner, *(n for n in tree.of(above, "xcomp") if tree.tag(n) == "VB")]
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


def _with_examples(
    tree: Tree, noun: int, kind: int, members: list[int], pieces: Pieces
) -> list[Pieces]:
    """The statement up to its examples, one for each example, and what kind of thing each is.

    `kind` is the noun that the examples are of: the towns in "a number of towns, including Rome".
    """
    first = members[0]
    shown = tree.places(pieces, tree.subtree(first))
    main = trimmed(pieces[: shown[0]])
    behind = trimmed(pieces[shown[-1] + 1 :])  # "in 1987" in "prizes, such as A in 1987"
    # "particularly in sports": what stands before the preposition is of the whole phrase.
    case = max(tree.subtrees(tree.of(noun, "case")), default=-1)
    phrase = frozenset(n for n in tree.subtree(noun) if n > case)
    before = pieces[: tree.places(pieces, phrase)[0]]
    here = tree.here(pieces)
    begins = [min(tree.subtree(member)) for member in members]
    found = [main]
    for place, member in enumerate(members):
        end = begins[place + 1] if member != members[-1] else len(tree.words)
        left_out = tree.subtrees(tree.of(member, "case", "cc"))
        shown_here = (tree.subtree(first) & here) - left_out
        words = tree.tidied(n for n in shown_here if begins[place] <= n < end)
        example = joined(again(before), tree.pieces(words))
        found.append(joined(example, behind) if member == members[-1] else example)
        found.append(_kind_of_example(tree, kind, member, words))
    return [statement for statement in found if statement]


def _kind_of_example(tree: Tree, noun: int, member: int, words: Sequence[int]) -> Pieces:
    """ "Love is a film" of "films such as Love"; empty for what is no name or no regular plural."""
    if not words:
        return []
    kind = singular(tree.lows[noun]) if tree.tag(noun) == "NNS" else None
    named = tree.texts[member][0].isupper() and tree.tag(member) not in ("NNS", "NNPS")
    begins = tree.texts[words[0]][0].isupper() or tree.lows[words[0]] == "the"
    # "prizes such as the Wolf Prize"
    said = any(tree.lows[n] == kind for n in words)
    if kind is None or said or not begins or not named or not tree.texts[noun].islower():
        return []
    bracket = next((n for n in words if tree.texts[n] == "("), len(tree.words))
    name = tree.pieces(tree.tidied(n for n in words if n < bracket), again=True)
    kinds = [n for n in tree.of(noun, "amod", "compound") if tree.lows[n] not in QUANTITIES]
    kinds = [n for n in kinds if n < noun]
    if any(tree.tag(n) in ("JJS", "JJR", "VBG") for n in kinds):
        kinds = tree.of(noun, "compound")
    described = tree.pieces(sorted(tree.subtrees(kinds)), again=True)
    article = added(indefinite_article(described[0].text if described else kind), "DT")
    return [*joined(name, [added("is"), article]), *described, added(kind, "NN")]
