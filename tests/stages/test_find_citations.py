"""Citation markers of a response: what each points to, and the claims that they belong to."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.citations import FindCitations
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.rows import Claim, Sample, content_key
from claimflow.stages.tables import build
from claimflow.stages.text.citations import MOST_CITATIONS, cited_by, find_marks

PARIS = "https://en.wikipedia.org/wiki/Paris_(city)"
CONTEXTS = [
    "Paris is big (https://x.org/a).",
    f"Rome is old. See {PARIS}.",
    "Oslo is cold: https://x.org/a",
    "Bonn is small.",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris is big [1].", [("[1]", 0)]),
        ("Paris is big.[1]", [("[1]", 0)]),
        ("Paris is big [1][3].", [("[1]", 0), ("[3]", 2)]),
        ("Paris is big [ 1, 3 ].", [("[1]", 0), ("[3]", 2)]),
        ("Paris is big [1-3].", [("[1]", 0), ("[2]", 1), ("[3]", 2)]),
        ("Paris is big [1–2; 4].", [("[1]", 0), ("[2]", 1), ("[4]", 3)]),
        ("Paris is big [4-5].", [("[4]", 3), ("[5]", None)]),
        ("Paris is big [9].", [("[9]", None)]),
        ("Paris is big [0].", [("[0]", None)]),
        ("Paris is big【2】 and 【1†source】.", [("【2】", 1), ("【1†source】", 0)]),
        ("Big [Doc 2]. Old [Source: 3].", [("[Doc 2]", 1), ("[Source: 3]", 2)]),
        ("Big [Doc 2, Doc 3].", [("[2]", 1), ("[3]", 2)]),
        ("As doc 2 says, and (Document 3).", [("doc 2", 1), ("(Document 3)", 2)]),
        ("As Doc 9 says.", []),
        ("Paris is big (2).", [("(2)", 1)]),
        ("Paris is big (1, 2), and Rome is old. (3)", [("[1]", 0), ("[2]", 1), ("(3)", 2)]),
        ("It was big in 1889 (2).", [("(2)", 1)]),
        ("(2) Paris is big.\n  (1) Rome is old.", []),
        ("There are: (1) Paris, (2) Rome", []),
        ("Founded in (1999). Of twelve (12) or two (2).", []),
        ("f(2), x (2), 5 = (2) and step (2).", []),
        ("Paris is big (9).", []),
        ("Paris is big.¹ Rome is old²³.", [("¹", 0), ("[2]", 1), ("[3]", 2)]),
        (
            "Paris¹,⁴ and Rome¹⁻² and 1889³.",
            [("[1]", 0), ("[4]", 3), ("[1]", 0), ("[2]", 1), ("³", 2)],
        ),
        ("5 km², 10², x², E=mc², R² and sin².", []),
        ("Big<sup>1</sup>. 3 m<sup>2</sup>.", [("<sup>1</sup>", 0)]),
        ("Big.[^1] Old.[^a]\n\n[^1]: Paris is big.\n[^a]: Doc 3, p. 5", [("[^1]", 0), ("[^a]", 2)]),
        ("Big.[^b]", [("[^b]", None)]),
        ("Big [1].\n\n[1]: https://x.org/a", [("[1]", 0), ("[1]", 2)]),
        ("Big [3].\n\nSources:\n[1] https://y.org\n[3] https://y.org/b", [("[3]", 2)]),
        (f"Old: {PARIS}.", [(PARIS, 1)]),
        (f"It is [old]({PARIS}).", [(PARIS, 1)]),
        ("It is big (https://x.org/a/).", [("https://x.org/a", 0), ("https://x.org/a", 2)]),
        ("See https://x.org/ab, [this](https://y.org) and ![1](https://y.org/p.png).", []),
        ("Big [1](https://y.org).", [("[1]", 0)]),
        ("x ∈ [1, 2], the range [1, 2], [0, 1] and [2019].", []),
        ("`a[1]` and\n```py\nb[2]\n```\nthen [3].", [("[3]", 2)]),
        ("~~~\nb[2]", []),
        ("- [1, 2] Paris", [("[1]", 0), ("[2]", 1)]),
        ("**Paris** (2).", [("(2)", 1)]),
        ("", []),
    ],
)
def test_markers(text: str, expected: list[tuple[str, int | None]]) -> None:
    marks = find_marks(text, CONTEXTS).marks
    assert [(mark.marker, mark.passage) for mark in marks] == expected


def test_a_text_without_markers_knows_where_its_characters_were() -> None:
    text = (
        "It is [old](https://y.org) [1] ([2]), as doc 2 says (Doc 3).\n[1]: x\n```\ncode\n```\nSo¹."
    )
    found = find_marks(text, None)
    assert found.text == "It is [old](https://y.org), as doc 2 says.\nSo."
    for words in ("It is", "(https://y.org), as", "says.", "So."):
        start = found.text.index(words)
        first, last = found.original(start, start + len(words))
        assert (text[first], text[last - 1]) == (words[0], words[-1])
        assert find_marks(text[first:last], None).text.endswith(words)


def test_a_marker_has_its_place_and_is_cut_from_the_text() -> None:
    text = "Paris is big [1, 2], yes. It is [old](https://x.org/a)."
    found = find_marks(text, CONTEXTS)
    assert found.text == "Paris is big, yes. It is old."
    assert [text[mark.start : mark.end] for mark in found.marks] == [
        "[1, 2]",
        "[1, 2]",
        *["[old](https://x.org/a)"] * 2,
    ]


CLAIMS = ["Paris is big.", "Rome is old."]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("Paris is big [1]. Rome is old [2].", [[0], [1]]),
        ("Paris is big. [1] Rome is old. [2]", [[0], [1]]),
        ("Paris is big.[^1] Rome is old.[^2]\n\n[^1]: Rome is old.", [[0], [1]]),
        ("[1] Paris is big.\n[2] Rome is old.", [[0], [1]]),
        ("Paris is big.\n[1]\n\nRome is old.\n[2]", [[0], [1]]),
        ("- Paris is big (1)\n- [Rome is old](https://x.org/a)", [[0], [0, 2]]),
        ("Paris [1] is big [2][1], I say [9].", [[0, 1, None], []]),
        ("Paris is big [1], and Rome is old [2].", [[0, 1], [0, 1]]),
        ("Paris is big.¹ Rome is old.²", [[0], [1]]),
        ("Paris is big [1]. The sky is blue [2].", [[0], []]),
        ("Paris is big.", [[], []]),
        ("[1][2]", [[], []]),
    ],
)
def test_a_claim_has_the_citations_of_its_sentence(
    response: str, expected: list[list[int | None]]
) -> None:
    cited = cited_by(CLAIMS, response, CONTEXTS)
    assert [[mark.passage for mark in marks] for marks in cited] == expected


def test_the_marker_in_a_claim_is_no_word_of_another_sentence() -> None:
    response = "In 2 cities, 3 of 4 are old. Oslo is cold [2-3]."
    (cited,) = cited_by(["Oslo is [2-3]."], response, CONTEXTS)
    assert [mark.passage for mark in cited] == [1, 2]


def find(response: str | None, contexts: list[str] | None) -> list[dict[str, Any]]:
    samples = [{"sample_id": "s", "response": response, "retrieved_contexts": contexts}]
    claims = [
        {"claim_id": content_key("claim", text), "sample_id": "s", "of": "response", "claim": text}
        for text in CLAIMS
    ]
    claims.append(claims[0] | {"claim_id": content_key("none"), "claim": None, "status": "failed"})
    tables = {"samples": build(Sample, samples), "response_claims": build(Claim, claims)}
    return FindCitations().make(tables, {}).to_dicts()


def test_a_claim_of_several_sentences_has_the_citations_of_all() -> None:
    response = "Paris is big.[^1] Rome is old.[^2] Oslo is cold.[^3]"
    (cited,) = cited_by(["Paris is big.[^1] Rome is old.[^2]"], response, CONTEXTS)
    assert [mark.passage for mark in cited] == [0, 1]


def test_rows() -> None:
    rows = find("Paris is big [1, 7]. Rome is old [1][9][9].", CONTEXTS)
    paris, rome = (content_key("claim", text) for text in CLAIMS)
    assert [tuple(row.values()) for row in rows] == [
        (paris, "s", "[1]", 0, 13, 19),
        (paris, "s", "[7]", None, 13, 19),
        (rome, "s", "[1]", 0, 33, 36),
        (rome, "s", "[9]", None, 36, 39),
    ]
    assert find(None, CONTEXTS) == find("Paris is big [1].", None) == []
    assert [row["passage"] for row in find("Paris is big [1].", [])] == [None]


def test_a_claim_has_a_limited_number_of_citations() -> None:
    contexts = ["x"] * 100
    (cited,) = cited_by(["Paris is big."], "Paris is big [1-90][91][5].", contexts)
    assert [mark.passage for mark in cited] == list(range(MOST_CITATIONS))


PIECES = [
    *("Paris is big", ". ", " [1]", "[2, 3]", "(2)", "²", "[^1]", "\n", "[^1]: x", "`", "```"),
    *("[", "]", "(", "https://x.org/a", "[a](https://x.org/a)", "1", " ", "Doc 2", "【1†a】"),
]
pieces = st.sampled_from(PIECES)


@given(text=st.lists(pieces, max_size=30).map("".join) | st.text(max_size=60))
def test_every_mark_stands_in_the_text_and_points_to_a_context(text: str) -> None:
    found = find_marks(text, CONTEXTS)
    assert len(found.marks) == len(found.places)
    last = 0
    for mark, place in zip(found.marks, found.places, strict=True):
        assert last <= mark.start < mark.end <= len(text)
        assert mark.passage is None or 0 <= mark.passage < len(CONTEXTS)
        assert mark.marker in text or mark.marker.strip("[]").isdecimal()
        assert 0 <= place <= len(found.text)
        last = mark.start
    for place, character in enumerate(found.text):
        span = found.original(place, place + 1)
        assert text[span.start : span.end] == character
    keys = [(mark.passage, mark.marker) for mark in cited_by([text], text, CONTEXTS)[0]]
    assert len(keys) == len(set(keys)) <= MOST_CITATIONS


HOSTILE = [
    *("[1", "[", "(1 ", "[1,", "[1-999]", "¹", "`", "[a](", "[^", "https://a(", "https://a ", "\n"),
    *(
        " ",
        "[1] ",
        "doc 1",
        "【1†",
        "<sup>1",
        "[1]:",
        "[x](https://a (",
        "[1].\n",
        "```\n",
        "(1, 2",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        find_marks(text, CONTEXTS)
        return time.process_time() - started

    # Quadratic time would be 64 times as much, in every try; a busy machine slows single tries.
    assert any(seconds(160_000) < 24 * max(seconds(20_000), 0.01) for _ in range(5))


def test_a_claim_that_names_what_another_sentence_does_cites_what_its_own_does() -> None:
    response = "Ann Mary Lee was born in Oslo [1]. She died in Rome [2]."
    samples = build(
        Sample, [{"sample_id": "s", "response": response, "retrieved_contexts": ["Oslo.", "Rome."]}]
    )
    stage = DecomposeClaims(of="response", citation_markers="remove")
    claims = stage.make({"samples": samples}, {})
    assert claims["claim"].to_list() == [
        "Ann Mary Lee was born in Oslo.",
        "Ann Mary Lee died in Rome.",
    ]
    found = FindCitations().make({"samples": samples, "response_claims": claims}, {})
    assert found["passage"].to_list() == [0, 1]


def test_a_short_answer_that_shares_no_word_with_its_claim_keeps_its_citation() -> None:
    sample = {"sample_id": "s", "user_input": "Is tin a metal?", "response": "Yes [1]."}
    samples = build(Sample, [sample | {"retrieved_contexts": ["Tin is a metal."]}])
    stage = DecomposeClaims(of="response", citation_markers="remove")
    claims = stage.make({"samples": samples}, {})
    assert claims["claim"].to_list() == ["Tin is a metal."]
    found = FindCitations().make({"samples": samples, "response_claims": claims}, {})
    assert found["passage"].to_list() == [0]
