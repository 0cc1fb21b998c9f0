import json
import time
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text import sentences
from claimflow.stages.text.sentences import Span, split_sentences
from claimflow.stages.text.word_lists import ABBREVIATIONS

TESTS = Path(__file__).parents[1]


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def test_spans_are_offsets_into_the_text_without_the_white_space_around():
    text = "  One two.\n\n Three? "
    assert split_sentences(text) == [Span(2, 10), Span(13, 19)]
    assert split_sentences(text)[1].start == 13


@pytest.mark.parametrize("text", ["", " ", "\n\t\n", "\u2003"])
def test_blank_text_has_no_sentence(text):
    assert split_sentences(text) == []


MARKED_WORDS = ["pág", "Él", "Müller", "März", "ggü", "й", "Św", "Évian", "डॉ", "क़", "ガ", "أ", "5"]


@given(
    st.lists(st.sampled_from([*MARKED_WORDS, ". ", " ", ".", "? ", "!", "» ", "… "]), max_size=12)
)
def test_marks_apart_from_their_letters_change_no_sentence(pieces):
    text = "".join(pieces)
    apart = split(unicodedata.normalize("NFD", text))
    assert [unicodedata.normalize("NFC", one) for one in apart] == split(
        unicodedata.normalize("NFC", text)
    )


@pytest.mark.parametrize(
    "parts",
    [
        ["Dr. Smith met Mrs. Jones at 5 p.m. on Jan. 5.", "They talked."],
        ["It costs $3.50 per lb. in the U.S. market.", "See Fig. 3 and No. 7."],
        ["The answer is no.", "But J. R. R. Tolkien wrote e.g. The Hobbit."],
        ["He lives in the U.K.", "She lives in Washington, D.C. now."],
        ['"This is great." she said.', '"Really?" he asked.', '"Yes!"', "They left."],
        ["Wait ... what?!", "No way!!!", "Fine…", "Bye."],
        ["Apple Inc. was founded in 1976.", "Visit example.com or mail a.b@c.org."],
        ["The CPU (v. 2.0) is fast.", "(It really is.)", "Good."],
        ["Yahoo! is a company.", "Who Wants to Be a Millionaire? is a show."],
        ["i like it.", "you don't.", "why not?", "ok!"],
        ["He was born in 1879.", "In 1905 he was 26.", "That is all."],
        ["It ended.[1]", "Next it began. [2]", "Good idea! 😀", "Thanks! :)", "Bye."],
        ["**Bold words.**", "_Slanted words._", "Plain."],
        ["Am 3. Oktober 1990 trat z.B. Herr Dr. Meier auf.", "Er kam gegen 20.15 Uhr an."],
        ["Am 24. Dez. ist Feiertag.", "Ele nasceu em 5 de jan. de 1990.", "Le 3 févr. et le 4."],
        ["Родился 5 янв. 1900 г. в Москве.", "In Jan. of 1990 I met Jan.", "Peter came."],
        ["Der 2. Weltkrieg endete 1945.", "Danach kam u.a. der Marshallplan."],
        ["M. Dupont est arrivé.", "« Vraiment ? » dit-il.", "Oui !"],
        ["¿Cómo está el Sr. López?", "¡Muy bien!", "Él vive en la Av. Central."],
        ["Он родился в 1799 г. в Москве.", "Его звали А. С. Пушкин.", "Кто он?"],
        ["هل أنت بخير؟", "نعم، أنا بخير.", "شكرا۔"],
        ["दिल्ली भारत की राजधानी है।", "डॉ. सिंह यहाँ हैं।"],
        ["Ինչպե՞ս ես։", "Լավ։"],
        ["Es gibt Brot, Käse usw. im Haus.", "Er kaufte Brot, Käse usw.", "Danach ging er."],
        ["Siehe S. 17 ff. und kath. Kirche.", "Unter Friedrich II. wurde gebaut."],
        ["El vuelo de aprox. 1 min. es fijo.", "Vive en EE. UU. desde 2019."],
        ["Le 3 janv. 2020, p. ex. par J.-P. Sartre, c.-à-d. lui.", "Voilà."],
        ["Площадь 120 кв. км.", "И т. д. по всей стране.", "А. И. Петров ушёл."],
        ["«Куда?» — спросила она.", "«К чему? – спросил он."],
        ["Am 3. Nov. 1888 kam sie zum 2. Mal.", "I am 5.", "Who are you?"],
        ["डॉ. ए.पी.जे. कलाम आए।", "रु. 250 दिए।", "क्षेत्रफल 5 कि.मी. है।"],
    ],
)
def test_sentences_with_blanks_between(parts):
    assert split(" ".join(parts)) == parts


