"""Lists of messages are read as one sample for each turn, and mistakes in them are named."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from claimflow.flows.pipeline.limits import (
    HISTORY_CHARACTERS,
    HISTORY_MESSAGES,
    MESSAGES,
    TEXT_CHARACTERS,
)
from claimflow.flows.samples.conversations import recent_messages
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource, read_samples
from claimflow.stages.rows import Sample

EXAMPLE = '{"role": "user", "content": "..."}'
TEXT = "write it as text"
AS_JSON = f"write them as JSON: [{EXAMPLE}]"
TEXTS = "write a list of texts"
MESSAGE = f"write a message such as {EXAMPLE}"
LIST = f"write a text, or a list of messages such as {EXAMPLE}"
PART = "leave out what is no text"
ID = "write a text or a number"
ONE = "keep one of them"
LESS = "divide it, or write less"
NUMBERS = "number the turns 1, 2, 3"
NAN = "a number is NaN or beyond 64-bit floats; write null or text"
ROLES = "write user, assistant, system, developer or tool"


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def bot(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


TWO_TURNS = [
    user("Where is the tower?"),
    bot("It is in Paris."),
    user("How high?"),
    bot("It is 330 m high."),
]

SAID = [(one["role"], one["content"]) for one in TWO_TURNS]
TYPES = {"user": "human", "assistant": "ai"}


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def rows(source: SampleSource) -> list[dict[str, Any]]:
    assert source.faults == ()
    return [row for shard in source.shards(1_000) for row in shard.iter_rows(named=True)]


def of(*records: Any, **options: Any) -> list[dict[str, Any]]:
    return rows(samples_from(list(records), **options))


def messages(*records: Any, **options: Any) -> list[str]:
    return [str(fault) for fault in samples_from(list(records), **options).faults]


def in_jsonl(folder: Path, *records: Any, **options: Any) -> SampleSource:
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    return read_samples("s.jsonl", base=folder, rename={}, **options)


def said(sample: dict[str, Any]) -> tuple[str, str]:
    return sample["user_input"], sample["response"]


def metadata(sample: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sample["metadata"])
    return found


def test_each_turn_is_a_sample() -> None:
    record = {"id": "c", "user_input": TWO_TURNS, "reference": "330 m.", "topic": "Paris"}
    first, second = of({**record, "retrieved_contexts": ["The tower stands in Paris."]})
    assert first == {
        "sample_id": "c-turn-1",
        "user_input": "Where is the tower?",
        "response": "It is in Paris.",
        "reference": None,
        "retrieved_contexts": ["The tower stands in Paris."],
        "other_references": [],
        "response_claims": None,
        "reference_claims": None,
        "metadata": '{"conversation_id":"c","history":[],"topic":"Paris","turn":1}',
    }
    assert second["sample_id"] == "c-turn-2"
    assert said(second) == ("How high?", "It is 330 m high.")
    assert second["reference"] == "330 m."
    assert second["retrieved_contexts"] == ["The tower stands in Paris."]
    assert metadata(second) == {
        "conversation_id": "c",
        "turn": 2,
        "topic": "Paris",
        "history": [
            {"role": "user", "content": "Where is the tower?"},
            {"role": "assistant", "content": "It is in Paris."},
        ],
    }


class HumanMessage(BaseModel):
    content: str
    metadata: dict[str, Any] | None = None
    type: str = "human"


class AIMessage(BaseModel):
    content: str
    metadata: dict[str, Any] | None = None
    type: str = "ai"
    tool_calls: list[dict[str, Any]] | None = None


class MultiTurnSample(BaseModel):
    user_input: list[HumanMessage | AIMessage]
    reference: str | None = None


OF_RAGAS = MultiTurnSample(
    user_input=[
        HumanMessage(content="Where is the tower?"),
        AIMessage(content="It is in Paris."),
        HumanMessage(content="How high?"),
        AIMessage(content="It is 330 m high."),
    ]
)


@pytest.mark.parametrize(
    "record",
    [
        {"user_input": TWO_TURNS},
        {"question": TWO_TURNS},
        {"messages": TWO_TURNS},
        {"conversation": TWO_TURNS, "user_input": None},
        {"messages": [{"role": "system", "content": "Be brief."}, *TWO_TURNS]},
        {"messages": [{"role": "developer", "content": "Be brief."}, *TWO_TURNS]},
        {"messages": [{"role": role, "content": [part(text)]} for role, text in SAID]},
        {"messages": [{"type": TYPES[role], "content": text} for role, text in SAID]},
        {"messages": [{"type": TYPES[role], "data": {"content": text}} for role, text in SAID]},
        OF_RAGAS,
        OF_RAGAS.model_dump(exclude_none=True),
        {"user_input": OF_RAGAS.user_input},
        {"user_input": json.dumps(TWO_TURNS)},
        {"user_input": f"\n {json.dumps(TWO_TURNS)} "},
        {"user_input": repr(TWO_TURNS)},
        {"messages": json.dumps(TWO_TURNS)},
        {"messages": TWO_TURNS[:3], "response": "It is 330 m high."},
        {"messages": TWO_TURNS, "response": "It is 330 m high."},
        {"messages": [bot("Hello!"), *TWO_TURNS]},
    ],
)
def test_every_form_of_messages(record: Any) -> None:
    assert [said(sample) for sample in of(record)] == [
        ("Where is the tower?", "It is in Paris."),
        ("How high?", "It is 330 m high."),
    ]


def test_a_renamed_column_is_the_conversation() -> None:
    record = {"chat": TWO_TURNS, "messages": 4}
    source = samples_from([record], rename={"chat": "user_input"})
    assert [metadata(sample)["messages"] for sample in rows(source)] == [4, 4]
    assert source.mapping == {"user_input": "chat", "response": "chat"}
    assert source.metadata == {"messages", "conversation_id", "turn", "history"}
    assert source.misspelt == {}


@pytest.mark.parametrize(
    "record",
    [
        {"question": "Where?", "messages": TWO_TURNS},
        {"question": "Where?", "conversation": "c12"},
        {"messages": 12},
        {"messages": "two"},
        {"conversation": '[{"a": 1}]'},
    ],
)
def test_other_values_of_these_columns_stay_metadata(record: dict[str, Any]) -> None:
    [sample] = of({"answer": "There.", **record})
    assert metadata(sample) == {name: record[name] for name in record if name != "question"}
    assert sample["user_input"] == record.get("question")


@pytest.mark.parametrize(
    "question", ['["a", "b"]', '[{"a": 1}]', '[{"role": "user"}] is what?', '{"role": "user"}']
)
def test_other_texts_stay_questions(question: str) -> None:
    assert of({"question": question})[0]["user_input"] == question


def test_messages_in_a_row_are_one_turn_and_tools_give_its_contexts() -> None:
    calls = [{"function": {"name": "search"}}]
    conversation = [
        user("Where is"),
        user("the tower?"),
        bot("Let me look."),
        bot(None, tool_calls=calls),
        {"role": "tool", "content": "The tower stands in Paris.", "tool_call_id": "1"},
        {"role": "tool", "content": " "},
        bot("", tool_calls=calls),
        {"role": "function", "content": [{"type": "text", "text": "It is 330 m high."}]},
        bot([{"type": "tool_use", "input": {}}]),
        bot("In Paris."),
        user("And the Louvre?", contexts=["The Louvre is in Paris."]),
        bot("Too.", retrieved_contexts=[{"text": "It is a museum.", "doc": 1}]),
    ]
    record = {"messages": conversation, "contexts": ["of the record"]}
    first, second = of(record)
    assert said(first) == ("Where is\nthe tower?", "Let me look.\nIn Paris.")
    assert first["retrieved_contexts"] == ["The tower stands in Paris.", "It is 330 m high."]
    assert second["retrieved_contexts"] == ["The Louvre is in Paris.", "It is a museum."]
    assert metadata(second)["retrieved_contexts"] == [{"doc": 1}]
    assert [one["content"] for one in metadata(second)["history"]] == [
        "Where is", "the tower?", "Let me look.", "In Paris.",
    ]  # fmt: skip
    assert second["user_input"] == "And the Louvre?"


def test_what_a_tool_says_before_the_first_question_belongs_to_it() -> None:
    tool = {"role": "tool", "content": "A page."}
    [sample] = of({"messages": [tool, user("What?"), bot("A page.")]})
    assert sample["retrieved_contexts"] == ["A page."]


def test_contexts_that_are_one_text_are_split() -> None:
    record = {"messages": [user("What?"), bot("A.", contexts="a||b")], "contexts": "c||d"}
    [sample] = of(record, contexts_separator="||")
    assert sample["retrieved_contexts"] == ["a", "b"]


def test_no_contexts_of_a_message_are_not_those_of_the_record() -> None:
    [sample] = of({"messages": [user("What?"), bot("A.", contexts=[])], "contexts": ["c"]})
    assert sample["retrieved_contexts"] == []


def test_a_reference_belongs_to_the_last_turn_or_to_its_message() -> None:
    conversation = [user("1?"), bot("One.", reference="1"), user("2?"), bot("Two.", reference="2")]
    record = {
        "messages": conversation,
        "ground_truth": ["two", "2"],
        "response_claims": ["It is 2."],
    }
    first, second = of(record)
    assert (first["reference"], first["other_references"]) == ("1", [])
    assert (second["reference"], second["other_references"]) == ("2", ["two"])
    assert (first["response_claims"], second["response_claims"]) == (None, ["It is 2."])


def test_a_last_question_without_an_answer_keeps_what_is_of_it() -> None:
    record = {"id": 7, "messages": TWO_TURNS[:3], "reference": "330 m", "contexts": ["330 m high."]}
    first, last = of(record)
    assert said(last) == ("How high?", None)
    assert (last["reference"], last["retrieved_contexts"]) == ("330 m", ["330 m high."])
    assert (first["reference"], first["retrieved_contexts"]) == (None, None)
    answered = of({**record, "response": "It is 330 m high."})
    assert [said(one) for one in answered] == [said(first), ("How high?", "It is 330 m high.")]
    assert answered[1]["retrieved_contexts"] == ["330 m high."]


def test_an_empty_answer_is_an_answer() -> None:
    conversation = [user("What?"), bot(""), user("So?"), bot("A.")]
    assert [said(one) for one in of({"messages": conversation})] == [("What?", ""), ("So?", "A.")]


def test_ids_are_made_of_the_content_and_the_place() -> None:
    same = [user("Again?"), bot("Again.")] * 2
    found = of({"messages": same}, {"messages": same}, {"messages": same[:2]})
    ids = [sample["sample_id"] for sample in found]
    assert len(set(ids)) == 5
    assert ids == [
        sample["sample_id"] for sample in of(*[{"messages": same}] * 2, {"messages": same[:2]})
    ]
    assert ids[:2] == [sample["sample_id"] for sample in of({"messages": same})]
    conversations = [metadata(sample)["conversation_id"] for sample in found]
    assert conversations == [conversations[0]] * 2 + [conversations[2]] * 2 + [conversations[4]]
    assert len(set(conversations)) == 3


def test_the_setting_does_not_change_ids() -> None:
    records = [{"messages": TWO_TURNS}, {"question": "Why?", "answer": "So.", "history": TWO_TURNS}]
    one, other = of(*records), of(*records, earlier_turns="contexts")
    assert [row["sample_id"] for row in one] == [row["sample_id"] for row in other]
    assert [row["retrieved_contexts"] for row in one] == [None] * 3
    assert [row["retrieved_contexts"] for row in other] == [
        None,
        ["user: Where is the tower?", "assistant: It is in Paris."],
        [f"{one['role']}: {one['content']}" for one in TWO_TURNS],
    ]


def test_earlier_turns_follow_the_contexts_without_system_prompts() -> None:
    system = {"role": "system", "content": "Answer in French."}
    conversation = [system, user("1?"), bot("One.", contexts=["one"]), user("2?"), bot("Two.")]
    record = {"messages": conversation, "contexts": ["shared"]}
    first, second = of(record, earlier_turns="contexts")
    assert first["retrieved_contexts"] == ["one"]
    assert second["retrieved_contexts"] == ["shared", "user: 1?", "assistant: One."]


def test_rows_that_are_turns() -> None:
    row = {"question": "q", "answer": "a"}
    found = of(
        {**row, "conversation_id": 5, "turn": 2, "history": [user("x"), bot("y")]},
        {**row, "conversation_id": "5", "turn": "3"},
        {**row, "conversation_id": 5},
        {**row, "conversation_id": 6, "turn": None},
        {**row, "conversation_id": 6, "turn": None},
        {**row, "conversation_id": None, "turn": "first"},
        row,
    )
    assert [metadata(one).get("turn") for one in found] == [2, "3", 4, 1, 2, "first", None]
    assert len({one["sample_id"] for one in found}) == 7
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert metadata(found[0])["history"] == history
    assert "history" not in metadata(found[1])


@pytest.mark.parametrize("history", ["none", 3, None, {"a": 1}])
def test_a_history_that_is_no_list_stays_metadata(history: Any) -> None:
    [sample] = of({"question": "q", "history": history})
    assert metadata(sample) == {"history": history}


def test_a_history_has_the_newest_messages_within_bounds() -> None:
    texts = [{"role": "user", "content": str(n) * 300} for n in range(100)]
    kept = recent_messages(texts)
    assert kept == texts[-len(kept) :]
    assert sum(len(one["content"]) for one in kept) <= HISTORY_CHARACTERS
    assert len(recent_messages([{"role": "user", "content": ""}] * 90)) == HISTORY_MESSAGES
    long = {"role": "user", "content": "a" * HISTORY_CHARACTERS + "b"}
    assert recent_messages([texts[0], long]) == [
        {"role": "user", "content": "a" * (HISTORY_CHARACTERS - 1) + "b"}
    ]


def test_the_longest_conversation_takes_linear_space() -> None:
    conversation = [user("q" * 1_000), bot("a" * 1_000)] * (MESSAGES // 2)
    source = samples_from([{"messages": conversation}])
    assert source.count == MESSAGES // 2
    assert source.size < (HISTORY_CHARACTERS + 10_000) * source.count


def test_cells_of_csv_hold_messages(tmp_path: Path) -> None:
    with (tmp_path / "s.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "user_input", "history", "conversation_id", "turn"])
        writer.writerow([1, json.dumps(TWO_TURNS), "", "", ""])
        writer.writerow([2, "Why?", json.dumps(TWO_TURNS[:2]), "c", "3"])
        writer.writerow([3, "Why?", "[]", "c", ""])
    source = read_samples("s.csv", base=tmp_path, rename={})
    found = rows(source)
    assert [row["sample_id"] for row in found] == ["1-turn-1", "1-turn-2", "2", "3"]
    assert [metadata(row)["turn"] for row in found] == [1, 2, "3", 4]
    assert [len(metadata(row)["history"]) for row in found] == [0, 2, 2, 0]


def test_tables_hold_messages(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": ["c"], "messages": [TWO_TURNS]})
    frame.write_parquet(tmp_path / "s.parquet")
    wanted = [("c-turn-1", *said(one)) for one in of({"id": "c", "messages": TWO_TURNS})][:1]
    for source in (
        samples_from(frame),
        samples_from(frame.lazy()),
        read_samples("s.parquet", base=tmp_path, rename={}),
    ):
        found = rows(source)
        assert [(one["sample_id"], *said(one)) for one in found][:1] == wanted
        assert len(found) == 2


def test_a_limit_takes_whole_conversations(tmp_path: Path) -> None:
    records = [
        {"messages": TWO_TURNS},
        {"question": "q"},
        {"messages": TWO_TURNS * 2},
        {"messages": 5},
    ]
    source = in_jsonl(tmp_path, *records, limit=1)
    assert (source.count, source.available, source.selection) == (2, 2 + 1 + 4 + 1, "--limit 1")
    assert in_jsonl(tmp_path, *records).count == 8


HUGE = 10**5_000


@pytest.mark.parametrize(
    ("record", "faults"),
    [
        ({"user_input": []}, [f"'user_input' is an empty list; {LIST}"]),
        ({"messages": []}, [f"'messages' is an empty list; {LIST}"]),
        ({"user_input": ["hi"]}, [f"user_input[0] is text; {MESSAGE}"]),
        (
            {"messages": [user("a"), None, [], 5, True]},
            [
                f"messages[{n}] is {what}; {MESSAGE}"
                for n, what in ((1, "null"), (2, "a list"), (3, "a number"), (4, "true or false"))
            ],
        ),
        (
            {"question": [user("a"), bot("b"), user(3)]},
            [f"question[2].content is a number; {TEXT}"],
        ),
        ({"question": [user(HUGE)]}, [f"question[0].content is a number; {TEXT}"]),
        ({"question": [user(None)]}, [f"question[0].content is null; {TEXT}"]),
        ({"question": [user("a"), bot(None)]}, [f"question[1].content is null; {TEXT}"]),
        ({"question": [{"role": "user"}]}, [f"question[0].content is null; {TEXT}"]),
        ({"question": [user([])]}, [f"question[0].content is an empty list; {TEXT}"]),
        ({"question": [user({"text": "a"})]}, [f"question[0].content is an object; {TEXT}"]),
        (
            {"question": [user([[["a"]]])]},
            ['question[0].content[0] is a list; write {"type": "text", "text": "..."}'],
        ),
        (
            {"question": [user([{"type": "text", "text": 1}])]},
            [f"question[0].content[0].text is a number; {TEXT}"],
        ),
        (
            {"question": [user(["a", {"type": "image_url", "image_url": {}}])]},
            [f"question[0].content[1].type is 'image_url'; {PART}"],
        ),
        (
            {"question": [user([{"type": {}}])]},
            [f"question[0].content[0].type is an object; {PART}"],
        ),
        ({"question": [{"content": "a"}]}, [f"question[0] has no role; {ROLES}"]),
        ({"question": [{"role": "bot", "content": "a"}]}, [f"question[0].role is 'bot'; {ROLES}"]),
        (
            {"question": [{"role": "b" * 99, "content": "a"}]},
            [f"question[0].role is '{'b' * 40}…'; {ROLES}"],
        ),
        ({"question": [{"role": 5, "content": "a"}]}, [f"question[0].role is a number; {ROLES}"]),
        ({"question": [{"type": ["human"], "data": {}}]}, [f"question[0].type is a list; {ROLES}"]),
        (
            {"question": [{"type": "human", "data": {"content": 1}}]},
            [f"question[0].data.content is a number; {TEXT}"],
        ),
        ({"question": [bot("Hello.")]}, [f"'question' has no message of the user; {MESSAGE}"]),
        (
            {"question": [user("a"), bot("b", contexts=[1])]},
            [f"question[1].contexts holds a number in place 1; {TEXTS}"],
        ),
        (
            {"question": [user("a"), bot("b", reference=HUGE)]},
            [f"question[1].reference is a number; {TEXTS}"],
        ),
        (
            {"question": [user("a", contexts=["c"], retrieved_contexts=["d"])]},
            [f"question[0] has 'contexts' and 'retrieved_contexts' for retrieved_contexts; {ONE}"],
        ),
        (
            {"messages": TWO_TURNS, "conversation": TWO_TURNS},
            [f"'messages' and 'conversation' both hold messages; {ONE}"],
        ),
        (
            {"messages": TWO_TURNS, "answer": "Else."},
            [f"'answer' and the last message of 'messages' are both the last response; {ONE}"],
        ),
        (
            {"messages": TWO_TURNS, "turn": 3},
            ["'turn' stands beside the messages in 'messages'; leave it out"],
        ),
        (
            {"messages": TWO_TURNS, "history": []},
            ["'history' stands beside the messages in 'messages'; leave it out"],
        ),
        ({"messages": TWO_TURNS, "conversation_id": ["a"]}, [f"'conversation_id' is a list; {ID}"]),
        ({"messages": TWO_TURNS, "id": True}, [f"'id' is true or false; {ID}"]),
        (
            {"messages": [user(1)], "id": True, "contexts": 5},
            [
                f"'id' is true or false; {ID}",
                f"'contexts' is a number; {TEXTS}",
                f"messages[0].content is a number; {TEXT}",
            ],
        ),
        (
            {"messages": TWO_TURNS, "id": "i" * 2_000},
            [f"the id of turn 1 has 2,007 characters, more than 2,000; {LESS}"],
        ),
        (
            {"messages": [user("a")] * (MESSAGES + 1)},
            ["'messages' holds 10,001 messages, more than 10,000; divide the conversation"],
        ),
        (
            {"messages": [user("a" * TEXT_CHARACTERS), user("b"), bot("c")]},
            [f"turn 1 of 'messages' has 5,000,002 characters, more than 5,000,000; {LESS}"],
        ),
        (
            {"user_input": '[{"role": "user", "content": "a"]'},
            [f"'user_input' looks like messages, and cannot be read; {AS_JSON}"],
        ),
        (
            {"user_input": '[{"role": "user", "content": 1}, 5]'},
            [
                f"user_input[0].content is a number; {TEXT}",
                f"user_input[1] is a number; {MESSAGE}",
            ],
        ),
        (
            {"user_input": f'[{{"role": {"[" * 100_000}{"]" * 100_000}}}]'},
            ["'user_input' has brackets nested about a thousand deep; use less nesting"],
        ),
        ({"question": "q", "history": ["a"]}, [f"history[0] is text; {MESSAGE}"]),
        (
            {"question": "q", "history": [user(1)], "id": []},
            [f"'id' is a list; {ID}", f"history[0].content is a number; {TEXT}"],
        ),
        (
            {"question": "q", "conversation_id": " "},
            ["'conversation_id' is empty; write an id, or leave it out to have one made"],
        ),
        (
            {"question": "q", "conversation_id": HUGE},
            [f"'conversation_id' has more than 2,000 digits; {LESS}", NAN],
        ),
        (
            {"question": "q", "conversation_id": 1, "turn": HUGE},
            [f"'turn' is no whole number from 0; {NUMBERS}", NAN],
        ),
        (
            {"question": "q", "conversation_id": 1, "turn": 1.5},
            [f"'turn' is no whole number from 0; {NUMBERS}"],
        ),
        ({"question": "q", "conversation_id": 1, "turn": "first"}, [f"'turn' is text; {NUMBERS}"]),
        (
            {"question": "q", "conversation_id": 1, "turn": True},
            [f"'turn' is true or false; {NUMBERS}"],
        ),
    ],
)
def test_mistakes_are_named_with_their_place(record: dict[str, Any], faults: list[str]) -> None:
    assert sorted(messages({"answer": "fine"}, record)) == sorted(
        f"answers[1]: {fault}" for fault in faults
    )


def test_messages_as_text_in_json_are_no_question(tmp_path: Path) -> None:
    text = json.dumps(TWO_TURNS)
    records = [{"question": text}, {"messages": text}, {"question": "q", "history": text}]
    assert [str(fault) for fault in in_jsonl(tmp_path, *records).faults] == [
        "s.jsonl:1: 'question' holds messages as text; write them as a list",
        "s.jsonl:2: 'messages' holds messages as text; write them as a list",
        "s.jsonl:3: 'history' holds messages as text; write them as a list",
    ]


def test_unusable_conversations_can_be_left_out(tmp_path: Path) -> None:
    records = [{"messages": [user("a"), bot(1)]}, {"messages": TWO_TURNS}, {"messages": [bot("a")]}]
    source = in_jsonl(tmp_path, *records, skip_unusable=True)
    assert (source.count, source.available) == (2, 4)
    assert [str(fault) for fault in source.warnings] == [
        "s.jsonl:1: left out as unusable (and 1 more): messages[1].content is a number; "
        "write it as text"
    ]


def test_repeated_ids_and_turns_are_found_once(tmp_path: Path) -> None:
    turn = {"question": "q", "answer": "a", "conversation_id": "c"}
    records = [
        {"id": "a", "messages": TWO_TURNS},
        {"id": "a", "messages": TWO_TURNS},
        {**turn, "turn": 1},
        {**turn, "turn": 1},
        {"messages": TWO_TURNS, "conversation_id": "c"},
    ]
    assert [str(fault) for fault in in_jsonl(tmp_path, *records).faults] == [
        "s.jsonl:2: sample_id 'a-turn-1' is already at s.jsonl:1; "
        "give every sample an id of its own",
        "s.jsonl:4: turn 1 of conversation 'c' is already at s.jsonl:3; "
        "give every turn a number of its own",
        "s.jsonl:5: turn 1 of conversation 'c' is already at s.jsonl:3; "
        "give every turn a number of its own",
    ]


def test_contexts_of_all_turns_cannot_fill_the_memory() -> None:
    record = {"messages": TWO_TURNS * 1_000, "contexts": ["c" * 100_000]}
    [fault] = messages(record)
    assert fault.startswith(
        "answers[0]: 100,018 characters of contexts and metadata for each of 2,000 "
    )
    assert fault.endswith("turns; write contexts with the messages that they belong to")


garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "type", "content", "data", "text", "contexts", "tool_calls", "x"]
            ),
            inner | st.sampled_from(["user", "assistant", "human", "ai", "tool", "system", "text"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    values=st.dictionaries(
        st.sampled_from(["user_input", "messages", "history", "turn", "conversation_id", "id"]),
        garbage | st.lists(garbage, max_size=4) | garbage.map(repr) | garbage.map(json.dumps),
        max_size=5,
    ),
    cells=st.booleans(),
)
def test_any_garbage_gives_samples_or_faults(values: dict[str, Any], cells: bool) -> None:
    from claimflow.flows.samples.conversations import ConversationReader
    from claimflow.flows.samples.fields import fields_by_column

    reader = ConversationReader(fields_by_column({}), None)
    found, errors = reader.read(values, cells=cells)
    assert found or errors
    for sample in found if not errors else ():
        Sample.model_validate(sample.fields | {"sample_id": "x"})
        assert all(set(one) == {"role", "content"} for one in sample.history)


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(str.strip)


@settings(max_examples=50)
@given(turns=st.lists(st.tuples(words, words), min_size=1, max_size=6))
def test_turns_of_questions_and_answers_are_read_back(turns: Sequence[tuple[str, str]]) -> None:
    conversation = [one for q, a in turns for one in (user(q), bot(a))]
    found = of({"messages": conversation})
    assert [said(sample) for sample in found] == list(turns)
    assert [metadata(sample)["turn"] for sample in found] == list(range(1, len(turns) + 1))
    for n, sample in enumerate(found):
        assert metadata(sample)["history"] == conversation[: 2 * n]
