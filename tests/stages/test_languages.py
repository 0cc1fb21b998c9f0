"""Language detection, and texts whose language is uncertain."""

import pytest

from claimflow.stages.text.languages import FUNCTION_WORDS, language_of

TOLD = {
    "English": "The tower was built in 1889 and it is still the tallest of them.",
    "German": "Der Turm wurde 1889 gebaut und ist noch der höchste von allen.",
    "French": "La tour est la plus haute de la ville et elle est dans le parc.",
    "Spanish": "La torre es la más alta de la ciudad y está en el parque.",
    "Italian": "La torre è la più alta della città e non è nel parco.",
    "Portuguese": "A torre não é a mais alta da cidade, mas também está no parque.",
    "Dutch": "De toren werd in 1889 gebouwd en is nog de hoogste van het land.",
    "Swedish": "Tornet är det högsta i landet och byggdes för att visa hur det kan göras.",
    "Danish or Norwegian": "Tårnet er det højeste i landet og blev bygget af to mænd.",
    "Polish": "Wieża jest najwyższa w kraju i nie może być wyższa od tego, co było przed nią.",
    "Cyrillic": "Башня стоит в Париже.",
    "Arabic": "البرج في باريس.",
    "Devanagari": "मीनार पेरिस में है।",
    "Greek": "Ο πύργος είναι στο Παρίσι.",
    "Hangul": "탑은 파리에 있다.",
    "Japanese": "塔はパリにあります。",
    "Chinese": "这座塔位于法国首都巴黎市中心。",
    "Thai": "หอคอยอยู่ในปารีส",
    "Bengali": "টাওয়ারটি প্যারিসে অবস্থিত।",
    "Tamil": "கோபுரம் பாரிஸில் உள்ளது.",
    "Burmese": "မျှော်စင်သည် ပါရီတွင် ရှိသည်။",
    "Georgian": "კოშკი პარიზშია.",
}


@pytest.mark.parametrize(("language", "text"), TOLD.items(), ids=TOLD)
def test_the_language_of_a_sentence(language: str, text: str) -> None:
    assert language_of(text) == language


def test_every_language_with_function_words_is_tested() -> None:
    assert set(FUNCTION_WORDS) <= set(TOLD)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1889",
        "🗼",
        "Eiffel Tower 1889",
        "Einstein was born in Ulm.",
        "東京都",
        "Los Angeles",
        "The Hague",
    ],
)
def test_uncertain_texts_have_no_language(text: str) -> None:
    """ "was" and "in" are German, too."""
    assert language_of(text) is None


@pytest.mark.parametrize(
    "text",
    ["I love seafood , what do you like to eat ?", "i do. i like to drive cars on public roads."],
)
def test_chats_in_english_are_of_no_other_language(text: str) -> None:
    assert language_of(text) in ("English", None)


def test_one_word_of_a_name_is_not_enough() -> None:
    assert language_of("Los Angeles Rams, Los Angeles") is None


def test_the_script_of_most_letters_counts() -> None:
    assert language_of("The tower (Эйфелева башня) is in Paris, and it is of iron.") == "English"
    assert language_of("Эйфелева башня (Eiffel) стоит в Париже.") == "Cyrillic"


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert language_of(TOLD["German"] * 100 + TOLD["English"] * 10_000) == "German"
