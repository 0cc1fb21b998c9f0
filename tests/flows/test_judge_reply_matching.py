"""Entries of a reply, and the questions that they answer."""

import itertools
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from claimflow.flows.judge.reply_matching import match_entries, retry_message
from claimflow.stages.rows import FailureKind
from claimflow.stages.tools import Form


class Verdict(BaseModel):
    reason: str
    verdict: Literal["entailed", "contradicted", "neutral"]


class Statements(BaseModel):
    model_config = ConfigDict(extra="forbid")

    claims: list[str]


VERIFY = Form("{{premise}}{{claims}}", "claims", Verdict, 8, True)
DECOMPOSE = Form("{{texts}}", "texts", Statements, 8, False)


def entry(number: Any, verdict: str = "entailed", reason: str = "It says so.") -> dict[str, Any]:
    return {"id": number, "reason": reason, "verdict": verdict}


def verdict(verdict: Any = "entailed", reason: str = "It says so.") -> Verdict:
    return Verdict(reason=reason, verdict=verdict)


def test_every_open_id_gets_its_entry() -> None:
    matched = match_entries({"claims": [entry(1), entry(2, "neutral")]}, VERIFY, [1, 2])
    assert matched == ({1: verdict(), 2: verdict("neutral")}, {}, False)


def test_texts_are_matched_like_claims() -> None:
    value = {"texts": [{"id": 1, "claims": ["a", "b"]}, {"id": 2, "claims": []}]}
    answers = {1: Statements(claims=["a", "b"]), 2: Statements(claims=[])}
    assert match_entries(value, DECOMPOSE, [1, 2]) == (answers, {}, False)


REPAIRED = {
    "other order": {"claims": [entry(2, "neutral"), entry(1)]},
    "bare list": [entry(1), entry(2, "neutral")],
    "equal duplicates": {"claims": [entry(1), entry(2, "neutral"), entry(1)]},
    "ids as text": {"claims": [entry("1"), entry("2", "neutral")]},
    "ids as fractions": {"claims": [entry(1.0), entry(2.0, "neutral")]},
    "text beside the list": {"claims": [entry(1), entry(2, "neutral")], "note": "Done."},
    "an unknown id": {"claims": [entry(1), entry(2, "neutral"), entry(3)]},
    "an entry without id": {"claims": [entry(1), entry(2, "neutral"), {"verdict": "entailed"}]},
    "an entry of text": {"claims": [entry(1), entry(2, "neutral"), "Done."]},
}


@pytest.mark.parametrize("value", REPAIRED.values(), ids=REPAIRED)
def test_what_can_be_determined_is_accepted(value: Any) -> None:
    assert match_entries(value, VERIFY, [1, 2]) == ({1: verdict(), 2: verdict("neutral")}, {}, True)


def test_the_order_of_names_in_an_entry_is_nothing_to_repair() -> None:
    turned = {"verdict": "neutral", "reason": "It says so.", "id": 1}
    assert match_entries({"claims": [turned]}, VERIFY, [1]) == ({1: verdict("neutral")}, {}, False)


def test_one_entry_alone_answers_one_open_id() -> None:
    assert match_entries(entry(2), VERIFY, [2]) == ({2: verdict()}, {}, True)
    assert match_entries({"id": 1, "claims": ["a"]}, DECOMPOSE, [1]).answers == {
        1: Statements(claims=["a"])
    }
    problems = match_entries(entry(2), VERIFY, [1, 2]).problems
    assert [kind for kind, _ in problems.values()] == ["invalid", "invalid"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "id 3 is missing"),
        ([entry(4)], "id 3 is missing; id 4 was not asked for"),
        ([entry("three")], 'id 3 is missing; id "three" was not asked for'),
        ([entry(3.5)], "id 3 is missing; id 3.5 was not asked for"),
        ([entry("03")], 'id 3 is missing; id "03" was not asked for'),
        ([entry(None)], "id 3 is missing; an entry has no id"),
        ([entry([3])], "id 3 is missing; an entry has no id"),
        ([{"reason": "", "verdict": "neutral"}], "id 3 is missing; an entry has no id"),
        ([entry(4), "3"], "id 3 is missing; an entry is no object; id 4 was not asked for"),
        ([entry(4), [entry(3)]], "id 3 is missing; an entry is no object; id 4 was not asked for"),
        ([entry(9), entry(7), entry(8), entry(6)], "id 3 is missing; id 6 was not asked for; "
         "id 7 was not asked for; id 8 was not asked for"),
    ],
)  # fmt: skip
def test_an_id_without_entry_is_missing_and_never_guessed(entries: Any, message: str) -> None:
    assert match_entries({"claims": entries}, VERIFY, [3])[:2] == ({}, {3: ("missing", message)})


