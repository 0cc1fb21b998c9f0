"""One sample of the spans of a trace, whatever order they come in."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from claimflow.flows.pipeline.limits import RECORD_BYTES
from claimflow.flows.samples.conversations import ConversationReader, History, last_turn
from claimflow.flows.samples.fields import fields_by_column
from claimflow.flows.traces.spans import LOGGED, Reason, Span

NO_ROOT: Final = "traces without their root span"
NO_MODEL: Final = "traces without a question, an answer or documents"
NO_QUESTION: Final = "traces without a question"
NO_ANSWER: Final = "traces without an answer"
FAILED: Final = "traces whose last call of a model failed"
TOO_LARGE: Final = f"traces of more than {RECORD_BYTES >> 20} MiB"
UNUSABLE: Final = "traces with a value that no sample can hold"
FURTHER_ROOTS: Final = "further roots of a trace"
ORPHANS: Final = "spans without their root"
REPEATED: Final = "spans whose id is repeated"
NO_TEXTS: Final = "retrievals without the texts of documents"
LOST_EVENTS: Final = "events without their span"
LATE: Final = "retrievals and tools after the answer"

_EARLIEST: Final = 946_684_800 * 10**9
_LATEST: Final = 4_102_444_800 * 10**9
"""The years 2000 and 2100, within which the times of a trace count."""


class Assembled(NamedTuple):
    """The columns of a sample, None where the trace gives none, and what was left out of it.

    `reason` is why the trace gives none.
    """

    values: dict[str, Any] | None
    left_out: Counter[Reason]
    reason: Reason | None = None


def assemble(spans: Iterable[Span], *, tools: bool) -> Assembled:
    """The sample of the spans of one trace; with `tools` their results are contexts too."""
    left_out: Counter[Reason] = Counter()
    known = _with_events(spans, left_out)
    trees = _trees(known, left_out)
    reasons = []
    values = None
    for tree in trees:
        found = _sample(tree, left_out, tools=tools) if values is None else FURTHER_ROOTS
        if isinstance(found, dict):
            values = found
            left_out[NO_TEXTS] += sum(one.kind == "retrieval" and not one.documents for one in tree)
        else:
            reasons.append(found)
    if values is None:
        # A root that says what is lacking tells more than one that has nothing to do with a model.
        reasons = [one for one in reasons if one != NO_MODEL][:1] or reasons[:1] or [NO_ROOT]
        # Each of its spans lacks a root for the one reason that is told of the trace.
        left_out.pop(ORPHANS, None)
    else:
        reasons = [FURTHER_ROOTS] * len(reasons)
    left_out.update(reasons)
    return Assembled(values, +left_out, reasons[0] if values is None else None)


def _order(span: Span) -> tuple[int, int, str, str]:
    """A total order: by time, and by what stands in the spans where they have no times."""
    return span.start or 0, span.end or 0, span.span_id, span.text()


def _with_events(spans: Iterable[Span], left_out: Counter[Reason]) -> list[Span]:
    """The spans in order, each once, with the messages that log records have of them."""
    ordered = sorted(_distinct(spans), key=_order)
    known: dict[str, Span] = {}
    events: dict[str, list[Span]] = {}
    for span in ordered:
        if span.kind in LOGGED:
            events.setdefault(span.span_id, []).append(span)
        elif known.setdefault(span.span_id, span) is not span:
            left_out[REPEATED] += 1
    for span_id, logged in events.items():
        if span_id in known:
            known[span_id] = _with_messages(known[span_id], logged)
        else:
            left_out[LOST_EVENTS] += len(logged)
    return [*known.values()]


def _with_messages(span: Span, logged: Sequence[Span]) -> Span:
    """A span with its messages, those that went in and the answers each from one source.

    The sources repeat each other: the span, a log record with all messages, which is the last one
    that has any, and the records of one message each.
    """
    exchanges = [one for one in reversed(logged) if one.kind == "exchange"]
    messages = [one for one in logged if one.kind == "message"]
    asked = next((one.asked for one in (span, *exchanges) if one.asked), None)
    said = next((one.said for one in (span, *exchanges) if one.said), None)
    if asked is None:
        asked = [message for one in messages for message in one.asked]
    if said is None:
        said = [answer for one in messages for answer in one.said]
    return span._replace(
        kind="llm" if span.kind == "other" and any(one.said for one in logged) else span.kind,
        asked=asked,
        said=said,
        model=next((one.model for one in (span, *logged) if one.model), None),
    )


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """The spans without those that are equal to another: exporters send some twice."""
    return [*{span.text(): span for span in spans}.values()]


def _trees(spans: Sequence[Span], left_out: Counter[Reason]) -> list[list[Span]]:
    """The spans of each root with the root first, the others in order.

    The top of what is in the files is a root too where its parent is in another process.
    """
    place = {span.span_id: number for number, span in enumerate(spans)}
    whole = next((span for span in spans if span.kind == "trace"), None)
    roots: list[Span] = []
    children: dict[str, list[Span]] = {}
    for span in spans:
        is_top = span.parent_is_remote and span.parent_id not in place
        if span is whole or is_top or not (span.parent_id or whole):
            roots.append(span)
        else:
            above = span.parent_id or (whole.span_id if whole else "")
            children.setdefault(above, []).append(span)
    trees = []
    seen: set[str] = set()
    for root in roots:
        tree, waiting = [], [root]
        while waiting:
            span = waiting.pop()
            tree.append(span)
            waiting += children.pop(span.span_id, [])
        seen.update(span.span_id for span in tree)
        trees.append([root, *sorted(tree[1:], key=lambda span: place[span.span_id])])
    orphans = sum(span.span_id not in seen for span in spans)
    if orphans:
        left_out[ORPHANS] += orphans
    return trees


def _sample(
    tree: Sequence[Span], left_out: Counter[Reason], *, tools: bool
) -> dict[str, Any] | Reason:
    """The sample of a root and the spans below it, or why there is none."""
    root = tree[0]
    calls = sorted(
        (span for span in tree if span.kind == "llm"),
        key=lambda span: (span.end or span.start or 0, *_order(span)),
    )
    if calls and calls[-1].failed and not (calls[-1].said or root.said):
        # What an earlier call said is no answer: the failed one was to follow it.
        return FAILED
    answering = root if root.said else next((one for one in reversed(calls) if one.said), None)
    if answering is None:
        asked = any(span.asked or span.documents for span in tree)
        return NO_ANSWER if asked or calls else NO_MODEL
    response = answering.said[-1]
    question, number, history = _conversation(root, answering, calls)
    if question is None or not question.strip():
        return NO_QUESTION
    end = _answer_end(answering, calls)
    used, late = [], 0
    for span in tree:
        if span.start is None or end is None or span.start <= end:
            used.append(span)
        else:
            late += bool(span.documents or (tools and span.tool_result))
    left_out[LATE] += late
    contexts = _documents(used)
    if tools:
        contexts += _tool_results(used, answering)
    call = answering if answering.model or not calls else calls[-1]
    session = next((span.session for span in tree if span.session), None)
    trace_id, span_id = root.logged or (root.trace_id, _span_id(tree, answering))
    values: dict[str, Any] = {
        "sample_id": root.trace_id if root.named else None,
        "user_input": question,
        "response": response,
        "retrieved_contexts": [*dict.fromkeys(contexts)] or None,
        "name": root.name,
        "model": call.model or root.model,
        "tokens_in": _sum([one.tokens_in for one in calls] or [root.tokens_in]),
        "tokens_out": _sum([one.tokens_out for one in calls] or [root.tokens_out]),
        "cost_usd": _cost(root, calls),
        "latency_ms": _milliseconds(tree),
        "start_time": _moment(root.start),
        "session": session,
        "trace_id": trace_id or None,
        "span_id": (trace_id and span_id) or None,
    }
    if session is not None:
        # The turns of a session, which are one cluster of the statistics, are numbered as they are
        # read; what was said before is what the model was told.
        values["conversation_id"] = session
    elif history and root.named:
        values |= {"conversation_id": root.trace_id, "turn": number}
    if history:
        values["history"] = history
    values = {name: value for name, value in values.items() if value is not None}
    # As it is read afterwards, where an error would end the run.
    _, errors = ConversationReader(fields_by_column({}), None).read(values, cells=False)
    return UNUSABLE if errors else values


def _span_id(tree: Sequence[Span], answering: Span) -> str:
    """The id of the span whose answer is the response; empty where only a whole trace has it."""
    if answering.kind != "trace":
        return answering.span_id
    tops = (span for span in tree[1:] if not span.parent_id)
    return next((top.span_id for top in tops if top.said[-1:] == answering.said[-1:]), "")


def _conversation(
    root: Span, answering: Span, calls: Sequence[Span]
) -> tuple[str | None, int, History]:
    """(question, number of the turn, earlier messages).

    The question is what the root was asked, since what a model is asked is often a prompt around
    it; the earlier messages are those of the first span that has some.
    """
    turns = [last_turn(span.asked) for span in (root, answering, *calls)]
    question = next((one for one, _, _ in turns if one and one.strip()), None)
    _, number, history = next((turn for turn in turns if turn[2]), (None, 1, []))
    return question, number, history


def _answer_end(answering: Span, calls: Sequence[Span]) -> int | None:
    """When the answer was complete: at the end of the last call of a model, where it gave it.

    None where that is not known, as of a span that had not ended when it was written.
    """
    last = calls[-1] if calls else answering
    given = last if last.said and last.said[-1] == answering.said[-1] else answering
    return given.end if given.end is not None and given.end >= (given.start or 1) else None


def _documents(spans: Sequence[Span]) -> list[str]:
    """The documents that retrievals found; rerankers return some of them in place of all.

    Where a reranker does not say what it was given, that was all of what a retrieval found of
    which it returned any.
    """
    found: list[dict[str, None]] = []
    places: dict[str, list[int]] = {}
    for span in spans:
        if span.kind == "reranker" and span.documents:
            sources = dict.fromkeys(places[one][-1] for one in span.documents if places.get(one))
            for text in span.reranked or [text for place in sources for text in found[place]]:
                above = places.get(text, [])
                while above:
                    place = above.pop()
                    del found[place][text]
                    # What an earlier reranker kept was used, also where it was found again.
                    if "reranker" in (spans[place].kind, *(spans[n].kind for n in above[-1:])):
                        break
        for text in dict.fromkeys(span.documents):
            places.setdefault(text, []).append(len(found))
        found.append(dict.fromkeys(span.documents))
    return [text for documents in found for text in documents]


def _tool_results(spans: Sequence[Span], answering: Span) -> list[str]:
    """What tools returned: to their own spans, or else in the last turn of what models were asked.

    The span of an agent has the answer, and only those of the calls below it have the results.
    """
    results = [span.tool_result for span in spans if span.tool_result]
    if not results:
        asked = (answering, *(span for span in spans if span.kind == "llm"))
        results = [text for span in asked for text in _last_results(span)]
    return results


def _last_results(call: Span) -> Iterator[str]:
    """The results of tools among the messages of the last turn."""
    users = [n for n, (role, _) in enumerate(call.asked) if role == "user"]
    for role, text in call.asked[users[-1] if users else 0 :]:
        if role == "tool" and text and text.strip():
            yield text


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return min(sum(known), 2**53) if known else None


def _cost(root: Span, calls: Sequence[Span]) -> float | None:
    """What the calls cost, or the trace as a whole, in US dollars."""
    known = [call.cost for call in calls if call.cost is not None]
    # Without the digits that only come from adding binary fractions.
    return round(math.fsum(known), 12) if known else root.cost


def _is_sane(nanoseconds: int) -> bool:
    """Whether a time may be that of a trace: others come of another unit, or of a missing value."""
    return _EARLIEST <= nanoseconds < _LATEST


def _moment(nanoseconds: int | None) -> str | None:
    """A time as text, UTC in ISO 8601; every text has the same length, so that they sort."""
    if nanoseconds is None or not _is_sane(nanoseconds):
        return None
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1_000)
    return found.isoformat(timespec="microseconds")


def _milliseconds(tree: Sequence[Span]) -> int | None:
    """How long the root took; a trace as a row may not say it, then up to the last end."""
    root = tree[0]
    end = root.end
    if end is None and root.kind == "trace":
        end = max((span.end for span in tree if span.end is not None), default=None)
    if root.start is None or end is None or end < root.start:
        return None
    if not (_is_sane(root.start) and _is_sane(end)):
        return None
    return round((end - root.start) / 10**6)
