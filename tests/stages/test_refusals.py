"""Refusals, and texts that look like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.refusals import is_refusal


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "I don’t know the answer to that question.",
        "I do not have specific information on whether common stocks differ per unit.",
        "I'm sorry, but I cannot answer this question.",
        "Sorry, I can't help with that.",
        "I am not sure.",
        "Unable to answer based on given passages.",
        "The provided context does not mention the author.",
        "The documents do not explicitly state the price.",
        "According to the provided documents, there is no explicit information about it.",
        "There is not enough information to answer.",
        "Based on the context, it is not possible to determine the year.",
        "No information is available on this topic.",
        "As an AI language model, I do not have access to real-time data.",
        "Unfortunately, I could not find the date. Please provide more details.",
        "I apologize, but the text does not contain this.",
        "N/A",
        "Unknown.",
        "Ich weiß es nicht.",
        "我不知道。",
        "抱歉，我不知道。",
        "No sé.",
        "No se\u0301.",
        "no se",
        "Lo siento, no sé.",
        "Es tut mir leid, ich weiß es nicht.",
        "Désolé, je ne sais pas.",
        "Eu não sei.",
        "I cannot answer that, ma'am.",
    ],
)
def test_a_refusal(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris",
        "No, the scanner does not read encrypted images.",
        "I don't know the year, but it happened in Paris.",
        "The text does not mention the year. It was 1990.",
        "Marie Curie did not know the answer.",
        "The museum does not contain any paintings.",
        "The unknown soldier was buried in Arlington.",
        "There is no cure.",
        "I don't eat meat.",
        "Let me know when it ends.",
        "I am sorry.",
        "No se vende en España.",
        "No sé, pero creo que es Madrid.",
        "Ich weiß nicht, aber es war 1990.",
        "Je ne sais pas, mais il est né à Paris.",
        "Non lo so, ma è nato a Roma.",
        "Não sei, mas foi em 1990.",
        "Я не знаю, но это было в 1990.",
        "我不知道，但是在北京。",
        "わかりません、でも東京です。",
        "لا أعرف، لكن ولد في القاهرة.",
    ],
)
def test_no_refusal(text: str) -> None:
    assert not is_refusal(text)


@given(st.text(max_size=300))
def test_any_text_is_classified(text: str) -> None:
    assert is_refusal(text) in (True, False)


@pytest.mark.parametrize("words", ["but ", "as an ai so so so ", "well, but ", "as an ai "])
def test_text_of_nothing_but_openings_takes_no_exponential_time(words: str) -> None:
    """With the phrases unlimited each of these texts takes years."""
    assert not is_refusal((words * 200)[:790] + "x")
