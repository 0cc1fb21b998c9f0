import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import ngrams
from claimflow.stages.text.comparison import Comparison
from claimflow.stages.text.ngrams import shared_ngrams, shared_units

TEXT = st.text(alphabet="ab\n\0é東\U0001f600", max_size=12)
COMPARISONS = st.lists(st.builds(Comparison, st.lists(TEXT, max_size=4), TEXT), max_size=5)


def ngrams_of(text, n):
    return Counter(text[k : k + n] for k in range(len(text) - n + 1))


def by_definition(comparisons, orders):
    return [
        [(ngrams_of(text, n) & ngrams_of(source, n)).total() for n in range(1, orders + 1)]
        for texts, source in comparisons
        for text in texts
    ]


@pytest.mark.parametrize("largest", [0, 50, 1 << 22])
@pytest.mark.parametrize("batch", [1, 30, 65_536])
@given(comparisons=COMPARISONS, orders=st.integers(1, 6))
def test_equal_the_definition_in_any_batches_by_table_or_by_sorting(
    comparisons, orders, largest, batch
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_LARGEST_TABLE", largest)
        patch.setattr(ngrams, "_BATCH", batch)
        shared = shared_ngrams(comparisons, orders=orders)
    assert shared.tolist() == by_definition(comparisons, orders)


@pytest.mark.parametrize("batch", [1, 30, 65_536])
@given(comparisons=COMPARISONS)
def test_shared_units_equal_the_definition_in_any_batches(comparisons, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_BATCH", batch)
        distinct, clipped = shared_units(comparisons)
    pairs = [(text, source) for texts, source in comparisons for text in texts]
    assert distinct.tolist() == [len(set(text) & set(source)) for text, source in pairs]
    assert clipped.tolist() == [(Counter(text) & Counter(source)).total() for text, source in pairs]


def test_the_table_is_cleared_between_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "_BATCH", 1)
        many = [Comparison(["abcdefgh" * 4], "hgfedcba"), Comparison(["ha"], "ahah")]
        assert shared_ngrams(many, orders=3).tolist() == by_definition(many, 3)


@pytest.mark.parametrize("text", ["a" * 100_000, "the cat sat. " * 8_000, "東京都に住む" * 17_000])
def test_long_texts_take_bounded_time(text):
    started = time.process_time()
    sentences = [text[k : k + 60] for k in range(0, len(text), 60)]
    shared = shared_ngrams([Comparison(sentences, text), Comparison([text], text)], orders=4)
    assert shared[-1].tolist() == [len(text) - n for n in range(4)]
    assert shared[0].tolist() == [60, 59, 58, 57]
    assert time.process_time() - started < 3
