"""The spans of one trace become one sample, whatever order they come in."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.traces import assembly, values
from claimflow.flows.traces.assembly import assemble
from claimflow.flows.traces.otlp import spans as otlp_spans
from claimflow.flows.traces.spans import Span

PROMPT = "Passages: tin is a metal. Question: Is tin a metal?"
BEGUN = 1_700_000_000 * 10**9
ROOT = Span(
    "t", "1", name="qa", start=BEGUN, end=BEGUN + 10**9, asked=[("user", "Is tin a metal?")]
)
CALL = Span(
    "t", "2", "1", "llm", start=5, end=9, asked=[("user", PROMPT)], said=["Yes."], model="m",
    tokens_in=3, tokens_out=1,
)  # fmt: skip
SPANS = [
    ROOT._replace(asked=[]),
    Span("t", "3", "1", "retrieval", start=2, documents=["b", "a"]),
    Span("t", "4", "1", "retrieval", start=3, documents=["a", "c"]),
    Span("t", "6", "1", "tool", start=4, tool_result="first"),
    Span("t", "7", "1", "tool", start=4, tool_result="second"),
    CALL,
    CALL._replace(span_id="5", start=6, end=8, said=["No."], model="n"),
    # The same id a second time, and a span without its root.
    CALL._replace(said=["Later."], start=7),
    CALL._replace(span_id="8", parent_id="9"),
    # Spans without times, of which one is repeated with another answer.
    Span("t", "10", "1", "retrieval", documents=["e"]),
    Span("t", "10", "1", "retrieval", documents=["d"]),
    Span("t", "1", kind="message", start=19, asked=[("user", "Is tin a metal?")]),
    Span("t", "1", kind="message", start=20, asked=[("assistant", "What?")]),
    Span("t", "1", kind="message", start=21, asked=[("user", "Is it?")]),
    Span("t", "77", kind="message", start=1, said=["Lost."]),
]


def test_a_trace_gives_what_each_of_its_spans_has() -> None:
    found = assemble(SPANS, tools=True)
    assert found.values == {
        "sample_id": "t",
        "user_input": "Is it?",
        "response": "Yes.",
        "retrieved_contexts": ["d", "b", "a", "c", "first", "second"],
        "name": "qa",
        "model": "m",
        "tokens_in": 6,
        "tokens_out": 2,
        "latency_ms": 1000,
        "start_time": "2023-11-14T22:13:20.000000+00:00",
        "trace_id": "t",
        "span_id": "2",
        "conversation_id": "t",
        "turn": 2,
        "history": [
            {"role": "user", "content": "Is tin a metal?"},
            {"role": "assistant", "content": "What?"},
        ],
    }
    assert found.left_out == {
        assembly.REPEATED: 2,
        assembly.ORPHANS: 1,
        assembly.LOST_EVENTS: 1,
    }


@given(st.randoms(use_true_random=False))
def test_any_order_of_spans_gives_the_same_sample(order: random.Random) -> None:
    shuffled = [*SPANS, *SPANS]
    order.shuffle(shuffled)
    assert assemble(shuffled, tools=True) == assemble(SPANS, tools=True)


def test_the_question_is_what_the_root_was_asked() -> None:
    both = assemble([ROOT, CALL], tools=False).values
    assert both is not None
    assert (both["user_input"], both["response"]) == ("Is tin a metal?", "Yes.")
    alone = assemble([ROOT._replace(asked=[]), CALL], tools=False).values
    assert alone is not None
    assert alone["user_input"] == PROMPT


def contexts(*spans: Span, tools: bool = False) -> tuple[list[str], int]:
    """The contexts of the sample of spans, and how many results came after the answer."""
    found = assemble(spans, tools=tools)
    assert found.values is not None
    return found.values.get("retrieved_contexts", []), found.left_out[assembly.LATE]


def retrieval(span_id: str, start: int, *documents: str) -> Span:
    return Span("t", span_id, "1", "retrieval", start=start, documents=documents)


def test_of_several_log_records_with_all_messages_the_last_counts() -> None:
    first = Span("t", "1", kind="exchange", start=2, asked=[("user", "Is it?")], said=["Let me."])
    last = first._replace(start=3, asked=[*first.asked, ("tool", "Tin.")], said=["Yes."])
    silent = first._replace(start=4, asked=[], said=[], model="m")
    found = assemble([ROOT._replace(asked=[]), last, silent, first], tools=True).values
    assert found is not None
    assert (found["user_input"], found["response"], found["model"]) == ("Is it?", "Yes.", "m")
    assert found["retrieved_contexts"] == ["Tin."]


@pytest.mark.parametrize("said", [[], ["Yes."]])
def test_what_is_retrieved_after_the_answer_is_no_context(said: list[str]) -> None:
    root = ROOT._replace(said=said)
    found = [retrieval("3", 2, "before"), retrieval("4", 9, "at its end"), CALL]
    late = [retrieval("5", 10, "after"), Span("t", "6", "1", "tool", start=11, tool_result="21")]
    assert contexts(root, *found, *late) == (["before", "at its end"], 1)
    assert contexts(root, *found, *late, tools=True) == (["before", "at its end"], 2)


@pytest.mark.parametrize(
    "root",
    [
        # What the root returned is not what the last call said, or its call has no usable end.
        ROOT._replace(said=["Yes, it is."]),
        ROOT,
    ],
)
def test_without_the_time_of_the_answer_all_is_context(root: Span) -> None:
    call = CALL if root.said else CALL._replace(end=0)
    assert contexts(root, call, retrieval("5", 10, "after")) == (["after"], 0)


def test_a_reranker_drops_documents() -> None:
    first = retrieval("3", 2, "a", "b")
    again = retrieval("4", 3, "b", "c")
    other = retrieval("5", 3, "d")
    ranked = Span("t", "6", "1", "reranker", start=4, documents=["c"], reranked=["a", "b", "c"])
    assert contexts(ROOT, CALL, first, again, other, ranked) == (["d", "c"], 0)
    # What it was given is not recorded: all of the retrieval from which something came.
    untold = ranked._replace(reranked=[])
    assert contexts(ROOT, CALL, first, again, other, untold) == (["a", "d", "c"], 0)
    # Nothing came out that has a text, or it came out after the answer.
    for unknown in (ranked._replace(documents=[]), ranked._replace(start=10)):
        assert contexts(ROOT, CALL, first, unknown)[0] == ["a", "b"]


def test_a_document_that_an_earlier_reranker_kept_stays() -> None:
    def reranker(span_id: str, start: int, given: list[str], kept: list[str]) -> Span:
        return Span("t", span_id, "1", "reranker", start=start, documents=kept, reranked=given)

    kept = reranker("4", 3, ["a", "b"], ["a"])
    hops = [retrieval("3", 2, "a", "b"), kept, retrieval("5", 4, "a", "c")]
    assert contexts(ROOT, CALL, *hops, reranker("6", 5, ["a", "c"], ["c"])) == (["a", "c"], 0)
    # One that is given what another one kept decides again.
    chain = [retrieval("3", 2, "a", "b"), reranker("4", 3, ["a", "b"], ["b", "a"])]
    assert contexts(ROOT, CALL, *chain, reranker("6", 5, ["b", "a"], ["b"])) == (["b"], 0)


def test_results_of_tools_stand_in_the_calls_of_an_agent() -> None:
    asked = [("user", "Is it?"), ("assistant", None), ("tool", "21"), ("tool", "22")]
    agent = ROOT._replace(said=["Yes."])
    first = CALL._replace(span_id="3", said=[], start=3, end=4)
    last = CALL._replace(asked=asked)
    assert contexts(agent, first, last, tools=True) == (["21", "22"], 0)
    assert contexts(agent, first, last) == ([], 0)
    tool = Span("t", "4", "1", "tool", start=4, tool_result="itself")
    assert contexts(agent, first, last, tool, tools=True) == (["itself"], 0)


def test_what_an_earlier_call_said_is_no_answer_after_a_failure() -> None:
    failed = CALL._replace(span_id="3", start=10, end=11, said=[], failed=True)
    found = assemble([ROOT, CALL, failed], tools=False)
    assert found == (None, Counter([assembly.FAILED]), assembly.FAILED)
    answered = assemble([ROOT._replace(said=["Sorry."]), CALL, failed], tools=False).values
    assert answered is not None
    assert answered["response"] == "Sorry."
    # A call that failed and was repeated, and one that said something.
    for calls in ([failed, CALL._replace(end=12)], [CALL, failed._replace(said=["Yes."])]):
        assert assemble([ROOT, *calls], tools=False).values is not None


def test_a_span_with_a_remote_parent_that_is_not_there_is_a_root() -> None:
    top = ROOT._replace(parent_id="gateway", parent_is_remote=True)
    found = assemble([top, CALL], tools=False)
    assert found.values == assemble([ROOT, CALL], tools=False).values
    assert not found.left_out
    assert assemble([ROOT._replace(parent_id="gateway"), CALL], tools=False).values is None
    # A parent in another process, which is in the files.
    below = CALL._replace(parent_is_remote=True)
    assert not assemble([ROOT, below], tools=False).left_out
    # The first one that gives a sample counts, as of any roots.
    second = top._replace(span_id="9", start=BEGUN + 2, said=["No."])
    found = assemble([second, top, CALL], tools=False)
    assert found.values is not None
    assert (found.values["response"], found.left_out) == ("Yes.", {assembly.FURTHER_ROOTS: 1})


def test_a_session_is_the_conversation() -> None:
    found = assemble([ROOT._replace(session="s"), CALL], tools=False).values
    assert found is not None
    assert (found["conversation_id"], found["session"]) == ("s", "s")
    assert "turn" not in found


def test_without_a_root_nothing_else_is_told() -> None:
    found = assemble([CALL, CALL._replace(span_id="3")], tools=False)
    assert found == (None, Counter([assembly.NO_ROOT]), assembly.NO_ROOT)


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("Why?", [("user", "Why?")]),
        ('{"query": "Why?"}', [("user", "Why?")]),
        ({"args": [], "kwargs": {"question": "Why?"}}, [("user", "Why?")]),
        ({"messages": [[{"type": "human", "data": {"content": "Why?"}}]]}, [("user", "Why?")]),
        (
            {"messages": [{"type": "constructor", "kwargs": {"content": "W", "type": "ai"}}]},
            [("assistant", "W")],
        ),
        ([{"role": "model", "parts": [{"text": "a"}, {"text": "b"}]}], [("assistant", "a\nb")]),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], [("user", None)]),
        (
            [{"role": "user", "parts": [{"type": "blob", "content": "aGVs"}, "x"]}],
            [("user", "x")],
        ),
        ([{"role": "critic", "content": "no"}], []),
        ([{"message": {"role": "tool", "content": "21"}}], [("tool", "21")]),
        (17, []),
        ("  ", []),
    ],
)  # fmt: skip
def test_messages_of_many_libraries(value: Any, messages: list[tuple[str, str]]) -> None:
    assert values.messages_of(value) == messages


@pytest.mark.parametrize(
    ("value", "first", "last"),
    [
        ("Tin.", "Tin.", "Tin."),
        ('{"a": 1}', '{"a": 1}', '{"a": 1}'),
        ('{"answer": "Tin."}', "Tin.", "Tin."),
        ({"a": 1}, None, None),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "a", "b"),
        ({"messages": [{"role": "ai", "content": "a"}, {"role": "ai", "content": "b"}]}, "b", "b"),
        ({"role": "critic", "content": "a"}, None, None),
        ({"choices": [{"message": {"role": "assistant", "content": "Tin."}}]}, "Tin.", "Tin."),
        ({"generations": [[{"text": "Tin."}]]}, "Tin.", "Tin."),
        ([{"role": "user", "content": "Tin?"}], None, None),
        ([{"role": "assistant", "content": " "}], None, None),
    ],
)  # fmt: skip
def test_answers_of_many_libraries(value: Any, first: str | None, last: str | None) -> None:
    assert values.answer_of(value) == first
    assert values.answer_of(value, last=True) == last


def test_a_text_that_is_json_is_no_answer_where_it_is_no_text() -> None:
    assert values.answer_of('{"a": 1}', plain=False) is None


@pytest.mark.parametrize(
    ("value", "documents"),
    [
        ("a", ["a"]),
        (["a", {"pageContent": "b"}, {"document": {"content": "c"}}, {"id": "d"}], ["a", "b", "c"]),
        ('{"documents": [{"text": "a"}, {"page_content": " "}]}', ["a"]),
        ({"1": {"content": "b"}, "0": {"content": "a"}, "10": {"content": "c"}}, ["a", "b", "c"]),
        (3, []),
    ],
)
def test_documents_of_many_libraries(value: Any, documents: list[str]) -> None:
    assert values.documents_of(value) == documents


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7), ("7", 7), (7.0, 7), ("7.5", None), (-1, None), (True, None), (2**64, None),
     (float("nan"), None), ("1e999", None), ("9" * 5_000, None), (None, None), ([], None)],
)  # fmt: skip
def test_counts_are_whole_numbers(value: Any, number: int | None) -> None:
    assert values.count(value) == number


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01 00:00:00.000001", 1_000),
        (12, 12),
        ("1960-01-01", None),
        ("9999-12-31T23:59:59", None),
        ("soon", None),
        (-1, None),
        (float("inf"), None),
    ],
)
def test_times_are_nanoseconds(value: Any, moment: int | None) -> None:
    assert values.nanoseconds(value) == moment


def test_deep_values_are_cut_off() -> None:
    deep: Any = "end"
    for _ in range(900):
        deep = {"messages": [deep]}
    assert values.messages_of(deep) == []
    assert values.documents_of({"documents": deep}) == []
    assert values.answer_of(deep) is None
    assert "end" not in str(values.nest(deep))
    text = '{"messages": [' * 400 + '{"role": "user", "content": "end"}' + "]}" * 400
    assert values.messages_of(text) == [("user", text)]


def test_of_dotted_names_that_clash_the_shorter_stays() -> None:
    assert values.nest({"a.b": 1, "a": "text"}) == {"a": "text"}
    assert values.nest({"a.b": 1, "a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert values.nest({"a.b": None}) == {}


def test_a_parent_of_zeros_is_none() -> None:
    span = {"traceId": "t", "spanId": "1", "parentSpanId": "0" * 16}
    (found,) = otlp_spans({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, "t.jsonl:1")
    assert isinstance(found, Span)
    assert found.parent_id is None


def test_the_first_choice_counts() -> None:
    def choice(index: int, answer: str) -> dict[str, Any]:
        message = '{"role": "assistant", "content": "' + answer + '"}'
        return {
            "name": "gen_ai.choice",
            "timeUnixNano": str(9 - index),
            "attributes": [
                {"key": "index", "value": {"intValue": str(index)}},
                {"key": "message", "value": {"stringValue": message}},
            ],
        }

    span = {"traceId": "t", "spanId": "1", "events": [choice(1, "Second."), choice(0, "First.")]}
    (found,) = otlp_spans({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, "t.jsonl:1")
    assert isinstance(found, Span)
    assert found.said == ["First."]


@pytest.mark.parametrize(
    ("start", "end"),
    [(100_000, BEGUN), (0, 10**9), (BEGUN, BEGUN * 3), (10**17, 10**17 + 5)],
)
def test_times_of_no_known_year_are_missing(start: int, end: int) -> None:
    found = assemble([ROOT._replace(start=start, end=end, said=["Yes."])], tools=False).values
    assert found is not None
    assert found.get("latency_ms") is None
    assert (found.get("start_time") is None) == (start != BEGUN)
