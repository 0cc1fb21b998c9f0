"""ROUGE-L of the package `rouge`: recorded values, its rule for ties, and texts too long for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.compat import continuous_eval
from claimflow.stages.compat.continuous_eval import EmptySourceError, rouge_with

GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
WORDS = st.lists(st.sampled_from("abc"), max_size=9)


def compared() -> Iterator[tuple[str, str, Any]]:
    """A text, its source, and what the package gave."""
    for line in filter(None, GOLDEN.read_text("utf-8").split("\n")):
        case = json.loads(line)
        per_text, per_sentence = case["expected"]["per_text"], case["expected"]["per_sentence"]
        for text, parts in zip(case["texts"], per_text, strict=True):
            yield case["answer"], text, parts["rouge_l"]
        for sentence, parts in zip(case["answer_sentences"], per_sentence, strict=True):
            yield sentence, "\n".join(case["texts"]), parts["rouge_l"]


def test_all_golden_values() -> None:
    count, errors = 0, 0
    for text, source, outcome in compared():
        count += 1
        if outcome["status"] == "error" and outcome["type"] == "ValueError":
            errors += 1
            with pytest.raises(EmptySourceError):
                rouge_with(source)(text)
            continue
        scores = outcome.get("scores") or outcome["with_raised_recursion_limit"]
        wanted = [scores[f"rouge_l_{part}"] for part in ("precision", "recall", "f1")]
        assert rouge_with(source)(text) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert (count, errors) == (1134, 8)


# What the package gives; the textbook's value differs in each.
QUIRKS = {
    # Of "a b" and "b a" it is "a" that counts as common, so "b" is found or not.
    ("a b", "b a.a"): (1 / 2, 1 / 2, 1 / 2),
    ("a b", "b a.b"): (1.0, 1.0, 1.0),
    # Full stops cut numbers.
    ("3.14", "14 3"): (1.0, 1.0, 1.0),
    # Words count once.
    ("b b b", "b c c c"): (1.0, 1 / 2, 2 / 3),
    # White space between full stops is a word.
    (". .", "x. ."): (1.0, 1 / 2, 2 / 3),
    (" ", " . x"): (1.0, 1 / 2, 2 / 3),
    # Punctuation alone is nothing, whatever the source.
    ("?!", "?!"): (0.0, 0.0, 0.0),
    ("", ""): (0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("pair", QUIRKS)
def test_quirks(pair: tuple[str, str]) -> None:
    text, source = pair
    assert rouge_with(source)(text) == pytest.approx(QUIRKS[pair], abs=1e-8)


def test_identical_texts_score_a_little_less_than_one() -> None:
    assert rouge_with("a b")("a b").f1 == pytest.approx(0.999999995, rel=1e-12)


@pytest.mark.parametrize("source", ["", "...", "."])
def test_a_source_of_full_stops_gives_no_number(source: str) -> None:
    with pytest.raises(EmptySourceError):
        rouge_with(source)("a")


def walked_back(source: list[str], words: list[str]) -> set[str]:
    """The words on the way back through the whole table of lengths, cell by cell."""
    lengths = [[0] * (len(words) + 1) for _ in range(len(source) + 1)]
    for i, ours in enumerate(source):
        for j, theirs in enumerate(words):
            better = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if ours == theirs else better
    i, j, taken = len(source), len(words), set()
    while i and j:
        if source[i - 1] == words[j - 1]:
            taken.add(words[j - 1])
            i, j = i - 1, j - 1
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return taken


@given(st.lists(WORDS, min_size=1, max_size=3), st.lists(WORDS, max_size=3), st.integers(1, 4))
def test_equals_the_table_cell_by_cell_in_blocks_of_any_size(
    sources: list[list[str]], texts: list[list[str]], block: int
) -> None:
    sources, texts = [words for words in sources if words], [words for words in texts if words]
    if not sources or not texts:
        return
    union = set().union(*(walked_back(s, t) for s in sources for t in texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuous_eval, "_BLOCK", block)
        rouge = rouge_with(".".join(map(" ".join, sources)))(".".join(map(" ".join, texts)))
    assert rouge.precision == len(union) / len(set().union(*texts))
    assert rouge.recall == len(union) / len(set().union(*sources))


def test_pieces_of_any_length_have_a_value() -> None:
    words = [f"w{n}" for n in range(5_000)]
    rouge = rouge_with(" ".join(words))(" ".join([*words[::2], "no"]))
    assert rouge[:2] == (2_500 / 2_501, 0.5)
