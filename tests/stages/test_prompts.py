import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.prompts import blanks, fill, fill_settings, split_prompt

PIECES = st.lists(
    st.sampled_from(
        ["{{claims}}", "{{ premise }}", "{{\nclaims\n}}", "\n", "a", "{", "}}", "\r\n"]
    ),
    max_size=12,
).map("".join)


def test_blanks_have_line_numbers() -> None:
    assert blanks("one {{text}}\ntwo {{ text }}\n{{examples}}") == {"text": 1, "examples": 3}
    assert blanks('no blank: {text} {"json": {}} {{}} {{two words}}') == {}


@given(st.text(), st.text())
def test_filled_in_values_are_not_filled_again(one: str, two: str) -> None:
    assert fill("<{{a}}|{{b}}>", {"a": one, "b": two}) == f"<{one}|{two}>"


def test_a_text_under_evaluation_cannot_name_a_blank() -> None:
    assert fill("{{text}}", {"text": "{{secret}}", "secret": "x"}) == "{{secret}}"


def test_a_blank_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill("{{text}}", {})


def test_settings_are_filled_first_and_texts_later() -> None:
    prompt = "{{ texts }} as {{atomicity}} as {{ atomicity }}\n{{coverage}}"
    filled = fill_settings(prompt, {"atomicity": "low", "coverage": "high", "unused": "x"})
    assert filled == "{{ texts }} as low as low\nhigh"
    assert fill(filled, {"texts": "\\1 {{coverage}}"}) == "\\1 {{coverage}} as low as low\nhigh"


def test_a_setting_cannot_contain_a_blank() -> None:
    with pytest.raises(ValueError, match="coverage holds a blank"):
        fill_settings("{{coverage}}", {"coverage": "{{texts}}"})


def test_a_prompt_is_split_before_the_line_of_the_first_text() -> None:
    texts = {"premise", "claims"}
    assert split_prompt("a\nb\n\nThe {{premise}}\nc {{claims}}\nd", texts) == (
        "a\nb\n\n",
        "The {{premise}}\nc {{claims}}\nd",
    )
    assert split_prompt("{{claims}} a\n{{premise}}", texts) == ("", "{{claims}} a\n{{premise}}")
    assert split_prompt("a\r\n{{premise}}", texts) == ("a\r\n", "{{premise}}")


def test_only_blanks_of_texts_may_be_open_when_a_prompt_is_split() -> None:
    with pytest.raises(ValueError, match="not texts: atomicity, coverage"):
        split_prompt("{{coverage}}\n{{texts}} {{atomicity}}", {"texts"})
    with pytest.raises(ValueError, match="none of the blanks claims, premise"):
        split_prompt("no blank", {"premise", "claims"})


@given(PIECES, st.text())
def test_the_parts_joined_are_the_prompt(prompt: str, value: str) -> None:
    texts = {"premise", "claims"}
    if not blanks(prompt):
        return
    static, varying = split_prompt(prompt, texts)
    assert static + varying == prompt
    assert blanks(static) == {}
    assert static == "" or static.endswith("\n")
    assert next(iter(blanks(varying).values())) == 1
    values = dict.fromkeys(texts, value)
    assert static + fill(varying, values) == fill(prompt, values)
