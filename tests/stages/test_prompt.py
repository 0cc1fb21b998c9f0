import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.prompt import blanks, fill


def test_blanks_stand_on_lines() -> None:
    assert blanks("one {{text}}\ntwo {{ text }}\n{{examples}}") == {"text": 1, "examples": 3}
    assert blanks('no blank: {text} {"json": {}} {{}} {{two words}}') == {}


@given(st.text(), st.text())
def test_what_is_filled_in_is_left_alone(one: str, two: str) -> None:
    assert fill("<{{a}}|{{b}}>", {"a": one, "b": two}) == f"<{one}|{two}>"


def test_a_text_under_evaluation_cannot_name_a_blank() -> None:
    assert fill("{{text}}", {"text": "{{secret}}", "secret": "x"}) == "{{secret}}"


def test_a_blank_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill("{{text}}", {})
