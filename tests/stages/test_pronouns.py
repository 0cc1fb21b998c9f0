"""Unresolved pronouns of a claim."""

import pytest

from claimflow.stages.claim_rules.pronouns import unresolved_pronoun


@pytest.mark.parametrize(
    ("claim", "pronoun"),
    [
        ("He was born in 1879.", "He"),
        ("In 1905 she moved to Bern.", "she"),
        ("Later she moved to Bern.", "she"),
        ("Her father was a doctor.", "Her"),
        ("They're in Paris.", "They"),
        ("It is located in Paris.", "It"),
        ("This was in 1990.", "This"),
        ("These are found in Paris.", "These"),
        ("If it is, you must delete the cluster.", "it"),
        ("Einstein said that he left.", None),
        ("The city and its people are old.", None),
        ("After he left Bern, Einstein wrote again.", None),
        ("Paris is large.", None),
        ("This tower is old.", None),
        ("That he left is known.", "he"),
        ("It is known that Paris is large.", None),
        ("It was Einstein who left.", None),
        ("It was in 1990 that Germany was united.", None),
        ("It may be difficult to see.", None),
        ("It seems that Paris is large.", None),
        ("It is unclear whether Paris is large.", None),
        ("It is important to note that Paris is large.", None),
        ("It is not known when Paris was built.", None),
        ("It was built when Paris was small.", "It"),
        ("It is close to Paris.", "It"),
        ("It is a planet that can be walked on.", "It"),
        ("It is used to harden a surfboard.", "It"),
        ("It was appointed to the Supreme Court.", "It"),
        ("It introduces commands that are new.", "It"),
        ("It is used in towers that are tall.", "It"),
        ("It rains in Paris.", None),
        ("It was snowing.", None),
        ("", None),
        ("...", None),
    ],
)
def test_unresolved_pronouns(claim: str, pronoun: str | None) -> None:
    assert unresolved_pronoun(claim) == pronoun


def test_only_the_beginning_of_a_long_claim_is_read() -> None:
    assert unresolved_pronoun("word " * 100_000 + "he left") is None
    assert unresolved_pronoun("it is known that " * 50_000) == "it"
