"""What of a text claims nothing, its kind, and how tables and lists become claims."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.claim_rules.decompose import TextClaim, non_claims, take_apart
from claimflow.stages.claim_rules.markdown import without_markup
from claimflow.stages.claim_rules.questions import Context
from claimflow.stages.claim_rules.reading import NonClaim, asks_how_to
from claimflow.stages.text.sentences import split_sentences
from tests.stages.parsing import PARSER


def taken(text: str, question: str = "", atomicity: str = "high") -> list[TextClaim | NonClaim]:
    return take_apart(
        text,
        atomicity="low" if atomicity == "low" else "high",
        parser=PARSER,
        coverage="high",
        context=Context(question),
    )


def claims(text: str, question: str = "", atomicity: str = "high") -> list[str]:
    return [one.claim for one in taken(text, question, atomicity) if isinstance(one, TextClaim)]


def kinds(text: str, question: str = "") -> list[tuple[str, str]]:
    found = taken(text, question)
    return [(one.kind, text[one.start : one.end]) for one in found if isinstance(one, NonClaim)]


KINDS = [
    ("greeting", "Hi Anna!"),
    ("greeting", "Dear Dr. Smith,"),
    ("greeting", "Thanks!"),
    ("greeting", "Best regards, Tom"),
    ("greeting", "I hope this helps!"),
    ("offer", "Let me know if you need more."),
    ("offer", "If you have any other questions, feel free to ask."),
    ("offer", "I'm happy to help with anything else."),
    ("question", "Who was Marie Curie?"),
    ("question", "谁是爱因斯坦？"),
    ("instruction", "Click the button."),
    ("instruction", "Preheat the oven to 180 °C."),
    ("instruction", "Please contact your doctor."),
    ("instruction", "Do not open the valve."),
    ("instruction", "Make sure that the oven is hot."),
    ("instruction", "Then mix the eggs and stir."),
    ("source", "Source: https://example.org/a"),
    ("source", "[1] Wikipedia, https://example.org"),
    ("source", "See also: the Louvre"),
    ("source", "https://example.org/a"),
    ("source", "[^1]: Smith (2020), A book."),
    ("markup", "---"),
    ("markup", "😀"),
    ("markup", "<br>"),
    ("markup", "![map](map.png)"),
    ("refusal", "I don't know."),
    ("refusal", "N/A"),
]


@pytest.mark.parametrize(("kind", "sentence"), KINDS)
def test_a_sentence_that_claims_nothing_has_a_kind(kind: str, sentence: str) -> None:
    assert taken(sentence) == [NonClaim(kind, 0, len(sentence))]  # type: ignore[arg-type]
    text = f"Rome is old.\n{sentence}\nOslo is new."
    assert kinds(text) == [(kind, sentence)]
    assert claims(text) == ["Rome is old.", "Oslo is new."]


HEADINGS = ["## History", "**Early life**", "Ingredients:", "In short:", "__Facts__:"]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Honey is vegan, isn't it?", ["Honey is vegan."]),
        ("Well, tin is a metal, right?", ["Tin is a metal."]),
        ("Is it tin or lead, right?", []),
        ("Can I go there, no?", []),
    ],
)
def test_what_stands_before_a_tag_is_a_claim(sentence: str, expected: list[str]) -> None:
    assert claims(sentence) == expected


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_is_one_only_above_further_lines(heading: str) -> None:
    assert kinds(f"{heading}\nRome is old.") == [("heading", heading)]
    assert kinds(heading) == []
    assert len(claims(heading)) == 1


def test_an_underlined_line_is_a_heading() -> None:
    assert kinds("History\n=======\nIt is old.") == [("heading", "History"), ("markup", "=======")]
    assert claims("Rome is old.\n---\nOslo is new.") == ["Rome is old.", "Oslo is new."]


def test_a_statement_in_bold_is_a_claim() -> None:
    assert claims("**Rome is old.**\nOslo is new.") == ["Rome is old.", "Oslo is new."]
    assert claims("**Rome is old.** Oslo is new.") == ["Rome is old.", "Oslo is new."]


CLAIMS = [
    "Hey Jude",
    "Dear Prudence",
    "Get Out",
    "None.",
    "Work on the bridge started in 1990.",
    "Study of the brain",
    "Cook was born in 1728.",
    "Love is blind.",
    "Visit Florida is an agency.",
    "Meet the Press is a television programme.",
    "Contact lenses correct vision.",
    "Hello World is the first program of many books.",
    "Thanks to the dam, the valley is dry.",
    "Source code is text.",
    "Best Picture went to Parasite.",
    "Die Sonne ist ein Stern.",
    "Let It Be",
]


@pytest.mark.parametrize("sentence", CLAIMS)
def test_what_only_looks_like_no_claim_is_one(sentence: str) -> None:
    assert claims(sentence, atomicity="low") == [sentence]


def test_titles_in_a_list_are_claims() -> None:
    text = "Films:\n- Meet the Parents\n- Kill the Messenger (2014)"
    assert claims(text) == [
        "Films: Meet the Parents.",
        "Films: Kill the Messenger (2014).",
    ]


@pytest.mark.parametrize("atomicity", ["low", "high"])
@pytest.mark.parametrize(
    "frame", ["Please note that", "Note that", "Keep in mind that", "Note:", "Remember that"]
)
def test_the_frame_of_a_note_is_no_part_of_its_claim(frame: str, atomicity: str) -> None:
    text = f"{frame} the museum is closed on Mondays."
    [claim] = taken(text, atomicity=atomicity)
    assert isinstance(claim, TextClaim)
    assert claim.claim == "The museum is closed on Mondays."
    assert text[claim.start : claim.end].startswith("the museum")


@pytest.mark.parametrize(
    ("question", "how_to"),
    [
        ("How do I reset the router?", True),
        ("How to bake bread", True),
        ("What should I do about a cold?", True),
        ("Give me a recipe for soup.", True),
        ("2006 chevy remove door panel", True),
        ("What are ways to save water?", True),
        ("Who was Marie Curie?", False),
        ("How does photosynthesis work?", False),
        ("What is aspirin?", False),
        ("", False),
    ],
)
def test_instructions_are_claims_where_the_question_asks_for_them(
    question: str, how_to: bool
) -> None:
    assert asks_how_to(question) is how_to
    text = "The button is red. Click the button."
    assert claims(text, question)[1:] == ["Click the button."] * how_to


def test_a_text_of_instructions_is_about_how_to_do_something() -> None:
    text = "Remove the screws. Lift the panel. Disconnect the wires."
    assert len(claims(text)) == 3
    assert len(claims(f"{text} Then the door is open.")) == 4
    assert kinds(text) == []


def test_a_code_block_is_one_row() -> None:
    text = "It is short.\n```python\nx = 1\n\n# a | b\n```\nIt works."
    assert kinds(text) == [("code", "```python\nx = 1\n\n# a | b\n```")]
    assert claims(text) == ["It is short.", "It works."]
    assert kinds("~~~\n```\nx\n~~~\nIt works.") == [("code", "~~~\n```\nx\n~~~")]
    assert kinds("It is:\n```\nx = 1") == [("heading", "It is:"), ("code", "```\nx = 1")]


def test_a_list_of_sources_is_no_claim_and_a_list_of_facts_is() -> None:
    text = "Rome is old.\n\nSources:\n- Smith, J. (2020). Rome.\n- [2] Wikipedia\n\nIt is big."
    assert {kind for kind, _ in kinds(text)} == {"source"}
    assert claims(text) == ["Rome is old.", "Rome is big."]
    assert claims("Sources:\n- oranges\n- lemons") == [
        "Sources: oranges.",
        "Sources: lemons.",
    ]


def test_a_signature_ends_a_letter() -> None:
    text = "Rome is old.\n\nKind regards,\nTom Miller"
    assert kinds(text) == [("greeting", "Kind regards,"), ("greeting", "Tom Miller")]
    assert claims("Kind regards,\nTom Miller\nParis") == ["Tom Miller", "Paris"]


# Tables.

TABLE = (
    "| Country | Capital | Population |\n|---|:---:|--:|\n"
    "| France | **Paris** | 68 million |\n| Spain | Madrid | n/a |\n"
)


def test_rows_of_a_table_become_sentences_with_the_names_of_its_columns() -> None:
    found = taken(TABLE)
    assert claims(TABLE) == [
        "For France, the Capital is Paris.",
        "For France, the Population is 68 million.",
        "For Spain, the Capital is Madrid.",
    ]
    cells = [TABLE[one.start : one.end] for one in found if isinstance(one, TextClaim)]
    assert cells == ["**Paris**", "68 million", "Madrid"]
    assert kinds(TABLE) == [
        ("heading", "| Country | Capital | Population |"),
        ("markup", "|---|:---:|--:|"),
    ]
    assert claims(TABLE, atomicity="low") == [
        "For France, the Capital is Paris and the Population is 68 million.",
        "For Spain, the Capital is Madrid.",
    ]
    rows = [one for one in taken(TABLE, atomicity="low") if isinstance(one, TextClaim)]
    assert TABLE[rows[1].start : rows[1].end] == "| Spain | Madrid | n/a |"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| Italy | Rome |", ["For Italy, the Capital is Rome."]),
        ("| Italy | Rome | 59 | extra |", ["Italy, Rome, 59, extra."]),
        ("| a\\|b | x |", ["For a|b, the Capital is x."]),
        ("| | Rome | |", ["The Capital is Rome."]),
        ("| 2019 | Rome | - |", ["For Country 2019, the Capital is Rome."]),
        ("Italy | Rome", ["For Italy, the Capital is Rome."]),
        ("| X | It is old. It is big. |", ["For X, the Capital is “It is old. It is big.”"]),
        ("| | - | n/a |", []),
    ],
)
def test_rows_of_other_shapes(row: str, expected: list[str]) -> None:
    text = f"| Country | Capital | Population |\n|---|---|---|\n{row}"
    assert claims(text) == expected
    assert max(one.end for one in taken(text)) >= len(text) - 10


def test_a_number_of_the_row_does_not_name_it() -> None:
    text = "| # | City | Languages |\n|-|-|-|\n| 1 | Oslo | Norwegian |"
    assert claims(text) == ["For Oslo, the Languages are Norwegian."]


def test_rows_without_a_header_are_their_cells() -> None:
    assert claims("| France | Paris |\n| Spain | Madrid |") == ["France, Paris.", "Spain, Madrid."]
    assert claims("The norm |x| is 1.\nIt is |y|.") == ["The norm |x| is 1.", "The norm is |y|."]


# Lists.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The benefits are:\n- lower cost\n- speed",
            ["The benefits are lower cost.", "The benefits are speed."],
        ),
        ("The symptoms include the following:\n\n1. Fever\n", ["The symptoms include Fever."]),
        ("Rome has several sights, including:\n- the Forum", None),
        (
            "Some of the tools made by Lund include: 1. Alef: a platform for data 2. Bet: a shop",
            [
                "Some of the tools made by Lund include Alef, a platform for data.",
                "Some of the tools made by Lund include Bet, a shop.",
            ],
        ),
        (
            "The judges are:\n- **Ann Lee** - appointed in 1981\n- Bo Ek: he is new",
            ["Ann Lee, appointed in 1981, is one of the judges.", "Bo Ek: he is new"],
        ),
        ("The benefits are:\n- It is fast.\n- Speed: it is fast", ["It is fast.", None]),
        ("Symptoms include: • fever • cough", ["Symptoms include fever.", None]),
        (
            "The tour covers: 1) the stairs, 2) the vault, and 3) the hall.",
            [
                "The tour covers the stairs.",
                "The tour covers the vault.",
                "The tour covers the hall.",
            ],
        ),
        ("You can use it to:\n- Clean the floor", ["You can use it to clean the floor."]),
        ("There are two rivers:\n- the Nile", ["There are two rivers: the Nile."]),
        ("Benefits:\n- speed", ["Benefits: speed."]),
        (
            "The following did not attend:\n- Tom",
            ["The following did not attend: Tom."],
        ),
        ("The benefits are:\n- cost\n  - of power", ["The benefits are cost.", "of power"]),
        ("The benefits are:\n\nSpeed", ["Speed"]),
        (
            "The warranty does not cover:\n- water damage",
            ["The warranty does not cover: water damage."],
        ),
    ],
)
def test_items_of_a_list_get_their_stem(text: str, expected: list[str | None] | None) -> None:
    made = claims(text, atomicity="low")
    if expected is None:
        assert made == ["Rome has several sights, including the Forum."]
        return
    assert len(made) == len(expected)
    assert all(a == b for a, b in zip(made, expected, strict=True) if b is not None)
    assert [kind for kind, _ in kinds(text)] == ["heading"]


def test_the_last_item_of_a_list_in_a_line_has_its_stem_before_another_sentence() -> None:
    text = "The tour covers: 1) the stairs; 2) the vault; and 3) the hall. It is short."
    assert claims(text) == [
        "The tour covers the stairs.",
        "The tour covers the vault.",
        "The tour covers the hall.",
        "It is short.",
    ]


def test_a_pronoun_of_a_stem_is_resolved() -> None:
    text = "The Eiffel Tower is located in Paris. It has:\n- a height of 300 m"
    assert claims(text)[-1] == "The Eiffel Tower has a height of 300 m."


# Any text.

PIECES = st.sampled_from(
    (
        "Rome is old.|It has:|- a dome|  - stairs|# Rivers|**Bold**|| a | b |||---|---|||c|d||"
        "```|~~~|x = 1|Hi Anna!|Who?|Click the button.|Note that it is big.|---|Sources:|"
        "- [1] A (2020)|1.|- |😀|N/A|<br>|Best,|Tom|https://a.b|It is e\u0301.| • a • b|==="
    ).split("|")
)


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(PIECES, max_size=12).map("\n".join),
        st.lists(PIECES, max_size=12).map(" ".join),
        st.lists(PIECES, max_size=12).map("|".join),
    ),
    st.sampled_from(["low", "high"]),
)
def test_every_sentence_is_covered(text: str, atomicity: str) -> None:
    found = taken(text, atomicity=atomicity)
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    assert [one.start for one in found] == sorted(one.start for one in found)
    spans = [(one.start, one.end) for one in found if isinstance(one, NonClaim)]
    assert len(set(spans)) == len(spans)
    # A statement that stands twice in a text is one claim.
    said = {one.claim.casefold() for one in found if isinstance(one, TextClaim)}
    for start, end in split_sentences(text):
        covered = any(one.start < end and start < one.end for one in found)
        words = without_markup(text[start:end]).casefold()
        assert covered or any(claim.rstrip(".") in words or words in claim for claim in said)


def test_non_claims_are_those_of_the_text_taken_apart() -> None:
    text = f"Hi Anna!\n{TABLE}\nIt is:\n- big\n\nClick the button."
    found = [one for one in taken(text) if isinstance(one, NonClaim)]
    assert non_claims(text) == found
    assert [one.kind for one in non_claims(text, Context("How do I start?"))][-1] != "instruction"


@pytest.mark.parametrize(
    "unit",
    ["**", "|", "- ", "a: ", "|a", "|a|b|\n", "|-", "a|b\n-|-\n", "```\n", "<a ", "[", "Dear ",
     "Dear A ", "Then ", "mix the a, ", "If you have any more a", "__a__ ", "![a](", "is the of ",
     "a" + " " * 9_999],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "| a | b |\n|---|---|\n"])
def test_hostile_texts_take_linear_time(unit: str, before: str) -> None:
    text = before + unit * (100_000 // len(unit))
    started = time.process_time()
    taken(text)
    assert time.process_time() - started < 3


def test_long_names_of_a_table_are_not_repeated() -> None:
    text = f"| {'a' * 20_000} | b |\n|---|---|\n" + "| x | y |\n" * 5_000
    assert sum(len(claim) for claim in claims(text)) < 100_000


@pytest.mark.parametrize("text", ["[1]", "Paris is big.\n[1]", "- [1]\n- Paris", "[1] [2]\nOslo."])
def test_a_mark_of_citation_alone_is_no_claim(text: str) -> None:
    assert ("markup", "[1]") in [(kind, words.strip("- ")[:3]) for kind, words in kinds(text)]
    assert all(claims(text))
