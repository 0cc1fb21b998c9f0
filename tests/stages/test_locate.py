"""Locating quotations, and the sentence that a claim comes from."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.locate import find_quote, source_sentences

TEXT = "“It’s Über-cold,” she said.\nThe  river — the Elbe — froze; the river (Elbe) thawed."


def found(quote: str, text: str = TEXT) -> str | None:
    span = find_quote(quote, text)
    return None if span is None else text[span.start : span.end]


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("river", "river"),
        ("  the Elbe — froze;\n", "the Elbe — froze;"),
        ("froze", "froze"),
        ("(Elbe)", "(Elbe)"),
        ('"It\'s ÜBER cold"', "It’s Über-cold"),
        ("she said: the river - The Elbe", "she said.\nThe  river — the Elbe"),
        ("the river, Elbe", "the river (Elbe"),
        ("THAWED!", "thawed"),
        ("it", "It"),
    ],
)
def test_a_quotation_is_found_verbatim_or_by_its_words(quote: str, expected: str) -> None:
    assert found(quote) == expected


@pytest.mark.parametrize(
    "quote",
    [
        "",
        " \n",
        "...",
        "the river Rhine",
        "Elbe the",
        "the … thawed",
        "RIVE",
        "er — the Elbe froze",
        "thawed. And then",
    ],
)
def test_words_that_the_text_does_not_hold_have_no_place(quote: str) -> None:
    assert find_quote(quote, TEXT) is None


def test_the_first_place_counts() -> None:
    assert find_quote("a b", "x a b a b") == (2, 5)
    assert find_quote("A-b", "x a b a b") == (2, 5)
    assert find_quote("a b", "A b, a b") == (5, 8), "as it stands goes before by its words"


@pytest.mark.parametrize("text", ["", " ", "...", "\n\n"])
def test_a_text_without_words_holds_no_words(text: str) -> None:
    assert find_quote("word", text) is None
    assert find_quote("-", text) is None


@pytest.mark.parametrize(
    ("quote", "text", "expected"),
    [
        ("groß", "sehr GROSS!", "GROSS"),
        ("İZMİR OK", "x İzmİr, ok y", "İzmİr, ok"),
        ("東京都。\n大阪", "（東京都。大阪）", "東京都。大阪"),
    ],
)
def test_folding_that_changes_the_length_of_a_word(quote: str, text: str, expected: str) -> None:
    assert found(quote, text) == expected


@pytest.mark.parametrize(
    ("quote", "expected"),
    [("café, Ñandú", "cafe\u0301 – N\u0303andu\u0301"), ("दिल्ली", "दिल्ली"), ("क़लम", "क\u093cलम")],
)
def test_marks_apart_from_their_letters_are_found(quote: str, expected: str) -> None:
    text = "The cafe\u0301 – N\u0303andu\u0301 दिल्ली क\u093cलम."
    assert found(quote, text) == expected
    assert found(unicodedata.normalize("NFD", quote), text) == expected


@pytest.mark.parametrize("quote", ["cafe", "Nandu", "ल", "दिल"])
def test_a_letter_without_its_marks_is_no_word_of_the_text(quote: str) -> None:
    assert find_quote(f"- {quote} -", "cafe\u0301 N\u0303andu\u0301 दिल्ली.") is None


@given(st.text(), st.data())
def test_a_part_of_a_text_is_found_verbatim(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    quote = text[start : data.draw(st.integers(start, len(text)))]
    assert found(quote, text) == (quote.strip() or None)


@given(st.text(max_size=20), st.text())
def test_no_quotation_and_no_text_raises(quote: str, text: str) -> None:
    span = find_quote(quote, text)
    assert span is None or 0 <= span.start < span.end <= len(text)


@given(
    st.lists(st.sampled_from(["Ann", "bob", "ÇA", "9"]), min_size=1, max_size=8),
    st.lists(st.sampled_from([" ", "\n", " “", "” – ", "... "]), min_size=7, max_size=7),
    st.data(),
)
def test_characters_between_words_do_not_count(
    words: list[str], between: list[str], data: st.DataObject
) -> None:
    text = "".join(a + b for a, b in zip([*words, ""], ["«", *between], strict=False))
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    quote = "—".join(words[first : last + 1]).swapcase()
    place = found(quote, text)
    assert place is not None
    assert re.findall(r"\w+", place.casefold()) == quote.casefold().split("—")


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("a " * 299 + "b", "a " * 500_000),
        ("A " * 400_000 + "b", "a " * 500_000),
        ("a b", "a" + " " * 1_000_000),
        ("a " * 1000 + "b", ("a" + "." * 1000) * 1000),
        ("a" * 1000 + "b", "a" * 1_000_000),
        ("(" * 500_000, "(" * 499_999 + " a" * 250_000),
    ],
)
def test_a_million_characters_are_searched(quote: str, text: str) -> None:
    assert find_quote(quote, text) is None


def test_a_quotation_of_any_length_is_found_by_its_words() -> None:
    words = [f"w{number}" for number in range(100_000)]
    assert find_quote("\n".join(words[1:-1]), " ".join(words)) == (3, len(" ".join(words[:-1])))


def test_a_claim_was_drawn_from_the_sentence_that_shares_most_of_its_words() -> None:
    text = "Ann met Bob in Rome. She left with him.\nBob’s sister Ann met Cy in RÖM 1,000 times."
    claims = ["Ann met Bob.", "Cy met 1000 people in röm.", "She was with him.", "", "Oslo is old."]
    first, last = (0, 20), (40, len(text))
    assert source_sentences(claims, text) == [first, last, None, None, None]
    assert source_sentences(["Ann met."], text) == [first], "the first of equals"
    assert source_sentences(["a"], "") == [None]
    assert source_sentences([], text) == []


@given(st.lists(st.text(max_size=20), max_size=4), st.text())
def test_no_claim_and_no_text_raises(claims: list[str], text: str) -> None:
    spans = source_sentences(claims, text)
    assert len(spans) == len(claims)
    assert all(span is None or text[span.start : span.end].strip() for span in spans)
