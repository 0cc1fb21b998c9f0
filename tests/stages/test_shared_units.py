from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import batches
from claimflow.stages.text.batches import Comparison
from claimflow.stages.text.overlap import shared_units

TEXT = st.text(alphabet="abc\n\0\U0001f600", max_size=9)
COMPARISONS = st.lists(st.builds(Comparison, st.lists(TEXT, max_size=4), TEXT), max_size=5)


@pytest.mark.parametrize("batch", [1, 30, 65_536])
@given(comparisons=COMPARISONS)
def test_equal_the_definition_in_any_batches(comparisons, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_BATCH", batch)
        distinct, clipped = shared_units(comparisons)
    pairs = [(text, source) for texts, source in comparisons for text in texts]
    assert distinct.tolist() == [len(set(text) & set(source)) for text, source in pairs]
    assert clipped.tolist() == [(Counter(text) & Counter(source)).total() for text, source in pairs]
