import math
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.rows import canonical, content_key

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_keys_never_change() -> None:
    assert content_key("claim", "s", "response", "Paris is in France.", 0) == (
        "4c2bff04-3358-dce2-86f7-7eeb9db5f67f"
    )
    assert canonical({"b": [1, 0.5, None], "a": "ä🙂\ud800"}) == (
        b'{"a":"\xc3\xa4\xf0\x9f\x99\x82\xed\xa0\x80","b":[1,0.5,null]}'
    )


@given(JSON, JSON)
def test_different_values_have_different_keys(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) == (
        content_key("t", one) == content_key("t", other)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("1",), (1,)),
        ((1,), (True,)),
        ((None,), ("null",)),
        ((), ([],)),
    ],
)
def test_keys_depend_on_types_and_splits(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    assert content_key("t", *one) != content_key("t", *other)


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_mapping_keys_does_not_matter(values: dict[str, int]) -> None:
    assert canonical(values) == canonical(dict(reversed(values.items())))


def test_a_key_is_a_uuid_and_nan_has_none() -> None:
    assert str(UUID(content_key("t"))) == content_key("t")
    with pytest.raises(ValueError, match="JSON compliant"):
        content_key("t", math.nan)
