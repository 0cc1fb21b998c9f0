"""Messages, answers, documents, numbers and times in the JSON of spans.

The values are those of strangers: what has no known shape is None or an empty list, and nothing
here raises.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from claimflow.flows.samples.conversations import ROLES
from claimflow.flows.samples.json_files import replace_lone_surrogates
from claimflow.flows.traces.spans import Message

_DEPTH: Final = 32
"""Levels of nesting that are read; what is below is left out."""

_NAME_PARTS: Final = 15
"""Dots of a name that divide it."""

_LARGEST: Final = 2**63 - 1

_MESSAGE_LISTS: Final = ("messages", "input_messages", "output_messages")
_QUESTIONS: Final = (
    "question", "query", "user_input", "input", "prompt", "user_query", "text", "content",
    "kwargs", "args",
)  # fmt: skip
_ANSWERS: Final = (
    "answer", "response", "output", "result", "output_text", "completion", "generations",
    "generation", "choices", "message", "content", "text",
)  # fmt: skip
_DOCUMENT_LISTS: Final = (
    "documents", "results", "contexts", "passages", "chunks", "nodes", "source_documents", "output",
)  # fmt: skip
_DOCUMENT_TEXTS: Final = ("content", "text", "page_content", "pageContent", "chunk", "body")
_TEXT_PARTS: Final = (None, "text", "input_text", "output_text")


def nest(value: Any, depth: int = 0) -> Any:
    """`value` with dotted names as objects in objects, without members that are null.

    `{"a.0.b": 1}` becomes `{"a": {"0": {"b": 1}}}`; `items` reads such numbers as a list.
    """
    if depth > _DEPTH:
        return None
    if isinstance(value, list):
        return [nest(member, depth + 1) for member in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    # In order, so that the order of the members does not decide which of two clashing ones stays.
    for name in sorted(value):
        member = nest(value[name], depth + 1)
        if member is not None:
            _put(found, name.split(".", _NAME_PARTS), member)
    return found


def _put(found: dict[str, Any], parts: list[str], member: Any) -> None:
    """Set a member unless the name of another one, or the beginning of it, is the same."""
    *above, last = parts
    for part in above:
        found = found.setdefault(part, {})
        if not isinstance(found, dict):
            return
    known = found.setdefault(last, member)
    if known is not member and isinstance(known, dict) and isinstance(member, dict):
        found[last] = {**member, **known}


def at(values: Any, path: str) -> Any:
    """The member at a dotted path of nested objects, or None."""
    for name in path.split("."):
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def items(value: Any) -> list[Any] | None:
    """The members of a list, or of an object whose names are numbers; None for other values."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and value and all(_is_place(name) for name in value):
        return [value[name] for name in sorted(value, key=lambda name: (int(name), name))]
    return None


