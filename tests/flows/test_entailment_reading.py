"""What of a premise is read beside a claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.models.entailment.texts import BUDGET, Claim, Premise, legible, reading

FILLING = [f"Sentence number {n} is about nothing that anybody has asked for." for n in range(60)]
CLAIM = "The bridge was opened by Queen Mary in 1931."


def read(sentences: list[str], claim: str = CLAIM) -> str:
    return reading(Premise(" ".join(sentences)), Claim(claim))


def test_a_short_premise_is_read_whole() -> None:
    assert reading(Premise("  One. Two, and three. \n"), Claim(CLAIM)) == "One. Two, and three."
    assert reading(Premise(""), Claim(CLAIM)) == ""


def test_of_a_long_premise_what_covers_the_claim_is_read_in_its_order() -> None:
    opened = "The bridge was opened on a Monday"
    queen = "Queen Mary came from London"
    found = read([*FILLING[:20], f"{opened}.", *FILLING[20:40], f"{queen}.", *FILLING[40:]])
    assert found.index(opened) < found.index(queen)
    assert " … " in found
    assert Premise(found).size <= BUDGET


def test_what_room_is_left_goes_to_the_neighbours() -> None:
    opened = "It was opened by Queen Mary in 1931."
    found = read([*FILLING[:30], "The bridge is of steel.", opened, *FILLING[30:]], "Queen Mary.")
    assert f"The bridge is of steel. {opened} {FILLING[30][:-1]}" in found


def test_a_rare_word_counts_for_more_than_one_that_stands_everywhere() -> None:
    often = [f"The bridge of town {n} has been there for a long time already." for n in range(60)]
    rare = "A queen came"
    assert rare in read([*often[:50], f"{rare}.", *often[50:]], "The bridge was opened by a queen.")


def test_where_nothing_is_covered_the_beginning_is_read() -> None:
    assert read(FILLING, "Bananas.") == f"{FILLING[0]} {FILLING[1][:-1]}"


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
    assert legible(claim) is expected


@given(
    st.lists(st.sampled_from([*FILLING[:5], "The bridge is of steel.", "Queen Mary came."])),
    st.sampled_from([CLAIM, "Bananas.", "", "Is it? The queen."]),
)
def test_what_is_read_fits_and_is_of_the_premise(sentences: list[str], claim: str) -> None:
    premise = Premise(" ".join(sentences))
    found = reading(premise, Claim(claim))
    assert Premise(found).size <= BUDGET
    assert all(part in premise.text for part in found.split(" … "))