@pytest.mark.parametrize(
    "parts",
    [
        ["北京是中国的首都。", "你去过吗？", "“去过！”", "很好"],
        ["東京は日本の首都です。", "人口は1400万人。", "「はい。」", "そうです！"],
        ["我们去看《摔跤吧！爸爸》好吗？", "他说（真的！对）很好。", "（是。）", "好！"],
        ["率は３．２９％です。", "彼は「本当？」と聞いた。", "「はい。そうです。」って。"],
    ],
)
def test_sentences_without_blanks_between(parts):
    assert split("".join(parts)) == parts


def test_a_stop_without_a_blank_ends_a_sentence_between_words_only():
    text = "All is fine.We left. Why?nobody knows 3.14 or Node.Js or a.b?c=d"
    assert split(text) == [
        *("All is fine.", "We left.", "Why?", "nobody knows 3.14 or Node.Js or a.b?c=d"),
    ]


def test_a_stop_that_begins_a_word_ends_no_sentence():
    assert split("It is part of the .NET platform.") == ["It is part of the .NET platform."]
    assert split("It is .5 m long. So it is.") == ["It is .5 m long.", "So it is."]


def test_list_items_are_found_by_consecutive_numbers():
    assert split("8. One 9. two") == ["8. One", "9. two"]
    assert split("9. One 10. two") == ["9. One", "10. two"]
    assert split("9. One 11. two") == ["9. One 11.", "two"]
    assert split("It has: 1. one 2. two") == ["It has:", "1. one", "2. two"]


def test_lines_bullets_and_list_numbers_end_sentences():
    text = "# Title\nSome text\n- first item\n* second item\r\n1. One. More\n2) Two\x85last"
    assert split(text) == [
        *("# Title", "Some text", "- first item", "* second item", "1. One.", "More"),
        *("2) Two", "last"),
    ]
    assert split("• 9. The first • 10. The second") == ["• 9. The first", "• 10. The second"]
    assert split("Facts: 1. Old 2. New") == ["Facts:", "1. Old", "2. New"]
    assert split("The result was Team A: 1. That was all.") == [
        *("The result was Team A: 1.", "That was all."),
    ]
    assert split("1. The first 2. The second") == ["1. The first", "2. The second"]
    assert split("iv. Fourth is this. Next") == ["iv. Fourth is this.", "Next"]
    assert split("It is in Section 7. Kelly left.") == ["It is in Section 7.", "Kelly left."]


def test_numbers_of_list_items_stand_before_white_space_of_their_line():
    assert split("99. One 100. Two 101) Three") == ["99. One", "100. Two", "101) Three"]
    assert split("1. One 2.\u00a0Two 3.\x1cThree") == ["1. One", "2.\u00a0Two", "3.\x1cThree"]
    for line_end in "\n\r\v\f\x85\u2028\u2029":
        assert split(f"1. One 2.{line_end}Two") == ["1. One 2.", "Two"]


def test_markdown_is_cut_at_its_lines():
    lines = [
        *("## Title", "| a | b |", "|---|---|", "```python", "x = 1.5", "```"),
        *("> Quoted.", "- [ ] **Item:** one.", "---", "1) Two"),
    ]
    assert split("\n\n".join(lines)) == [*lines[:7], "- [ ] **Item:** one.", "---", "1) Two"]


def labelled(file):
    path = TESTS / "data" / "sentence_split" / f"{file}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("file", "right", "texts"),
    [("ud_ewt.dev", 37, 40), ("ud_ewt.test", 116, 158), ("golden_rules", 21, 24)],
)
def test_english_texts_split_as_people_did(file, right, texts):
    cases = labelled(file)
    assert len(cases) == texts
    assert sum(split(case["text"]) == case["sentences"] for case in cases) == right


def test_texts_of_nine_languages_split_as_people_did():
    right, wrong = Counter(), Counter()
    for case in labelled("languages"):
        counted = right if split(case["text"]) == case["sentences"] else wrong
        counted[case["language"]] += 1
    assert wrong == {"ar": 2, "de": 1, "es": 1, "ru": 1, "zh": 2}
    assert right == {
        **{"ar": 7, "de": 35, "en": 15, "es": 34, "fr": 15, "hi": 7},
        **{"ja": 11, "ru": 35, "zh": 7},
    }


