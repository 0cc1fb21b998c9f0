"""Features of the entailment model: tokens, pieces, evidence windows and alignment."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimflow.flows.models.entailment.features import (
    Alignment,
    best_window,
    candidates,
)
from claimflow.flows.models.entailment.texts import MAX_PIECE_TOKENS, PreparedClaim, PreparedPremise
from claimflow.flows.models.entailment.tokens import stem, tokenize
from claimflow.flows.models.entailment.word_relations import opposites, share_root


def keys(text: str) -> list[str]:
    return [token.key for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thousand 1,000 1000", ["#1000"] * 3),
        ("1.234.567 1,234,567 1.5 3,5", ["#1234567", "#1234567", "#1.5", "#3.5"]),
        ("2.5 million, 2500000", ["#2500000", "#2500000"]),
        ("the 20th and 1990s", ["the", "#20", "and", "#1990"]),
        ("1000ft 1000 feet", ["#1000", "foot"] * 2),
        ("5% 5 percent", ["#5", "percent"] * 2),
        ("Sept. September Сентябрь", ["september"] * 3),
        ("don't cannot", ["do", "n't", "cannot"]),
        ("Café cafe", ["caf", "caf"]),
        ("-LRB- x -RRB-", ["x"]),
        ("cities city discovered discovers", ["cit", "cit", "discover", "discover"]),
        ("東京 Tokyo", ["東", "京", "tokyo"]),
        ("", []),
        ("…!? \n", []),
    ],
)  # fmt: skip
def test_keys(text: str, expected: list[str]) -> None:
    assert keys(text) == expected


def test_kinds() -> None:
    kinds = [token.kind for token in tokenize("In May 2001 the Bank of Spain paid 5 euros.")]
    expected = "stop stop number stop name stop name word number unit"
    assert kinds == expected.split()


def test_a_capital_at_the_start_of_a_sentence_is_no_name() -> None:
    assert [t.kind for t in tokenize("Prices rose. Wages fell in Rome.")][-1] == "name"
    assert [t.kind for t in tokenize("Prices rose. Wages")] == ["word"] * 3


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_tokens_lie_in_order_inside_the_text(text: str) -> None:
    tokens = tokenize(text)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
    assert all(token.key and token.form for token in tokens)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["word", "12", ". Next", "\n", " " * 250, "字"]), max_size=400))
def test_pieces_hold_every_token_and_are_short(parts: list[str]) -> None:
    text = " ".join(parts)
    premise = PreparedPremise(text)
    assert {t.start for piece in premise.tokens for t in piece} == {
        token.start for token in tokenize(text)
    }
    assert all(0 < len(piece) <= MAX_PIECE_TOKENS for piece in premise.tokens)
    for (start, end), piece in zip(premise.pieces, premise.tokens, strict=True):
        assert (start, end) == (piece[0].start, piece[-1].end)


def test_long_sentences_are_cut_with_an_overlap() -> None:
    premise = PreparedPremise(" ".join(f"word{n}x" for n in "abcdefghij" for _ in range(20)))
    starts = [tokens[0].start for tokens in premise.tokens]
    ends = [tokens[-1].end for tokens in premise.tokens]
    assert len(starts) > 2
    assert all(start < end for start, end in zip(starts[1:], ends, strict=False))


def test_candidates_are_the_pieces_with_most_content() -> None:
    premise = PreparedPremise(
        "Rain falls. The tower is in Paris. Paris is old. Snow is white. Ice. Fog."
    )
    (part,) = PreparedClaim("The tower of Paris").parts
    assert candidates(premise, part) == [1, 2, 0, 3]


def test_a_window_includes_a_neighbour_that_covers_more() -> None:
    premise = PreparedPremise("Snow fell. The tower is in Paris. It is 1000 feet high. Ice melts.")
    (part,) = PreparedClaim("The tower in Paris is 1000 feet high").parts
    assert best_window(premise, part) == range(1, 3)
    (part,) = PreparedClaim("The tower is in Paris").parts
    assert best_window(premise, part) == range(1, 2)


def test_among_equal_windows_the_first_is_taken() -> None:
    premise = PreparedPremise("Rome is old. Paris is old. Paris is large.")
    (part,) = PreparedClaim("Paris is huge").parts
    assert best_window(premise, part) == range(1, 2)


def align(claim: str, evidence: str) -> Alignment:
    return Alignment(PreparedClaim(claim), tokenize(evidence))


def test_alignment_tells_absent_from_missing() -> None:
    alignment = align("The election of 1931 was democratic.", "A democracy elected him in 1930.")
    assert [token.form for token in alignment.absent] == ["election", "1931", "democratic"]
    assert [token.form for token in alignment.missing] == ["1931"]
    assert alignment.covered(alignment.missing) == pytest.approx(1 - 1.5 / 3.5)


@pytest.mark.parametrize(
    ("claim", "evidence", "opposed"),
    [
        ("Sales increased.", "Sales decreased.", True),
        ("The act was lawful.", "The act was unlawful.", True),
        ("The act was unlawful.", "The act was lawful.", True),
        ("Sales increased.", "Sales increased and costs decreased.", False),
        ("Sales increased.", "Sales were flat.", False),
    ],
)
def test_opposites_count_only_for_missing_words(claim: str, evidence: str, opposed: bool) -> None:
    assert align(claim, evidence).opposed is opposed


@pytest.mark.parametrize(
    ("claim", "evidence", "negations"),
    [
        ("It is not old.", "It is old.", (1, 0)),
        ("It was cured.", "It wasn't cured.", (0, 1)),
        ("Das Haus ist alt.", "Das Haus ist nicht alt.", (0, 1)),
        ("The house is old.", "Nobody came since then and the house is old.", (0, 0)),
        ("The house is old.", "The house is old, but no old man is in the house.", (0, 0)),
        ("The house is old.", "It is not the case, the house is old.", (0, 0)),
        ("The house is not old.", "No, the house is not old.", (1, 1)),
        ("Is there no house?", "No house is there.", (1, 1)),
    ],
)
def test_negations_count_near_shared_content(
    claim: str, evidence: str, negations: tuple[int, int]
) -> None:
    assert align(claim, evidence).negations == negations


def test_word_relations() -> None:
    assert share_root("democracy", "democratic")
    assert not share_root("contract", "contain")
    assert not share_root("cat", "cats")
    assert stem("unlawful") in opposites("lawful")
    assert stem("decreasing") in opposites("increased")
