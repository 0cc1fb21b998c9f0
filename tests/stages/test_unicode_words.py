import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import unicode_words as module
from claimflow.stages.text.unicode_words import unicode_words

ANNEX = 'The quick ("brown") fox can\'t jump 32.3 feet, right?'


def test_the_example_of_the_annex():
    words = ["the", "quick", "brown", "fox", "can't", "jump", "32.3", "feet", "right"]
    assert unicode_words(ANNEX) == words
    curly = ANNEX.replace('("brown")', "(“brown”)").replace("'", "’")
    assert unicode_words(curly) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n", []),
        ("?! — … 😀 👍🏽 🇩🇪 ❤\ufe0f _ ___ 's- ° € ©", ["s"]),
        ("The CAT's tail", ["the", "cat's", "tail"]),
        ("Don’t don't DON'T", ["don't"] * 3),
        ("'so' _so_ __init__ snake_case a_1 so_", ["so", "so", "init", "snake_case", "a_1", "so"]),
        ("U.S.A. e.g. example.com end. Next", ["u.s.a", "e.g", "example.com", "end", "next"]),
        ("3D COVID-19 5kg note:this", ["3d", "covid", "19", "5kg", "note", "this"]),
        ("well-known and/or a+b", ["well", "known", "and", "or", "a", "b"]),
        ("l’homme aujourd'hui", ["l'homme", "aujourd'hui"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("caf\u00e9 cafe\u0301 ＣＡＦÉ", ["café"] * 3),
        ("Вы, мир! ΣΊΣΥΦΟΣ σίσυφος", ["вы", "мир", "σίσυφοσ", "σίσυφοσ"]),
        ("مرحبا، بالعالم؟ می\u200cروم", ["مرحبا", "بالعالم", "میروم"]),
        ("צה\"ל ג'ירפה", ['צה"ל', "ג'ירפה"]),
        ("दिल्ली राजधानी है।", ["दिल्ली", "राजधानी", "है"]),
        ("대한민국의 수도", ["대한민국의", "수도"]),
        ("東京は1400万人。", ["東", "京", "は", "1400", "万", "人"]),
        ("カード ｶﾞｽ", ["カ", "ー", "ド", "ガ", "ス"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("co\u00adop \ufeffword\u2060s", ["coop", "words"]),
        ("note:this é:a ：é", ["note", "this", "é", "a", "é"]),
        ("ΐ ¸ ˜ a¸b", ["\u0390", "a\u0327b"]),
        ("H\u20dd m² ½", ["h\u20dd", "m", "2", "1⁄2"]),
        ("İSTANBUL İstanbul I\u0307stanbul istanbul", ["istanbul"] * 4),
        ("ISPARTA Isparta ısparta", ["isparta"] * 3),
        ("كتـــاب كِتَابٌ كتاب ــ", ["كتاب"] * 3),
        ("ﻛﺘﺎﺏ ﹷ القُرآن القرا\u0653ن سأل سا\u0654ل", ["كتاب", "القرآن", "القرآن", "سأل", "سأل"]),
        ("שָׁלוֹם \ufb2aלום שלום", ["שלום"] * 3),
        ("п'ять п’ять пʼять", ["п'ять"] * 3),
    ],
)
def test_words(text, words):
    assert unicode_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-3.5 °C, +2 −7 (-1) =-4", ["-3.5", "c", "+2", "-7", "-1", "-4"]),
        (
            "2019-2020 x-5 5%-6% (a)-1 3--4",
            ["2019", "2020", "x", "5", "5", "6", "a", "1", "3", "4"],
        ),
        ("p<.05 and -.5 but v.5 ...5", ["p", "0.05", "and", "-0.5", "but", "v", "5", "5"]),
        ("1,250,000 km 1’000.5 12,34,567", ["1250000", "km", "1000.5", "1234567"]),
        ("1,25 1,2,3 1,2345 1.000.000", ["1,25", "1,2,3", "1,2345", "1.000.000"]),
        ("1'000'000 3;4", ["1000000", "3", "4"]),
        ("3;4；5 é", ["3", "4", "5", "é"]),
        ("2024-05-01 10:30 v1.2.3", ["2024", "05", "01", "10", "30", "v1.2.3"]),
        ("٣٫٥ ٫ ١٬٠٠٠ ٣٫", ["٣٫٥", "١٠٠٠", "٣"]),
        ("１２ Ⅷ 10\u202f000", ["12", "viii", "10", "000"]),
    ],
)
def test_numbers_are_whole(text, words):
    assert unicode_words(text) == words


@given(st.text(alphabet="aZ9٣éא'’.,\"_ \u200b\n·‧中あกำ한ᄀ½²ⅧⒶ\u2024٬/ª", max_size=12))
def test_bounds_are_those_of_the_annex(text):
    # The regex library reads UAX #29 too. It leaves an apostrophe behind a Hebrew letter
    # (WB7a), and underscores, at the ends of words, where we take them off.
    pieces = regex.split(r"(?wV1)\b", text)
    words = [piece.strip("_'’") for piece in pieces if regex.search(r"[\p{L}\p{N}Ⓐ]", piece)]
    assert [word.lstrip(".") for word in module._WORD.findall(text)] == words


@given(st.text(alphabet="a9é'.,_ 中", max_size=8), st.sampled_from("\u0301\u20dd\u00ad\u200d"))
def test_marks_and_joiners_bound_nothing(text, mark):
    marked = "".join(character + mark for character in text)
    words = [word.lstrip(".") for word in module._WORD.findall(marked)]
    plain = [word.lstrip(".") for word in module._WORD.findall(text)]
    assert [word.replace(mark, "") for word in words] == plain


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=60))
def test_the_ascii_pattern_gives_the_same_words(text):
    assert module._ASCII_WORD.findall(text) == module._WORD.findall(text)


@given(st.text(alphabet="a.Z'_,9-+ \"(5%", max_size=20))
def test_the_ascii_pattern_gives_the_same_words_around_numbers(text):
    assert module._ASCII_WORD.findall(text) == module._WORD.findall(text)


@given(st.text(max_size=60))
def test_words_are_folded_and_hold_no_blank(text):
    for word in unicode_words(text):
        assert word.split() == [word]
        assert word == word.casefold()


@given(st.text(alphabet="aBcéÉßжЖΣς1' ΐΰǰiIıİ"))
def test_case_does_not_matter(text):
    assert unicode_words(text.upper()) == unicode_words(text.lower())


@given(st.lists(st.text(alphabet="aé9中'.,-", max_size=8), max_size=4))
def test_lines_have_words_of_their_own(lines):
    assert unicode_words("\n".join(lines)) == [w for line in lines for w in unicode_words(line)]


@pytest.mark.parametrize(
    "unit",
    [
        *("a", "1", " ", ".", "'", "_", "-", "a_", "a'", "1,", "1,000", ",000", "-1", 'א"'),
        *("\u0301", "\u0301\u0316", "a\u0316\u0301", "\u200d", "中", "😀"),
    ],
)
def test_time_is_linear(unit):
    text = "x" + unit * (100_000 // len(unit)) + "é"
    started = time.process_time()
    unicode_words(text)
    assert time.process_time() - started < 3