def test_true_is_no_id() -> None:
    matched = match_entries({"claims": [entry(True)]}, VERIFY, [1])
    assert matched.problems == {1: ("missing", "id 1 is missing; id true was not asked for")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (entry(2, "maybe"), "id 2: verdict must be 'entailed', 'contradicted' or 'neutral'"),
        (entry(2, "Entailed"), "id 2: verdict must be 'entailed', 'contradicted' or 'neutral'"),
        ({"id": 2, "reason": ""}, "id 2: verdict is missing"),
        ({"id": 2}, "id 2: reason is missing; verdict is missing"),
        (entry(2) | {"reason": 7}, "id 2: reason must be a valid string"),
    ],
)
def test_an_entry_of_another_form_is_invalid(wrong: Any, message: str) -> None:
    matched = match_entries({"claims": [entry(1), wrong]}, VERIFY, [1, 2])
    assert matched[:2] == ({1: verdict()}, {2: ("invalid", message)})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"claims": "a"}, "id 1: claims must be a valid list"),
        ({"claims": ["a", 2]}, "id 1: claims.1 must be a valid string"),
        ({"claims": [], "title": "A"}, "id 1: title was not asked for"),
    ],
)
def test_statements_of_another_form_are_invalid(wrong: Any, message: str) -> None:
    matched = match_entries({"texts": [{"id": 1} | wrong]}, DECOMPOSE, [1])
    assert matched[:2] == ({}, {1: ("invalid", message)})


@pytest.mark.parametrize(
    "others",
    [
        [entry(2, "neutral")],
        [entry(2, reason="Else.")],
        [entry("2", "neutral")],
        [entry(2), entry(2, "neutral")],
        [entry(2, "maybe")],
        [{"id": 2}],
    ],
)
def test_two_different_entries_for_one_id_are_a_conflict(others: Any) -> None:
    for entries in itertools.permutations([entry(2), *others]):
        matched = match_entries({"claims": [entry(1), *entries]}, VERIFY, [1, 2])
        assert matched.answers == {1: verdict()}
        assert matched.problems == {2: ("conflict", "id 2 is answered twice, differently")}


def test_the_same_wrong_entry_twice_is_invalid() -> None:
    matched = match_entries({"claims": [entry(2, "maybe"), entry(2, "maybe")]}, VERIFY, [2])
    assert [kind for kind, _ in matched.problems.values()] == ["invalid"]


SHAPES = [
    None, "entailed", 3, True, {}, {"claim": [entry(1)]}, {"claims": "none"}, {"claims": None},
    {"claims": {"1": entry(1)}}, {"claims": {"id": 1}}, [1, 2], ["entailed"], [[entry(1)]],
    {"claims": ["entailed", "neutral"]}, {"1": entry(1), "2": entry(2)}, {"texts": [entry(1)]},
]  # fmt: skip


@pytest.mark.parametrize("value", SHAPES)
def test_a_reply_of_another_shape_is_invalid_for_all(value: Any) -> None:
    why = 'the reply must be an object with the list "claims" of entries with ids'
    problems = {1: ("invalid", why), 2: ("invalid", why)}
    assert match_entries(value, VERIFY, [1, 2]) == ({}, problems, False)


def test_an_id_that_is_no_longer_open_is_not_answered_again() -> None:
    value = {"claims": [entry(1, "neutral"), entry(2), entry(3, "neutral")]}
    assert match_entries(value, VERIFY, [2]) == ({2: verdict()}, {}, True)


def test_answers_come_in_the_order_asked() -> None:
    value = {"claims": [entry(3), entry(1), entry(2)]}
    assert list(match_entries(value, VERIFY, [1, 2, 3]).answers) == [1, 2, 3]


HOSTILE = "ignore\nall\u202e\ud800 " * 500


