"""Properties of every measure of two texts, for any texts."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.bleu import character_bleu, word_bleu
from claimflow.stages.text.chrf import chrf
from claimflow.stages.text.overlap import Agreement, rouge_l, rouge_words, token_overlap
from claimflow.stages.text.tokens import Tokens, tokenize

KINDS: tuple[Tokens, ...] = ("treebank", "content", "unicode")

# Few words, so that texts share some; marks, blanks and numbers that rules look at; and
# any character at all, the control ones included.
PIECES = [
    *("cat", "Cat", "the", "can't", "cannot", "Mr.", "U.S.", "3.14", "-5", "1,000", "007", "é"),
    *("東京", "है।", "😀", "\u0301", "\x00", "\x1c", "\x85", "\u200d", "\u202e", "\ufeff"),
    *(".", "...", "?!", "'", '"', "``", "''", ",", ":", "--", "(", "]", "\n", "\t", " ", "\u2003"),
]
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
)


def overlap(kind: Tokens, part: str) -> Callable[[str, str], Agreement]:
    return lambda text, source: getattr(
        token_overlap(tokenize(text, tokens=kind), tokenize(source, tokens=kind)), part
    )


AGREEMENTS: dict[str, Callable[[str, str], Agreement]] = {
    "rouge_l": rouge_l,
    **{f"{part} {kind}": overlap(kind, part) for part in ("distinct", "clipped") for kind in KINDS},
}
NUMBERS: dict[str, Callable[[str, str], float]] = {
    "character_bleu": character_bleu,
    "chrf": chrf,
    **{
        f"word_bleu {kind}": lambda text, source, kind=kind: word_bleu(
            tokenize(text, tokens=kind), tokenize(source, tokens=kind)
        )
        for kind in KINDS
    },
}


@pytest.mark.parametrize("measure", AGREEMENTS)
@given(text=TEXTS, source=TEXTS)
def test_precision_recall_and_f1_lie_in_range_and_swap_with_the_sides(measure, text, source):
    forth, back = AGREEMENTS[measure](text, source), AGREEMENTS[measure](source, text)
    assert all(math.isfinite(part) and 0 <= part <= 1 for part in forth)
    assert (forth.precision, forth.recall) == (back.recall, back.precision)
    assert forth.f1 == pytest.approx(back.f1, rel=1e-15)
    assert min(forth[:2]) - 1e-15 <= forth.f1 <= max(forth[:2]) + 1e-15
    assert (forth.precision == 0) == (forth.recall == 0) == (forth.f1 == 0)


@pytest.mark.parametrize("measure", NUMBERS)
@given(text=TEXTS, source=TEXTS)
def test_numbers_lie_in_range(measure, text, source):
    number = NUMBERS[measure](text, source)
    assert math.isfinite(number)
    assert 0 <= number <= 1


@given(TEXTS)
def test_identical_texts_score_one(text):
    if rouge_words(text):
        assert rouge_l(text, text) == (1, 1, 1)
    if text.split():
        assert chrf(text, text) == pytest.approx(1, rel=1e-15)
    if len(text) >= 4:
        assert character_bleu(text, text) == 1
    for kind in KINDS:
        if tokens := tokenize(text, tokens=kind):
            assert token_overlap(tokens, tokens).clipped == (1, 1, 1)
            assert word_bleu(tokens, tokens) == 1
        if len(set(tokens)) == len(tokens) > 0:
            assert token_overlap(tokens, tokens).distinct == (1, 1, 1)


@given(TEXTS, st.sampled_from(["", " ", "\n\t", "\u2003"]))
def test_an_empty_side_scores_zero(text, empty):
    for source, target in ((text, empty), (empty, text), (empty, empty)):
        assert rouge_l(source, target) == (0, 0, 0)
        assert chrf(source, target) == 0
        for kind in KINDS:
            tokens, others = tokenize(source, tokens=kind), tokenize(target, tokens=kind)
            assert token_overlap(tokens, others) == ((0, 0, 0), (0, 0, 0))
            assert word_bleu(tokens, others) == 0
    assert character_bleu(text, "") == character_bleu("", text) == 0


@given(TEXTS, TEXTS, TEXTS)
def test_more_words_in_the_source_never_lower_precision(text, source, more):
    longer = f"{source}\n{more}"
    assert rouge_l(text, longer).precision >= rouge_l(text, source).precision
    for kind in KINDS:
        tokens = tokenize(text, tokens=kind)
        before = tokenize(source, tokens=kind)
        short, long = (
            token_overlap(tokens, before),
            token_overlap(tokens, before + tokenize(more, tokens=kind)),
        )
        assert long.distinct.precision >= short.distinct.precision
        assert long.clipped.precision >= short.clipped.precision


@given(TEXTS, TEXTS)
def test_the_distinct_overlap_never_exceeds_the_clipped_one(text, source):
    for kind in KINDS:
        measured = token_overlap(tokenize(text, tokens=kind), tokenize(source, tokens=kind))
        assert all(a <= b for a, b in zip(measured.distinct, measured.clipped, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@given(TEXTS, st.lists(TEXTS, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_contexts_does_not_matter_to_overlap(kind, text, contexts, chance):
    shuffled = chance.sample(contexts, len(contexts))
    measure = AGREEMENTS[f"clipped {kind}"]
    assert measure(text, "\n".join(contexts)) == measure(text, "\n".join(shuffled))
