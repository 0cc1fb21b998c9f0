"""Cutting a text in two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.text.sentences import halve, split_sentences

SENTENCES = st.lists(
    st.sampled_from(["Ann left.", "So?", "one two three", "Dr. No ran!", "是。", "\n\n", " ", "x"]),
    max_size=14,
).map(" ".join)


def halves(text: str, overlap: int) -> tuple[str, ...]:
    return tuple(text[start:end] for start, end in halve(text, overlap=overlap) or ())


@pytest.mark.parametrize(
    ("text", "overlap", "expected"),
    [
        ("One. Two. Six. Ten.", 0, ("One. Two.", "Six. Ten.")),
        ("One. Two. Six. Ten.", 1, ("One. Two. Six.", "Two. Six. Ten.")),
        ("One. Two. Six. Ten. Car. Bus.", 1, ("One. Two. Six. Ten.", "Six. Ten. Car. Bus.")),
        ("One. Two. Six.", 2, ("One. Two.", "Two. Six.")),
        ("One. Two.", 2, ("One.", "Two.")),
        (" \n One.  Two. \n", 0, ("One.", "Two.")),
        ("one two  three four", 0, ("one two", "three four")),
        ("one two three four five six", 1, ("one two three four", "three four five six")),
        ("one two", 5, ("one", "two")),
    ],
)
def test_between_sentences_and_in_one_between_words(
    text: str, overlap: int, expected: tuple[str, str]
) -> None:
    assert halves(text, overlap) == expected


@pytest.mark.parametrize(
    ("lengths", "in_the_left"),
    [((9, 9, 90), 2), ((90, 9, 9), 1), ((30, 60, 5, 5), 1), ((5, 5, 60, 30), 3)],
)
def test_the_cut_is_the_one_nearest_to_the_middle(
    lengths: tuple[int, ...], in_the_left: int
) -> None:
    left, _ = halves("\n".join("x" * length for length in lengths), 0)
    assert len(left.split("\n")) == in_the_left


@pytest.mark.parametrize("text", ["", " \n\t", "word", "  word. "])
def test_nothing_to_cut(text: str) -> None:
    assert halve(text, overlap=0) is None


@given(SENTENCES, st.integers(0, 4))
def test_halves_cover_all_and_are_shorter(text: str, overlap: int) -> None:
    found = halve(text, overlap=overlap)
    if found is None:
        assert len(text.split()) < 2
        return
    left, right = found
    outside = text[: left.start], text[left.end : right.start], text[right.end :]
    assert not "".join(outside).strip()
    for start, end in found:
        assert 0 < end - start < len(text.strip())
        assert text[start:end] == text[start:end].strip()


@given(SENTENCES, st.integers(0, 4))
def test_halves_hold_whole_sentences_and_share_as_many_as_asked(text: str, overlap: int) -> None:
    sentences = split_sentences(text)
    if len(sentences) < 2:
        return
    found = halve(text, overlap=overlap)
    assert found is not None
    in_left = [span for span in sentences if span.end <= found[0].end]
    in_right = [span for span in sentences if span.start >= found[1].start]
    assert (in_left[-1].end, in_right[0].start) == (found[0].end, found[1].start)
    shared = len(in_left) + len(in_right) - len(sentences)
    at_most = min(2 * overlap, len(sentences) - 2)
    assert shared <= at_most
    if shared < at_most:
        assert len(sentences) - 1 in (len(in_left), len(in_right))


@given(SENTENCES, st.integers(0, 4))
def test_cutting_again_and_again_ends(text: str, overlap: int) -> None:
    for _ in range(len(text) + 1):
        found = halve(text, overlap=overlap)
        if found is None:
            return
        text = max((text[start:end] for start, end in found), key=len)
    pytest.fail("still not ended")


@pytest.mark.parametrize("piece", ["a. ", "a ", "\n", ".", "(", "a.b. ", "1) ", "“a ”"])
def test_a_text_of_many_characters_is_cut(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    found = halve(text, overlap=2)
    if found is None:
        assert len(text.split()) < 2
    else:
        assert all(0.4 < (end - start) / len(text) < 0.6 for start, end in found)
