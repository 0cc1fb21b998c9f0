import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.unicode_words import to_nfc


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cafe\u0301", "caf\u00e9"),
        ("caf\u00e9", "caf\u00e9"),
        ("\u1112\u1161\u11ab", "\ud55c"),
        ("ﬁne ½ Ａ", "ﬁne ½ Ａ"),
        ("plain", "plain"),
        ("", ""),
        ("\ud800e\u0301", "\ud800\u00e9"),
    ],
)
def test_letters_and_marks_become_one_character(text, expected):
    assert to_nfc(text) == expected


@given(st.text(max_size=40))
def test_it_is_normalization_form_c(text):
    assert to_nfc(text) == unicodedata.normalize("NFC", text)


def test_a_long_run_of_marks_is_left_alone():
    allowed, run = "e" + "\u0301" * 30, "e" + "\u0301" * 31
    assert to_nfc(allowed) == "é" + "\u0301" * 29
    assert to_nfc(run) == run


def test_time_is_linear():
    text = "e" + "\u0301\u0316" * 100_000
    started = time.process_time()
    assert to_nfc(text) == text
    assert time.process_time() - started < 1
