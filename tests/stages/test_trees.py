"""Claims of trees: whatever a parser says, claims are words of the sentence."""

import re

from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.claim_rules.split import split_sentence
from claimflow.stages.claim_rules.trees import Tree, claim_text
from claimflow.stages.tools import Word
from tests.stages.parsing import PARSER

RELATIONS = (
    "nsubj obj obl conj cc acl:relcl acl appos advcl parataxis nmod case det punct cop aux mark "
    "amod xcomp ccomp flat compound obl:agent"
).split()
TAGS = "NN NNS NNP VBD VBZ VBN VBG VB IN DT CC WDT WRB PRP JJ CD MD HYPH ,".split()
WORDS = (
    "Ann a the town , which who whose where and or but ( ) is was built in 1990 writing poets "
    "such as including poet - can both him Rome because while : ; old . not"
).split()


@st.composite
def trees(draw: st.DrawFn) -> tuple[str, list[Word]]:
    """A sentence with any tree: tags, relations and heads fit neither it nor each other."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=25))
    order = draw(st.permutations(range(len(words))))
    heads = {order[0]: -1}
    for place, index in enumerate(order[1:], 1):
        heads[index] = order[draw(st.integers(0, place - 1))]
    found, start = [], 0
    for index, word in enumerate(words):
        relation = "root" if heads[index] < 0 else draw(st.sampled_from(RELATIONS))
        tag = draw(st.sampled_from(TAGS))
        found.append(Word(start, start + len(word), tag, relation, heads[index]))
        start += len(word) + 1
    return " ".join(words), found


ADDED = frozenset("is was are were a an the in on at".split())


@given(trees())
def test_any_tree_gives_claims_of_its_words(drawn: tuple[str, list[Word]]) -> None:
    text, words = drawn
    known = {word.lower() for word in re.findall(r"\w+", text)} | ADDED | {"wrote", "ann's", "s"}
    for pieces in split_sentence(text, words):
        said = claim_text(pieces)
        assert {word.lower() for word in re.findall(r"\w+", said)} <= known
        spans = [(piece.start, piece.end) for piece in pieces if piece.start >= 0]
        assert all(text[start:end] for start, end in spans)


def test_a_sentence_without_a_tree_stays_whole() -> None:
    assert split_sentence("Ann left and Bo stayed.", ()) == []


def test_what_a_word_governs() -> None:
    text = "Ann, who left, was old."
    tree = Tree(text, PARSER.parse([text])[text])
    assert tree.texts[tree.root] == "old"
    subject = tree.subject(tree.root)
    assert subject == 0
    assert tree.texts.index("left") in tree.subtree(0)
    assert tree.is_contiguous(0)
    assert tree.is_past(tree.root)


def test_moved_words_form_no_ring() -> None:
    """Two corrections of the parser's tree once hung words on each other: it never ended."""
    text = (
        "She hardly needs to mention it--the media bring it up anyway--but she invokes it subtly, "
        "alluding (as she did on two Sunday talk shows) to women who drive their daughters halfway "
        "across the state to shake my hand, a woman they dare to believe in."
    )
    tree = Tree(text, PARSER.parse([text])[text])
    for index in range(len(tree.words)):
        above = [index]
        while above[-1] >= 0:
            above.append(tree.words[above[-1]].head)
            assert len(above) == len(set(above))
