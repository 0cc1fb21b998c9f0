"""The excerpt of a premise that the network reads with a claim."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.models.entailment.texts import (
    EXCERPT_TOKENS,
    PreparedClaim,
    PreparedPremise,
    is_mostly_latin,
    premise_excerpt,
)

FILLING = [f"Sentence number {n} is about nothing that anybody has asked for." for n in range(60)]
CLAIM = "The bridge was opened by Queen Mary in 1931."


def excerpt(sentences: list[str], claim: str = CLAIM) -> str:
    return premise_excerpt(PreparedPremise(" ".join(sentences)), PreparedClaim(claim))


def test_a_short_premise_is_read_whole() -> None:
    assert (
        premise_excerpt(PreparedPremise("  One. Two, and three. \n"), PreparedClaim(CLAIM))
        == "One. Two, and three."
    )
    assert premise_excerpt(PreparedPremise(""), PreparedClaim(CLAIM)) == ""


def test_the_excerpt_of_a_long_premise_covers_the_claim_in_order() -> None:
    opened = "The bridge was opened on a Monday"
    queen = "Queen Mary came from London"
    found = excerpt([*FILLING[:20], f"{opened}.", *FILLING[20:40], f"{queen}.", *FILLING[40:]])
    assert found.index(opened) < found.index(queen)
    assert " … " in found
    assert PreparedPremise(found).size <= EXCERPT_TOKENS


def test_a_premise_of_equal_lines_takes_no_longer_for_more_of_them() -> None:
    """Each line was weighed again for each that was chosen."""
    premise = PreparedPremise("- item\n" * 20_000)
    started = time.process_time()
    found = premise_excerpt(premise, PreparedClaim("The item was good."))
    assert time.process_time() - started < 2
    assert 50 < found.count("item") <= EXCERPT_TOKENS


def test_tokens_that_are_left_go_to_neighbours() -> None:
    opened = "It was opened by Queen Mary in 1931."
    found = excerpt(
        [*FILLING[:30], "The bridge is of steel.", opened, *FILLING[30:]], "Queen Mary."
    )
    assert f"The bridge is of steel. {opened} {FILLING[30][:-1]}" in found


def test_rare_words_weigh_more_than_common_ones() -> None:
    often = [f"The bridge of town {n} has been there for a long time already." for n in range(60)]
    rare = "A queen came"
    assert rare in excerpt(
        [*often[:50], f"{rare}.", *often[50:]], "The bridge was opened by a queen."
    )


def test_without_shared_words_the_beginning_is_read() -> None:
    assert excerpt(FILLING, "Bananas.") == f"{FILLING[0]} {FILLING[1][:-1]}"


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("The tower.", True),
        ("Der Turm für Élodie.", True),
        ("1931", True),
        ("Лев Толстой", False),
        ("北京", False),
        ("القاهرة هي عاصمة مصر.", False),
        ("The name of Лев Толстой is known.", True),
    ],
)
def test_the_network_reads_latin_letters(claim: str, *, expected: bool) -> None:
    assert is_mostly_latin(claim) is expected


@given(
    st.lists(st.sampled_from([*FILLING[:5], "The bridge is of steel.", "Queen Mary came."])),
    st.sampled_from([CLAIM, "Bananas.", "", "Is it? The queen."]),
)
def test_the_excerpt_fits_and_is_of_the_premise(sentences: list[str], claim: str) -> None:
    premise = PreparedPremise(" ".join(sentences))
    found = premise_excerpt(premise, PreparedClaim(claim))
    assert PreparedPremise(found).size <= EXCERPT_TOKENS
    assert all(part in premise.text for part in found.split(" … "))