def _is_place(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 10


def parsed(value: Any) -> Any:
    """The value of a text that is an object or a list in JSON; other values as they are."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        found = json.loads(replace_lone_surrogates(value))
    except (ValueError, RecursionError):
        return value
    return found if _is_shallow(found) else value


def _is_shallow(value: Any) -> bool:
    """Whether the functions here can walk a value without recursion of hundreds of levels."""
    level = [value]
    for _ in range(_DEPTH * 2):
        level = [
            member
            for one in level
            if isinstance(one, list | dict)
            for member in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def messages_of(value: Any, depth: int = 0) -> list[Message]:
    """The messages in a value: a list of them, one, an object around them, or a plain question."""
    value = parsed(value)
    if depth > _DEPTH:
        return []
    if isinstance(value, str):
        return [("user", value)] if value.strip() else []
    members = items(value)
    if members is not None:
        return [one for member in members for one in messages_of(member, depth + 1)]
    if not isinstance(value, dict):
        return []
    message = _message(value)
    if message is not None or _is_of_another_role(value):
        return [message] if message is not None else []
    for name in (*_MESSAGE_LISTS, "message", *_QUESTIONS):
        found = messages_of(value.get(name), depth + 1)
        if found:
            return found
    return []


def _message(value: Mapping[str, Any]) -> Message | None:
    """One message in the form of OpenAI, OpenTelemetry, OpenInference or LangChain."""
    for name in ("message", "data", "kwargs"):
        inner = value.get(name)
        if isinstance(inner, dict) and ("content" in inner or "role" in inner):
            value = {**value, **inner}
    names = [value.get("role"), value.get("type")]
    role = next((ROLES[n] for n in map(_folded, names) if n in ROLES), None)
    if role is None:
        return None
    contents = [value.get(name) for name in ("content", "parts", "contents")]
    texts = [text for one in contents if (text := _content(one)) is not None]
    return role, "\n".join(texts[:1]) if texts else None


def _is_of_another_role(value: Mapping[str, Any]) -> bool:
    """Whether an object is a message in a role that is not read, so that its text is not either."""
    return isinstance(value.get("role"), str)


def _folded(name: Any) -> str:
    # Google calls its model so.
    return "" if not isinstance(name, str) else "ai" if name == "model" else name.casefold()


def _content(value: Any) -> str | None:
    """The text of a message, its parts on lines of their own."""
    if isinstance(value, str):
        return value
    parts = items(value)
    if parts is None:
        parts = [value]
    texts = [text for part in parts if (text := _part(part)) is not None]
    return "\n".join(texts) if texts else None


def _part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    inner = part.get("message_content")
    part = inner if isinstance(inner, dict) else part
    if part.get("type") in ("tool_call_response", "tool_result"):
        return shown(part.get("response", part.get("result", part.get("content"))))
    if part.get("type") not in _TEXT_PARTS:
        return None
    text = part.get("text", part.get("content"))
    return text if isinstance(text, str) else None


def answer_of(value: Any, *, last: bool = False, plain: bool = True, depth: int = 0) -> str | None:
    """The answer in a value: a text, the message of the assistant, or an object around it.

    Of several it is the first, as for the choices of one call, or the `last`. If `plain`, a text
    that is JSON without an answer in it is an answer itself.
    """
    text, value = value, parsed(value)
    found = None
    if isinstance(value, str):
        return value if value.strip() else None
    if depth <= _DEPTH:
        found = _answer_within(value, last=last, depth=depth + 1)
    return text if found is None and plain and isinstance(text, str) else found


def _answer_within(value: Any, *, last: bool, depth: int) -> str | None:
    members = items(value)
    if members is not None:
        within = (one for one in (reversed(members) if last else members) if _is_container(one))
        answers = (answer_of(one, last=last, depth=depth) for one in within)
        return next((one for one in answers if one is not None), None)
    if not isinstance(value, dict):
        return None
    message = _message(value)
    if message is not None:
        role, text = message
        return text if role == "assistant" and text and text.strip() else None
    if _is_of_another_role(value):
        return None
    for name in _MESSAGE_LISTS:
        found = answer_of(value.get(name), last=True, plain=False, depth=depth)
        if found is not None:
            return found
    answers = (answer_of(value.get(name), last=last, depth=depth) for name in _ANSWERS)
    return next((one for one in answers if one is not None), None)


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def documents_of(value: Any, depth: int = 0) -> list[str]:
    """The texts of documents: a list of them, one, or an object around them."""
    value = parsed(value)
    if isinstance(value, str):
        return [value] if value.strip() else []
    if depth > _DEPTH:
        return []
    members = items(value)
    if members is not None:
        return [text for one in members for text in documents_of(one, depth + 1)]
    if not isinstance(value, dict):
        return []
    for name in ("document", "node"):
        inner = value.get(name)
        if isinstance(inner, dict):
            return documents_of(inner, depth + 1)
    for name in _DOCUMENT_TEXTS:
        text = value.get(name)
        if isinstance(text, str):
            return [text] if text.strip() else []
    found = (documents_of(value.get(name), depth + 1) for name in _DOCUMENT_LISTS)
    return next((texts for texts in found if texts), [])


def shown(value: Any) -> str | None:
    """A text as it is, other values as JSON; None for null and for a blank text."""
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (ValueError, RecursionError):
        return None


def text(*values: Any) -> str | None:
    """The first of the values that is a text and not blank; a whole number counts as one."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
            return str(value)
    return None


def count(*values: Any) -> int | None:
    """The first of the values that is a whole number from 0, which may be written as text."""
    for value in values:
        number = _number(value)
        if number is not None and number >= 0 and number == int(number):
            return int(number)
    return None


def amount(*values: Any) -> float | None:
    """The first of the values that is a number from 0, which may be written as text."""
    for value in values:
        number = _number(value)
        if number is not None and number >= 0:
            return float(number)
    return None


def nanoseconds(value: Any, *, unit: int = 1) -> int | None:
    """A time since 1970: a number of `unit` nanoseconds, or a date and time in ISO 8601."""
    number = _number(value)
    if number is not None:
        found = int(number * unit)
        return found if 0 <= found <= _LARGEST else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        return None
    found = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000
    return found if 0 <= found <= _LARGEST else None


def _number(value: Any) -> int | float | None:
    """A number of at most 64 bits, also one that is written as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) <= 25:
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    # NaN fails the comparison.
    return value if isinstance(value, int | float) and abs(value) <= _LARGEST else None


def objects(value: Any, *names: str) -> Iterator[dict[str, Any]]:
    """The objects in the lists that the first of `names` found in the object `value` holds."""
    if isinstance(value, dict):
        members: Sequence[Any] = next((found for n in names if (found := items(value.get(n)))), [])
        yield from (member for member in members if isinstance(member, dict))


def entries(value: Any, *names: str) -> Iterator[dict[str, Any] | None]:
    """As `objects`, with None for what should be one of them, or a list of them, and is not."""
    members = None
    if isinstance(value, dict):
        members = items(next((value[n] for n in names if value.get(n) is not None), []))
    for member in [None] if members is None else members:
        yield member if isinstance(member, dict) else None
