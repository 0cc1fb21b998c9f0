"""Sentences as Punkt splits them: recorded ones, and the quirks of its procedure one by one."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.compat.punkt import punkt_sentences

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in punkt_sentences(text)]


def test_all_golden_sentences() -> None:
    cases = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]
    for case in cases:
        assert cut(case["answer"]) == case["answer_sentences"], case["id"]
        assert cut("\n".join(case["texts"])) == case["context_sentences"], case["id"]
    assert len(cases) == 333


# What NLTK 3.9.1's PunktSentenceTokenizer gives with our word lists as its parameters.
PROCEDURE = {
    "": [],
    " \t\n": [],
    "  One. Two?\n\nThree!  ": ["  One.", "Two?", "Three!"],
    "One.Two": ["One.Two"],
    "Really?!No": ["Really?", "!No"],
    "?!": ["?", "!"],
    "a !{?} b": ["a !", "{?}", "b"],
    " !{?} b": [" !{?}", "b"],
    "It ended.[1] Next": ["It ended.", "[1] Next"],
    'He said "go." Then (he left.) So.': ['He said "go."', "Then (he left.)", "So."],
    'She ran.") "Yes." x': ['She ran.")', '"Yes."', "x"],
    'Wait.)--no "yes." ': ["Wait.)", '--no "yes."'],
    "Mr. Lee of Acme Inc. left. The U.S. The end.": [
        *("Mr. Lee of Acme Inc. left.", "The U.S.", "The end."),
    ],
    "The vice-gov. spoke. A non-abbr. Word": ["The vice-gov. spoke.", "A non-abbr.", "Word"],
    "Fig. 3 e.g. that, i.e. this": ["Fig.", "3 e.g.", "that, i.e.", "this"],
    "Dr. Who?!": ["Dr.", "Who?", "!"],
    "J. Smith and J. S. Bach met in Hall B. The end": [
        *("J. Smith and J. S. Bach met in Hall B.", "The end"),
    ],
    "In 1928. The 3. item is 4. 5 and 6.: x": ["In 1928.", "The 3. item is 4.", "5 and 6.: x"],
    "Well... The end... the .. End 3.. x": ["Well...", "The end... the .. End 3.. x"],
    "Ja. . . . Nein . a": ["Ja.", ".", ".", ".", "Nein .", "a"],
    "中文。第二句. 第三": ["中文。第二句.", "第三"],
    "a\u00a0be. C\u00a0d.\u00a0e": ["a\u00a0be.", "C\u00a0d.\u00a0e"],
    "Say ‘no.’ Then «go.» On": ["Say ‘no.’ Then «go.» On"],
}


@pytest.mark.parametrize("text", PROCEDURE)
def test_the_procedure(text: str) -> None:
    assert cut(text) == PROCEDURE[text]


@given(st.text(st.sampled_from("aB1.?! \n\"')]([-,;"), max_size=30) | st.text())
def test_sentences_are_in_order_and_leave_out_white_space_alone(text: str) -> None:
    place = 0
    for start, end in punkt_sentences(text):
        assert start < end
        assert not text[place:start].strip()
        place = end
    assert not text[place:].strip()


@pytest.mark.parametrize("piece", ["a.)", "? ", "!", ". ", "a.\u00a0", "x" * 5, '."', "U.S. "])
def test_the_time_is_linear(piece: str) -> None:
    started = time.process_time()
    punkt_sentences(piece * (100_000 // len(piece)))
    assert time.process_time() - started < 3