def test_messages_stay_short_and_on_one_line() -> None:
    values = [
        [entry(HOSTILE), entry(HOSTILE[1:]), entry(10**4000), entry(-1e300)],
        [entry(1) | {HOSTILE: 1}],
        [{"id": 1, "claims": [], HOSTILE: 1, HOSTILE[1:]: 1, HOSTILE[2:]: 1, HOSTILE[3:]: 1}],
        [{"id": 1, "claims": [1] * 1000}],
    ]
    for value in values:
        (message,) = (text for _, text in match_entries(value, DECOMPOSE, [1]).problems.values())
        assert len(message) <= 300
        assert message.isprintable()


class Wordy(BaseModel):
    claims: list[str]

    @field_validator("claims")
    @classmethod
    def _complain(cls, claims: list[str]) -> list[str]:
        raise ValueError(" ".join(claims))


def test_a_check_of_the_form_may_say_why_but_not_at_length() -> None:
    form = DECOMPOSE._replace(answer=Wordy)
    short = match_entries([{"id": 1, "claims": ["a\nb"]}], form, [1]).problems
    assert short == {1: ("invalid", "id 1: claims: Value error, a b")}
    ((_, message),) = match_entries(
        [{"id": 1, "claims": ["word\n" * 500]}], form, [1]
    ).problems.values()
    assert len(message) <= 300
    assert message.isprintable()


def ask_again(**problems: tuple[FailureKind, str]) -> str:
    return retry_message({int(number[1:]): problem for number, problem in problems.items()}, None)


def test_a_re_ask_tells_what_was_wrong_and_asks_for_the_open_ids() -> None:
    message = ask_again(_5=("missing", "id 5 is missing"), _2=("conflict", "id 2 is twice"))
    assert message == (
        "Your last reply cannot be used as it is:\n- id 5 is missing\n- id 2 is twice\n\n"
        "Answer again for the ids 2, 5 only, in the same form."
    )
    assert ask_again(_2=("missing", "id 2 is missing")).endswith(
        "\n\nAnswer again for the ids 2 only, in the same form."
    )


def test_a_re_ask_says_the_same_thing_once() -> None:
    whole = "the reply holds no JSON object"
    message = retry_message({1: ("unparseable", whole), 2: ("unparseable", whole)}, whole)
    assert message.count(whole) == 1
    assert retry_message({1: ("missing", "id 1 is missing")}, whole).splitlines()[1:3] == [
        f"- {whole}",
        "- id 1 is missing",
    ]


def test_a_re_ask_stays_short() -> None:
    problems = {n: ("missing", f"id {n} is missing {HOSTILE}") for n in range(1, 41)}
    lines = retry_message(problems, HOSTILE).splitlines()
    assert len(lines) == 24
    assert lines[-3] == "- and 21 more like these"
    assert max(len(line) for line in lines[:-1]) <= 302
    assert lines[-1].startswith("Answer again for the ids 1, 2, 3,")


IDS = st.integers(0, 5) | st.sampled_from(["1", "2", 2.0, True, None, "x", 1.5])
SAID = st.builds(entry, IDS, st.sampled_from(["entailed", "neutral", "maybe"]))
ENTRIES = st.lists(SAID | st.sampled_from([None, "x", {}, {"id": 3}, [1]]), max_size=6)


@given(
    ENTRIES.flatmap(lambda entries: st.tuples(st.just(entries), st.permutations(entries))),
    st.booleans(),
)
def test_the_order_of_entries_changes_nothing(two: tuple[list[Any], list[Any]], bare: bool) -> None:
    first, second = (
        match_entries(value if bare else {"claims": value}, VERIFY, [1, 2, 3]) for value in two
    )
    assert first[:2] == second[:2]


@given(ENTRIES, st.lists(st.integers(0, 5), unique=True, min_size=1))
def test_every_open_id_is_answered_or_a_problem(entries: list[Any], open_ids: list[int]) -> None:
    matched = match_entries({"claims": entries}, VERIFY, open_ids)
    assert matched.answers.keys() | matched.problems.keys() == set(open_ids)
    assert not matched.answers.keys() & matched.problems.keys()
    for number, answer in matched.answers.items():
        mine = [
            one
            for one in entries
            if isinstance(one, dict) and one.get("id") in (number, str(number))
        ]
        assert answer.verdict in [one["verdict"] for one in mine]
