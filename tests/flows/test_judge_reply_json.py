"""Replies as models write them, and what may be taken from them."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.judge.reply_json import read_json

ONE = {"id": 1, "reason": "It says so.", "verdict": "entailed"}
TWO = {"id": 2, "reason": 'So "they" say: {x}.', "verdict": "neutral"}
BOTH = {"claims": [ONE, TWO]}
REPLY = json.dumps(BOTH)
OTHER = '{"claims": [{"id": 9, "verdict": "contradicted"}]}'
PRETTY = json.dumps(BOTH, indent=2)
BARE = json.dumps(BOTH["claims"])

WHOLE = {
    "alone": REPLY,
    "white space around": f"\n {REPLY}\n",
}

AROUND = {
    "fence": f"```json\n{REPLY}\n```",
    "fence without a language": f"```\n{REPLY}\n```",
    "fence without an end": f"```json\n{REPLY}",
    "byte order mark": f"\ufeff{REPLY}",
    "text around": f"Sure, here it is:\n\n{PRETTY}\n\nLet me know!",
    "text with citations": f"As in [1] and [2, 3]: {REPLY} See also [4].",
    "text with brackets": f"In {{claims}}, for x in [0, 1): {REPLY} where {{a}} is a",
    "text with tags": f"<answer>{REPLY}</answer>",
    "brackets as labels": f"[ANSWER]{REPLY}[/ANSWER]",
    "the last of two": f"{OTHER}\nNo, wait:\n{REPLY}",
    "after a sketch": f'The form is {{"claims": [...]}}.\n\n{REPLY}',
    "after a broken one": f"```json\n{OTHER[:-2]},]}}\n```\nAgain:\n```json\n{REPLY}\n```",
    "thinking": f"<think>First {OTHER} maybe.</think>\n\n{REPLY}",
    "empty thinking": f"<think>\n\n</think>{REPLY}",
    "thinking after": f"{REPLY}\n<think>Was it {OTHER}?</think>",
    "thinking after, unclosed": f"{REPLY}\n<think>Was it {OTHER}? Or",
    "thinking in capitals": f"<Thinking>{OTHER}</Thinking>{REPLY}",
    "reasoning": f"<reasoning>{OTHER}</reasoning>{REPLY}",
    "triangles": f"◁think▷{OTHER}◁/think▷{REPLY}",
    "brackets that think": f"[THINK]{OTHER}[/THINK]{REPLY}",
    "begin of thought": f"<|begin_of_thought|>{OTHER}<|end_of_thought|>{REPLY}",
    "channels": f"<|channel|>analysis<|message|>{OTHER}<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{REPLY}",
    "thinking without a beginning": f"So {OTHER}.\n</think>\n{REPLY}",
    "thinking without a beginning, broken": f'So {{"claims": [ that "is {{ \n</think>\n{REPLY}',
    "thinking with broken JSON": f'<think>{{"claims": [" </think>{REPLY}',
    "thinking that names its end": f"<think>I close by </think>. {OTHER}\n</think>\n{REPLY}",
    "thinking without an end": f"<think>Hm, {OTHER} is wrong.\n\n```json\n{REPLY}\n```",
    "tags in prose": f"I never use <think> here: {REPLY}",
}

UNPARSEABLE = {
    "prose": "I am sorry, but I cannot judge this claim.",
    "prose with a citation": "I cannot judge this [1].",
    "a number": "42",
    "a string": '"entailed"',
    "null": "null",
    "thinking alone": f"<think>{REPLY}</think>",
    "thinking without a beginning, and prose": f"So {REPLY}.\n</think>\nI cannot say.",
    "thinking and prose": f"<think>{REPLY}</think> I cannot say.",
    "thinking without an end": f"<think>Perhaps {REPLY}, perhaps not.",
    "ends early": REPLY[:-20],
    "ends before the last bracket": REPLY[:-1],
    "ends in the second entry": '{"claims": [{"id": 1, "verdict": "entailed"}, {"id": 2, "verd',
    "list that ends early": BARE[:-1],
    "trailing comma": '{"claims": [{"id": 1, "verdict": "neutral",}, {"id": 2, "verdict": "n"}]}',
    "trailing comma, lines": '{\n"claims": [\n{"id": 1,},\n{"id": 2, "verdict": "n"}\n]\n}',
    "missing comma": '{"claims": [{"id": 1 "verdict": "neutral"}, {"id": 2}]}',
    "bracket too many": REPLY + "}",
    "list without its beginning": BARE[1:],
    "unescaped quotes": '{"claims": [{"id": 1, "reason": "the "A}]}" is"}, {"id": 2, "v": "n"}]}',
    "ends in unescaped quotes": '{"claims": [{"id": 1, "verdict": "n", "reason": "a "}]} b"}]}',
    "reply in unescaped quotes": '{"claims": [{"evidence": "so "}]}" and "' + OTHER + '""}]}',
    "reply after unescaped quotes": '{"claims": [{"evidence": "a "}]} is '
    + OTHER
    + '", "id": 1}]}',
    "tag in a broken string": '{"claims": [{"reason": "</think> x",}, {"id": 2, "verdict": "n"}]}',
    "tags in a broken list": '[{"reason": "</think></think>"}, {"id": 2, "verdict": "n"}',
    "single quotes": "{'claims': [{'id': 1, 'verdict': 'entailed'}]}",
    "single quotes outside": """{'claims': [{"id": 1, "verdict": "entailed"}]}""",
    "names without quotes": '{claims: [{"id": 1, "verdict": "entailed"}]}',
    "double braces": '{{"claims": [{"id": 1, "verdict": "entailed"}]}}',
    "JSON in a string": json.dumps(REPLY),
    "broken after a good one": f"{REPLY}\nCorrection:\n{OTHER[:-2]},]}}",
    "ends after a good one": f"{REPLY}\nCorrection:\n{OTHER[:-2]}",
    "NaN": '{"claims": [{"id": NaN}]}',
    "infinity": '{"claims": [{"id": -Infinity}]}',
    "infinite": '{"claims": [{"id": 1e999}]}',
    "too many digits": '{"claims": [{"id": ' + "1" * 5000 + "}]}",
    "too deep": '{"claims": ' + "[" * 2000 + "]" * 2000 + "}",
    "verdict twice": '{"claims": [{"id": 1, "verdict": "entailed", "verdict": "neutral"}]}',
    "id twice": '{"claims": [{"id": 1, "id": true, "verdict": "neutral"}]}',
    "claims twice": '{"claims": [{"id": 1}], "claims": [{"id": 2}]}',
}


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_reply_that_is_json_alone_is_not_repaired(text: str, cut_off: bool) -> None:
    assert read_json(text, cut_off=cut_off) == (BOTH, False, False, None, "")


@pytest.mark.parametrize("text", AROUND.values(), ids=AROUND)
def test_the_last_value_outside_of_thinking_is_the_reply(text: str) -> None:
    assert read_json(text, cut_off=False) == (BOTH, True, False, None, "")


@pytest.mark.parametrize("text", UNPARSEABLE.values(), ids=UNPARSEABLE)
def test_no_reply_is_made_up_from_what_is_not_one(text: str) -> None:
    read = read_json(text, cut_off=False)
    assert (read.value, read.cut, read.problem) == (None, False, "unparseable")
    assert 0 < len(read.message) <= 300
    assert "\n" not in read.message


@pytest.mark.parametrize("text", ["", " ", "\n\t\u00a0\n"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_a_reply_of_nothing_is_empty(text: str, cut_off: bool) -> None:
    assert read_json(text, cut_off=cut_off) == (None, False, cut_off, "empty", "the reply is empty")


@pytest.mark.parametrize(
    ("text", "value", "repaired"),
    [
        (BARE, BOTH["claims"], False),
        (json.dumps(ONE), ONE, False),
        ("[]", [], False),
        ("{}", {}, False),
        ("[1]", [1], False),
        ("```json\n[]\n```", [], True),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, True),
        ('{"a": "<think>", "b": "</think>"}', {"a": "<think>", "b": "</think>"}, False),
        ('{"a": 1, "a": 1}', {"a": 1}, False),
        (r'{"a": "\ud83d\ude00 \ud800 \\ud800"}', {"a": "😀 \ufffd \\ud800"}, True),
        (r'{"\udfff": ["\ud800"]}', {"\ufffd": ["\ufffd"]}, True),
        ('{"a": "\ud800"}', {"a": "\ufffd"}, True),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}, False),
    ],
)
def test_values_of_other_kinds(text: str, value: Any, repaired: bool) -> None:
    assert read_json(text, cut_off=False) == (value, repaired, False, None, "")


def test_the_message_tells_what_is_wrong() -> None:
    def message(text: str) -> str:
        return read_json(text, cut_off=False).message

    assert message("No.") == "the reply holds no JSON object"
    assert message('{"a": 1,}').startswith("the JSON breaks off at character ")
    assert message(UNPARSEABLE["verdict twice"]) == "one object says 'verdict' twice, differently"
    assert message('{"a": NaN}') == "NaN is not JSON"
    assert message(UNPARSEABLE["too deep"]) == "the JSON is nested too deep"
    hostile = json.dumps("ignore\nall " * 99)
    assert len(message(f"{{{hostile}: 1, {hostile}: 2}}")) < 100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"claims": [{"id": 1, "verdict": "neutral"}, {"id": 2, "verd',
            {"id": 1, "verdict": "neutral"},
        ),
        ('[{"id": 1}, {"id": 2', {"id": 1}),
        ('{"claims": [{"id": 1}', {"id": 1}),
        ('{"claims": [{"id": 1}]', {"id": 1}),
        ('{"claims": [{"id": 1}], "note": "a}', {"id": 1}),
        ('```json\n{"claims": [{"id": 1}, {"id"', {"id": 1}),
        ('<think>{"claims": [{"id": 7}]}</think>{"claims": [{"id": 1}, {', {"id": 1}),
        (OTHER + '\nNo:\n{"claims": [{"id": 1}, {"id": 9, "verdict', {"id": 1}),
        (
            '{"texts": [{"id": 1, "claims": ["a", "b"]}, {"id": 2, "claims": ["c"',
            {"id": 1, "claims": ["a", "b"]},
        ),
    ],
)
def test_of_a_list_that_was_cut_off_the_whole_entries_count(text: str, value: Any) -> None:
    read = read_json(text, cut_off=True)
    entries = read.value if isinstance(read.value, list) else next(iter(read.value.values()))
    assert (entries, read.cut, read.problem) == ([value], True, None)
    assert read_json(text, cut_off=False).problem == "unparseable"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"claims": [',
        '{"claims": [{"id": 1, "verdict": "entailed"',
        '{"texts": [{"id": 1, "claims": ["a", "b"',
        '{"id": 1, "claims": ["a", "b"',
        '{"id": 1, "claims": ["a", "b"], "x',
        '{"claims": ["a", "b"], "id',
        '{"notes": [{"id": 1}], "claims": [',
        '{"id": 1, "parts": [{"a": 1}, {"a"',
        '{"claims": [{"id": 1,}, {"id": 2}, {"id": 3',
        '{"claims": [{"reason": "a "}]} b"}, {"id": 1}, [{"id": 3}, {"i',
        '<think>{"claims": [{"id": 1}, {"id"',
        f"<think>{REPLY}",
        f"<think>{REPLY} And",
        "The claims are",
    ],
)
def test_no_part_of_an_entry_or_of_thinking_counts(text: str) -> None:
    read = read_json(text, cut_off=True)
    assert (read.value, read.cut, read.problem) == (None, True, "unparseable")
    assert read.message == "the reply was cut off before it held a whole entry"


def test_a_complete_reply_is_whole_even_where_the_text_after_it_was_cut_off() -> None:
    for after in ("\n``", "\n```\nThis is so bec", "\n<think>But", " [1", " [se"):
        assert read_json(REPLY + after, cut_off=True) == (BOTH, True, False, None, "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=6,
)
TAGS = st.sampled_from(["<think>", "</think>", '{"id": 1}', "```", REPLY])
STRINGS = st.lists(st.sampled_from('ab"\\{}[],:\n é<>/1') | TAGS).map("".join)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 9), "reason": STRINGS, "claims": st.lists(STRINGS)}
    ),
    max_size=4,
)
PROSE = st.text(st.sampled_from("Aé .:,;'\"`<>/()!?\n\\-#*"), max_size=20)
INDENTS = st.sampled_from([None, 0, 2])


@given(ENTRIES, JSON, PROSE, PROSE, st.booleans(), st.booleans(), INDENTS)
def test_any_reply_comes_back_from_any_noise(
    entries: list[Any], extra: Any, before: str, after: str, fence: bool, think: bool, indent: Any
) -> None:
    value = {"claims": entries, "extra": extra}
    text = json.dumps(value, indent=indent, ensure_ascii=bool(indent))
    text = f"```json\n{text}\n```" if fence else text
    text = f"<think>{before}{OTHER}{after}</think>\n{text}" if think else text
    for cut_off in (False, True):
        read = read_json(f"{before}{text}{after}", cut_off=cut_off)
        assert (read.value, read.cut, read.problem) == (value, False, None)


@given(ENTRIES, st.data(), INDENTS, st.booleans())
def test_a_truncated_reply_gives_a_prefix_of_its_entries(
    entries: list[Any], data: st.DataObject, indent: Any, bare: bool
) -> None:
    text = json.dumps(entries if bare else {"claims": entries}, indent=indent)
    read = read_json(text[: data.draw(st.integers(0, len(text) - 1))], cut_off=True)
    assert read.cut
    if read.value is not None:
        kept = read.value if bare else read.value["claims"]
        assert kept
        assert kept == entries[: len(kept)]
    assert read_json(text[:-1], cut_off=False).value is None


@given(ENTRIES.filter(len), st.data(), INDENTS, st.booleans())
def test_a_reply_that_lost_a_character_is_whole_or_nothing(
    entries: list[Any], data: st.DataObject, indent: Any, bare: bool
) -> None:
    text = json.dumps(entries if bare else {"claims": entries}, indent=indent)
    place = data.draw(st.integers(0, len(text) - 1))
    value = read_json(text[:place] + text[place + 1 :], cut_off=False).value
    if value is not None:
        kept = value if bare else next(iter(value.values()))
        assert len(kept) == len(entries)


@given(STRINGS, st.booleans())
def test_no_text_raises(text: str, cut_off: bool) -> None:
    read = read_json(text, cut_off=cut_off)
    assert (read.value is None) == (read.problem is not None)
    assert bool(read.message) == (read.problem is not None)


@given(st.text(st.characters()), st.booleans())
def test_no_letter_raises(text: str, cut_off: bool) -> None:
    read_json(text, cut_off=cut_off)
    read_json('{"claims": [{"id": 1, "reason": "' + text, cut_off=cut_off)


HOSTILE = [
    "{", "[", '"', "\\", "<", "}", "{}", '{"', '["', "[1,", '{"a":', '{"a"}', "{a:", "{ ", "[{",
    '{"a":1}', "</think>", "<think>", '{"</think>', "<s", "[[],", '{"a":"\n', "\n{",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", '{"claims": [{"id": 1}, ', "[1," * 90])
def test_a_hostile_text_costs_no_more_than_its_length(head: str, piece: str) -> None:
    text = head + piece * (300_000 // len(piece))
    begin = time.thread_time()
    for cut_off in (False, True):
        assert read_json(text, cut_off=cut_off).problem in (None, "unparseable")
    # Not how fast it is: whatever grew with the square of the length would take minutes.
    assert time.thread_time() - begin < 20


def test_a_text_that_breaks_too_often_is_given_up() -> None:
    read = read_json("[1," * 200 + "1," * 50_000 + REPLY, cut_off=False)
    assert (read.value, read.message) == (None, "the reply holds too many brackets")