def test_abbreviations_of_seven_languages_end_no_sentence():
    wrong = [
        case["id"] for case in labelled("abbreviations") if split(case["text"]) != case["sentences"]
    ]
    # "MM. Dubois" and "le Pr. Martin": in other languages a sentence often ends with "mm" or "PR".
    assert wrong == ["fr-abbr-5", "fr-abbr-8"]


@pytest.mark.parametrize(
    "parts",
    [
        ["I met Max.", "Peter came.", "It is at its max.", "Then it fell."],
        ["The answer is no.", "I know.", "She likes art.", "He draws."],
        ["Das Maximum ist 5.", "Art. 5 gilt.", "Sie liebt Kunst."],
        ["Die Str. 5 ist lang.", "Er kam per astr.", "Sie blieb."],
        ["The hill is 300 m.", "Walkers need an hour.", "In 1900 M. Curie won."],
        ["It took 5 s. J. Smith won.", "It lies 3 mi. north of Rome."],
    ],
)
def test_words_that_look_like_abbreviations_end_a_sentence(parts):
    assert split(" ".join(parts)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "Some say (this is debated. No proof exists.) that he fled",
        "The list [see Table 1. It is long] helps",
        "He came (really? yes! now) early",
        "One (two (three. Four) five. Six) seven",
        "One (two [three. Four) five",
        "Rom (die Stadt. Nicht das Reich) wuchs",
        "他说(真的。对)很好",
        "It has (1. one 2. two) parts",
    ],
)
def test_no_stop_between_brackets_ends_a_sentence(text):
    assert split(f"{text}. Next.") == [f"{text}.", "Next."]


@pytest.mark.parametrize(
    "parts",
    [
        ["He fled (or so. He says it.", "She stayed.", "They met."],
        ["I am sad :( now.", "It is over.", "Good :) then."],
        ["One ) two.", "Three ( four.", "Five."],
        ["(It is.)", "(It was. It is.)", "Good."],
        ["See [1].", "And (2).", "Then it ends (at last).", "Bye."],
    ],
)
def test_a_bracket_alone_keeps_no_sentences_together(parts):
    expected = parts if "(or" not in parts[0] else ["He fled (or so.", "He says it.", *parts[1:]]
    assert split(" ".join(parts)) == expected


def test_brackets_do_not_reach_beyond_their_line_or_500_characters():
    assert split("One (two. Three\nfour) five. Six.") == [
        "One (two.",
        "Three",
        "four) five.",
        "Six.",
    ]
    inside = "Word. " * 80
    assert len(split(f"One ({inside}) two. Three.")) == 2
    far = "Word. " * 84
    assert len(split(f"One ({far}) two. Three.")) == 86
    assert len(split(f"One (two. {'Word. ' * 100}")) == 101


@given(
    st.lists(
        st.sampled_from(["(", ")", "[", "]", "One. ", "two ", "Three? ", "\n", ":( ", ":-) "]),
        max_size=20,
    )
)
def test_sentences_hold_whole_pairs_of_brackets(pieces):
    text = "".join(pieces)
    spans = split_sentences(text)
    for pair in sentences._bracketed(text):
        assert text[pair.start] + text[pair.end] in ("()", "[]")
        assert "\n" not in text[pair.start : pair.end]
        # Blank brackets apart, both are in one sentence.
        assert any(span.start <= pair.start and pair.end < span.end for span in spans)


def test_agrees_with_punkt_on_most_golden_answers():
    lines = (TESTS / "golden" / "golden_lexical.jsonl").read_text().split("\n")
    cases = [json.loads(line) for line in lines if line]
    agreed = [
        split(case["answer"]) == [sentence.strip() for sentence in case["answer_sentences"]]
        for case in cases
    ]
    assert (sum(agreed), len(agreed)) == (308, 333)


@given(st.text(alphabet=st.sampled_from("aB1.?!… \n\t\"')[]。;:-•é中😀\x00\u0301"), max_size=60))
def test_everything_outside_the_spans_is_white_space(text):
    end = 0
    for span in split_sentences(text):
        assert not text[end : span.start].strip()
        assert text[span.start : span.end] == text[span.start : span.end].strip() != ""
        end = span.end
    assert not text[end:].strip()


