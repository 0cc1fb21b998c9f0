"""Ungrounded words of a claim, and sentences that no claim covers."""

import pytest

from claimflow.stages.claim_rules.grounding import (
    declarative_sentences,
    uncovered_sentences,
    ungrounded_words,
    word_forms,
)

TEXT = "The Eiffel Tower, designed by Gustave Eiffel, was built in Paris from 1887 to 1889."


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("The Eiffel Tower was built in Paris.", []),
        ("Gustave Eiffel's tower was being built.", []),  # a possessive, other small words
        ("Gustave Eiffel is the designer.", []),  # designed
        ("They build towers in Paris.", []),  # built is another word than build
        ("The Eiffel Tower was built in 1888.", ["1888"]),
        ("The Eiffel Tower was built in 188.", ["188"]),
        ("The Eiffel Tower is in France.", ["france"]),
        ("Iron, iron and iron again makes the Tower.", ["iron", "makes"]),
    ],
)
def test_words_that_are_not_in_the_text(claim: str, words: list[str]) -> None:
    assert ungrounded_words(claim, word_forms(TEXT), "English") == words


@pytest.mark.parametrize(
    ("text", "claim", "words"),
    [
        ("It plays in Austria.", "It plays in Australia.", ["australia"]),
        ("Mötley Crüe played.", "Motley Crue plays.", []),
        ("It cost 1,250,000 dollars.", "It cost 1250000 dollars.", []),
        ("It cost 1,250,000 dollars.", "It cost 1250007 dollars.", ["1250007"]),
        ("She ran.", "She rang.", ["rang"]),
        ("It stands.", "Die Stadt.", ["die", "stadt"]),
        ("Films are played.", "A film is playing.", []),
        ("Le Havre est grand.", "Les grandes villes.", ["les", "villes"]),
    ],
)
def test_inflections_and_spellings_of_one_word_are_the_same(
    text: str, claim: str, words: list[str]
) -> None:
    assert ungrounded_words(claim, word_forms(text), None) == words


def test_function_words_of_the_language_are_no_content_words() -> None:
    text, claim = "Der Turm steht in Paris.", "Der Turm wurde nicht in Paris gebaut."
    assert ungrounded_words(claim, word_forms(text), "German") == ["gebaut"]
    assert ungrounded_words(claim, word_forms(text), "English") == ["wurde", "nicht", "gebaut"]


def sentences_without(text: str, *claims: str) -> list[tuple[str, list[str]]]:
    found = uncovered_sentences(declarative_sentences(text), claims, "English")
    return [(text[one.start : one.end], one.words) for one in found]


def test_a_sentence_that_no_claim_covers() -> None:
    text = "Hello! The tower is in Paris. It has 1665 steps and a lift. Shall I go on?"
    assert sentences_without(text, "The tower is in Paris.") == [
        ("It has 1665 steps and a lift.", ["1665", "steps", "lift"])
    ]
    assert sentences_without(text, "The tower is in Paris.", "The tower has 1665 steps.") == [], (
        "two of three words are there"
    )
    assert len(sentences_without(text)) == 2


def test_links_and_code_are_no_statements() -> None:
    text = "See [the tower](https://example.com/a/b/c).\n```\nbuild --tower\n```\n"
    assert sentences_without(text, "See the tower.") == []


def test_a_long_run_of_combining_marks_takes_bounded_time() -> None:
    word = "a" + "\u0301\u0327" * 100_000
    assert ungrounded_words(word, word_forms(word), None) == []