WORDS = ["Mr", "ff", "f.", "eks", "iv", "1", "12", "300", "XIV", "B", "food", "don't", "(x", "a-b"]
WORDS += ["etc", "No", "IV", "TV", "x", "Words", "2011", "é", "hmm", "U.S", "fine.We", "why?he"]
WORDS += ["e\u0301", "3.5", "東京。大阪", "है", "（है", "है）", "《A", "B》", "x\u00a0y", "\x00", "•"]
STOPS = [
    ". ",
    ".  ",
    "? ",
    "! ",
    "... ",
    '." ',
    ".) ",
    "?! ",
    ".\n",
    ". [1] ",
    "… ",
    "。 ",
    "! :D ",
]
STOPS += ["। ", "।) ", ".\t", " \n ", ": 1. ", " 2) ", " 2. ", " — ", ". 😀 ", "? ...", ". ", " "]
AFTER = ["The", "the", "— the", "- A", "5", "(A", "Été", "été", "\t", "\u00a0A", "Mr\t"]


@given(
    st.lists(
        st.sampled_from([*WORDS, *STOPS, *AFTER, " ", " ", *sorted(ABBREVIATIONS)]), max_size=20
    )
)
def test_the_shortcut_changes_no_sentence(pieces):
    text = "".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "_clearly_ends", lambda *_: False)
        expected = split_sentences(text)
    assert split_sentences(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("food", "any"), ("Argentina", "any"), ("2000", "any"), ("13th", "any")),
        *(('"tragedy"', "any"), ("don't", "any"), ("hmm", "capital"), ("XL", "capital")),
        *(("Mr", "unclear"), ("(etc", "unclear"), ("B", "unclear"), ("U.S", "unclear")),
        *(("eks", "unclear"), ("", "unclear"), ("((", "unclear"), ("21", "unclear")),
        *(("iv", "unclear"), ("a\tfood", "unclear"), ("Mr\t", "unclear"), ("x" * 40, "unclear")),
    ],
)
def test_what_may_follow_a_word_and_its_full_stop(text, expected):
    assert sentences._may_follow(text, ".") == expected


@pytest.mark.parametrize(
    ("word", "stop", "expected"),
    [
        *(("food", "!", "any"), ("Mr", "?", "capital"), ("", "?", "capital")),
        *(("food", "...", "capital"), ("Mr", "...", "unclear"), ("food", "?!", "capital")),
        *(("food", ".”", "unclear"), ("food", "…", "unclear"), ("food", "।", "unclear")),
        ("food", '."', "capital"),
    ],
)
def test_what_may_follow_a_word_and_another_stop(word, stop, expected):
    assert sentences._may_follow(word, stop) == expected


def test_the_cache_keeps_short_words_and_not_too_many(monkeypatch):
    monkeypatch.setattr(sentences, "_MOST_CACHED", 2)
    lengths = sentences.WordCache(len)
    assert [lengths[word] for word in ("ab", "abc", "x" * 101, "", "ab")] == [2, 3, 101, 0, 2]
    assert list(lengths) == ["", "ab"]


@pytest.mark.parametrize("before", ["", "One\n", "Why? ", "Why?! "])
@pytest.mark.parametrize("blanks", [0, 3, 12, 40])
@pytest.mark.parametrize("number", ["7.", "(7.", "Mr. 7."])
def test_blanks_before_a_sentence_belong_to_none(before, blanks, number):
    found = split(f"{before}{' ' * blanks}{number} Foo")
    assert found == split(f"{before}{number} Foo")


@pytest.mark.parametrize(
    "unit",
    [
        *("a", " ", ".", '."', "A. ", "1. ", "• ", "\n", "? ", "U.", ". [1", "e.g. x "),
        *("1) ", "Mr. ", "x.Y", ". ", "U.S", "。"),
        *("a.\u0301(", "《。", "「。」と", ": 1. ", "и т. ", "a\n", "X. Y ", "word. W"),
        *("a. (", "A. [(", "(a. B) ", "(A. ", ")A. ", "[a. (B] ", "((A. B)) "),
    ],
)
def test_time_is_linear(unit):
    text = unit * (100_000 // len(unit))
    started = time.process_time()
    split_sentences(text)
    assert time.process_time() - started < 3
