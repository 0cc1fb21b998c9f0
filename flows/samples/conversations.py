"""Conversations: a list of messages as one sample for each turn, and rows that are turns already.

A turn begins with a message of the user and has all that follows up to the next one: calls of
tools, what they return, and the text of the assistant, which is its response.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from claimflow.flows.pipeline.limits import (
    COUNT,
    HISTORY_CHARACTERS,
    HISTORY_MESSAGES,
    MESSAGES,
    RECORD_BYTES,
    too_many,
)
from claimflow.flows.samples.fields import (
    checked_id,
    checked_passages,
    checked_text,
    checked_texts,
    python_list,
    sample_fields,
    split_contexts,
)
from claimflow.flows.samples.json_files import VALUE_KINDS, replace_lone_surrogates
from claimflow.flows.samples.records import TOO_DEEP, RecordError
from claimflow.stages.rows import canonical, content_key

Role = Literal["user", "assistant", "system", "tool"]

ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The roles of OpenAI, and the types of messages of ragas and LangChain."""

MESSAGE_COLUMNS: Final = ("messages", "conversation")
"""Columns that hold a conversation where they are a list and no column is the user's input."""

MADE_FIELDS: Final = ("conversation_id", "turn", "history")
"""The fields of the metadata that say where a turn stands."""

_TEXT_PARTS: Final = ("text", "input_text", "output_text")
_CALLS: Final = ("tool_calls", "function_call")
_CALL_PARTS: Final = ("tool_use", "tool_call", "function_call")

_EXAMPLE: Final = '{"role": "user", "content": "..."}'
_MESSAGES_HINT: Final = f"write a text, or a list of messages such as {_EXAMPLE}"
_MESSAGE_HINT: Final = f"write a message such as {_EXAMPLE}"
_ROLE_HINT: Final = "write user, assistant, system, developer or tool"

_LIST_OF_OBJECTS: Final = re.compile(r"\s*\[\s*\{")
_LIKE_MESSAGES: Final = re.compile(r"""\s*\[\s*\{\s*["'](?:role|type|content|data)["']\s*:""")
_SHOWN: Final = 40

History = list[dict[str, str]]
"""Earlier messages, the oldest first: `role` is user or assistant, `content` a text."""


class TurnSample(NamedTuple):
    """The fields of one sample; `turn` is (conversation, number) where it belongs to one."""

    fields: dict[str, Any]
    turn: tuple[str, int] | None = None
    history: Sequence[Mapping[str, str]] = ()

    def with_earlier_turns(self) -> dict[str, Any]:
        """The fields with the earlier messages as further retrieved contexts."""
        spoken = [one for one in self.history if one["content"].strip()]
        said = [f"{one['role']}: {one['content']}" for one in spoken]
        if not said:
            return self.fields
        contexts = self.fields["retrieved_contexts"] or []
        return self.fields | {"retrieved_contexts": [*contexts, *said]}


class _Message(NamedTuple):
    """A message; `text` is None where the assistant only calls tools."""

    role: Role
    text: str | None
    contexts: list[str] | None = None
    contexts_rest: Mapping[str, Any] = MappingProxyType({})
    references: Sequence[str] = ()


@dataclass
class _Turn:
    """A turn, and how many messages of the user and the assistant came before it."""

    earlier: int
    questions: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    tool_texts: list[str] = field(default_factory=list)
    contexts: list[str] | None = None
    contexts_rest: dict[str, Any] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)


class ConversationReader:
    """Reads records as samples: one for each turn of a conversation, and one for other records.

    `columns` are those that held messages, `made` the fields of metadata that were added. Turns
    without a number are numbered in the order of the records, so that one reader must read all
    records of an input.
    """

    def __init__(self, by_column: Mapping[str, str], contexts_separator: str | None) -> None:
        self.columns: set[str] = set()
        self.made: set[str] = set()
        self._by_column = by_column
        self._contexts_separator = contexts_separator
        self._copies: dict[str, int] = {}
        self._last_turns: dict[str, int] = {}

    def read(
        self, values: Mapping[str, Any], *, cells: bool
    ) -> tuple[list[TurnSample], list[RecordError]]:
        """(samples, errors) of one record; `cells` as for `sample_fields`.

        A record that is not a conversation has one sample, also with errors.
        """
        try:
            found = self._conversation(values, cells=cells)
        except RecordError as error:
            others = {
                name: value
                for name, value in values.items()
                if self._by_column.get(name) != "user_input"
            }
            return [], [error, *self._fields(others, cells=cells)[1]]
        if found is None:
            sample, errors = self._single(values, cells=cells)
            return [sample], errors
        column, messages = found
        self.columns.add(column)
        rest = {name: value for name, value in values.items() if name != column}
        fields, errors = self._fields(rest, cells=cells)
        parsed = self._parse_all(messages, column, errors)
        errors += _clashes(rest, column, self._by_column)
        if errors:
            return [], errors
        try:
            return self._turn_samples(rest, fields, column, parsed), []
        except RecordError as error:
            return [], [error]

    def count(self, values: Mapping[str, Any], *, cells: bool) -> int:
        """How many samples a record would have; 1 where it cannot be read."""
        try:
            found = self._conversation(values, cells=cells)
        except RecordError:
            return 1
        errors: list[RecordError] = []
        parsed = self._parse_all(found[1], found[0], errors) if found else []
        return max(1, len(_turns(parsed)[0]))

    def _fields(
        self, values: Mapping[str, Any], *, cells: bool
    ) -> tuple[dict[str, Any], list[RecordError]]:
        return sample_fields(
            values, self._by_column, cells=cells, contexts_separator=self._contexts_separator
        )

    def _conversation(
        self, values: Mapping[str, Any], *, cells: bool
    ) -> tuple[str, list[Any]] | None:
        """(column, messages) of a record that is a conversation, else None."""
        wanted = [
            name
            for name, value in values.items()
            if self._by_column.get(name) == "user_input" and value is not None
        ]
        # A column that `rename` makes the user's input is the only one.
        if not wanted and "user_input" in self._by_column:
            wanted = [
                name
                for name in MESSAGE_COLUMNS
                if values.get(name) is not None and name not in self._by_column
            ]
        if not wanted:
            return None
        lists = {name: message_list(values.get(name), name, cells=cells) for name in wanted}
        found = [(name, messages) for name, messages in lists.items() if messages is not None]
        if len(found) > 1:
            names = " and ".join(repr(name) for name, _ in found)
            raise RecordError(f"{names} both hold messages", "keep one of them")
        return found[0] if found else None

    def _single(
        self, values: Mapping[str, Any], *, cells: bool
    ) -> tuple[TurnSample, list[RecordError]]:
        """The sample of a record that is no list of messages, and may be a turn already."""
        if not any(values[name] is not None for name in values.keys() & MADE_FIELDS):
            fields, errors = self._fields(values, cells=cells)
            return TurnSample(fields), errors
        own = {
            name: values[name]
            for name in MADE_FIELDS
            if values.get(name) is not None and name not in self._by_column
        }
        made: dict[str, Any] = {}
        turn: tuple[str, int] | None = None
        found: list[RecordError] = []
        if "conversation_id" in own:
            try:
                name = conversation_name(own["conversation_id"])
                number = _turn_number(own.get("turn"), self._last_turns.get(name, 0) + 1)
            except RecordError as error:
                found.append(error)
            else:
                turn = name, number
                self._last_turns[name] = max(self._last_turns.get(name, 0), number)
                made = {} if "turn" in own else {"turn": number}
        history: History = []
        try:
            messages = message_list(own.get("history"), "history", cells=cells, empty=True)
        except RecordError as error:
            found.append(error)
        else:
            if messages is not None:
                parsed = self._parse_all(messages, "history", found, empty=True)
                history = recent_messages(_turns(parsed)[1])
                made["history"] = history
        self.made.update(made)
        fields, errors = self._fields({**values, **made}, cells=cells)
        return TurnSample(fields, turn, history), [*errors, *found]

    def _parse_all(
        self, messages: list[Any], column: str, errors: list[RecordError], *, empty: bool = False
    ) -> list[_Message]:
        """The messages that can be read; what is wrong with the others is added to `errors`."""
        if len(messages) > MESSAGES:
            what = f"{column!r} holds {too_many(len(messages), MESSAGES, 'messages')}"
            errors.append(RecordError(what, "divide the conversation"))
            return []
        known, parsed = len(errors), []
        for number, message in enumerate(messages):
            try:
                parsed.append(self._parse(message, f"{column}[{number}]"))
            except RecordError as error:
                errors.append(error)
        if not empty and len(errors) == known and not any(one.role == "user" for one in parsed):
            what = f"{column!r} has no message of the user"
            errors.append(RecordError(what, _MESSAGE_HINT))
        return parsed

    def _parse(self, message: Any, place: str) -> _Message:
        """One message in the form of OpenAI, ragas or LangChain."""
        if not isinstance(message, dict):
            raise RecordError(f"{place} is {VALUE_KINDS[type(message)]}", _MESSAGE_HINT)
        key = "role" if message.get("role") is not None else "type"
        role = _role(message.get(key), place, key)
        data = message.get("data")
        if key == "type" and isinstance(data, dict) and message.get("content") is None:
            message, place = {**message, **data}, f"{place}.data"
        calls = role == "assistant" and any(message.get(name) for name in _CALLS)
        text = _content(message.get("content"), f"{place}.content", calls=calls)
        if role in ("system", "tool"):
            return _Message(role, text)
        columns = {
            filled: [
                name
                for name, value in message.items()
                if self._by_column.get(name) == filled and value is not None
            ]
            for filled in ("retrieved_contexts", "reference")
        }
        contexts, rest = None, {}
        references: list[str] = []
        for filled, names in columns.items():
            if len(names) > 1:
                both = " and ".join(map(repr, names))
                raise RecordError(f"{place} has {both} for {filled}", "keep one of them")
            for name in names:
                try:
                    if filled == "reference":
                        references = checked_texts(message[name])
                        continue
                    value = split_contexts(message[name], self._contexts_separator)
                    contexts, others = checked_passages(value)
                    rest = {name: others} if others else {}
                except RecordError as error:
                    raise RecordError(f"{place}.{name} {error.what}", error.hint) from None
        return _Message(role, text, contexts, rest, references)

    def _turn_samples(
        self,
        values: Mapping[str, Any],
        fields: dict[str, Any],
        column: str,
        messages: list[_Message],
    ) -> list[TurnSample]:
        """The samples of a conversation whose record has these `fields` and `values` besides."""
        turns, said = _turns(messages)
        last = turns[-1]
        response = fields["response"]
        open_end = not last.answers
        if open_end and response is not None:
            last.answers.append(response)
        elif response is not None and response != _joined(last.answers):
            name = _column_of(values, "response", self._by_column)
            what = f"{name!r} and the last message of {column!r} are both the last response"
            raise RecordError(what, "keep one of them")
        metadata = json.loads(fields["metadata"])
        # Contexts beside a question at the end are those of that question.
        shared = None if open_end else fields["retrieved_contexts"]
        _check_shared(fields["metadata"], shared, len(turns))
        if metadata.get("conversation_id") is None:
            name = fields["sample_id"] or self._content_name(fields, messages)
            metadata["conversation_id"] = name
        else:
            name = conversation_name(metadata["conversation_id"])
        samples = []
        for number, turn in enumerate(turns, start=1):
            is_last = turn is last
            # A slice of all that was said would make long conversations quadratic.
            history = recent_messages(said[max(0, turn.earlier - HISTORY_MESSAGES) : turn.earlier])
            own = shared if not (is_last and open_end) else fields["retrieved_contexts"]
            contexts = turn.contexts if turn.contexts is not None else (turn.tool_texts or own)
            references = list(turn.references)
            if is_last:
                given = [fields["reference"], *fields["other_references"]]
                references += [one for one in given if one is not None and one not in references]
            placed = {"conversation_id": metadata["conversation_id"], "turn": number}
            sample = {
                **fields,
                "sample_id": fields["sample_id"] and f"{fields['sample_id']}-turn-{number}",
                "user_input": _joined(turn.questions),
                "response": _joined(turn.answers) if turn.answers else None,
                "reference": references[0] if references else None,
                "other_references": references[1:],
                "retrieved_contexts": contexts,
                "metadata": canonical(
                    {**metadata, **turn.contexts_rest, **placed, "history": history}
                ).decode(),
            }
            _check_turn(sample, number, column)
            if not is_last:
                sample |= {"response_claims": None, "reference_claims": None}
            samples.append(TurnSample(sample, (name, number), history))
        self._last_turns[name] = max(self._last_turns.get(name, 0), len(turns))
        self.made.update(MADE_FIELDS)
        return samples

    def _content_name(self, fields: Mapping[str, Any], messages: list[_Message]) -> str:
        """Key of a conversation's content, and of the number of earlier equal ones."""
        content = [fields, [_plain(message) for message in messages]]
        first = content_key("conversation", *content, 0)
        copy = self._copies.get(first, 0)
        self._copies[first] = copy + 1
        return content_key("conversation", *content, copy) if copy else first


def last_turn(messages: Iterable[tuple[Role, str | None]]) -> tuple[str | None, int, History]:
    """(question, number, earlier messages) of the last turn; no question where there is no turn."""
    turns, said = _turns(_Message(role, text) for role, text in messages)
    if not turns:
        return None, 0, []
    last = turns[-1]
    return _joined(last.questions), len(turns), recent_messages(said[: last.earlier])


def message_list(value: Any, column: str, *, cells: bool, empty: bool = False) -> list[Any] | None:
    """The messages in a value, which is a list or with `cells` its text; None for other values.

    Raises `RecordError` for a list without a message unless it may be `empty`, and for a text that
    is or looks like messages but cannot be read as such.
    """
    if isinstance(value, list):
        if not value and not empty:
            raise RecordError(f"{column!r} is an empty list", _MESSAGES_HINT)
        return value
    if not isinstance(value, str):
        return None
    if empty and cells and value.strip() == "[]":
        return []
    if not (_LIST_OF_OBJECTS.match(value) and value.rstrip().endswith("]")):
        return None
    found = _parsed_list(value, column)
    if isinstance(found, list) and any(map(_is_message, found)):
        if cells:
            return found
        raise RecordError(f"{column!r} holds messages as text", "write them as a list")
    if found is None and cells and _LIKE_MESSAGES.match(value):
        what = f"{column!r} looks like messages, and cannot be read"
        raise RecordError(what, f"write them as JSON: [{_EXAMPLE}]")
    return None


def _parsed_list(text: str, column: str) -> Any:
    """The value of JSON, or of a list as Python prints it; None for another text."""
    try:
        return json.loads(replace_lone_surrogates(text))
    except RecursionError:
        raise RecordError(f"{column!r} has {TOO_DEEP.what}", TOO_DEEP.hint) from None
    except ValueError:
        return python_list(text.strip())


def conversation_name(value: Any) -> str:
    """The text of a `conversation_id`; raises `RecordError` where it is no text and no number."""
    try:
        return str(checked_id(value))
    except RecordError as error:
        raise RecordError(f"'conversation_id' {error.what}", error.hint) from None


def recent_messages(said: History) -> History:
    """The newest of `said` within the limits of a history; the newest of all is cut to fit."""
    kept: History = []
    left = HISTORY_CHARACTERS
    for one in reversed(said[-HISTORY_MESSAGES:]):
        content = one["content"]
        if len(content) > left:
            if not kept:
                kept.append({**one, "content": content[-left:]})
            break
        kept.append(one)
        left -= len(content)
    return kept[::-1]


def _plain(message: _Message) -> list[Any]:
    """A message as JSON can hold it."""
    return [*message[:3], dict(message.contexts_rest), list(message.references)]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return "role" in value or (isinstance(kind, str) and kind.casefold() in ROLES)


def _role(name: Any, place: str, key: str) -> Role:
    if name is None:
        raise RecordError(f"{place} has no role", _ROLE_HINT)
    if not isinstance(name, str):
        raise RecordError(f"{place}.{key} is {VALUE_KINDS[type(name)]}", _ROLE_HINT)
    role = ROLES.get(name.casefold())
    if role is None:
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise RecordError(f"{place}.{key} is {shown!r}", _ROLE_HINT)
    return role


def _content(value: Any, place: str, *, calls: bool) -> str | None:
    """The text of a message, its parts on lines of their own; None where it only calls tools."""
    if isinstance(value, list) and value:
        parts = [_part(part, f"{place}[{number}]") for number, part in enumerate(value)]
        calls = calls or None in parts
        value = "\n".join(part for part in parts if part is not None)
    if calls and not value:
        return None
    if isinstance(value, list):
        raise RecordError(f"{place} is an empty list", "write it as text")
    return _checked(value, place)


def _part(part: Any, place: str) -> str | None:
    """The text of one part of a message; None for a call of a tool."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        what = f"{place} is {VALUE_KINDS[type(part)]}"
        raise RecordError(what, 'write {"type": "text", "text": "..."}')
    kind = part.get("type")
    if kind in _CALL_PARTS:
        return None
    if kind == "refusal":
        return _checked(part.get("refusal"), f"{place}.refusal")
    if kind in _TEXT_PARTS:
        return _checked(part.get("text"), f"{place}.text")
    shown = repr(kind[:_SHOWN]) if isinstance(kind, str) else VALUE_KINDS[type(kind)]
    raise RecordError(f"{place}.type is {shown}", "leave out what is no text")


def _checked(value: Any, place: str) -> str:
    try:
        return checked_text(value)
    except RecordError as error:
        raise RecordError(f"{place} {error.what}", error.hint) from None


def _turns(messages: Iterable[_Message]) -> tuple[list[_Turn], History]:
    """(turns, all texts of the user and the assistant) in order."""
    turns: list[_Turn] = []
    said: History = []
    tool_texts: list[str] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "user" and (not turns or turns[-1].answers):
            turns.append(_Turn(len(said)))
            # What a tool said before the first question belongs to it.
            turns[-1].tool_texts += tool_texts
            tool_texts = []
        turn = turns[-1] if turns else None
        if message.role == "tool":
            if message.text and message.text.strip():
                (turn.tool_texts if turn else tool_texts).append(message.text)
            continue
        if turn is not None:
            if message.text is not None:
                (turn.questions if message.role == "user" else turn.answers).append(message.text)
            if message.contexts is not None:
                turn.contexts = [*(turn.contexts or []), *message.contexts]
            turn.contexts_rest |= message.contexts_rest
            turn.references += [one for one in message.references if one not in turn.references]
        if message.text is not None:
            said.append({"role": message.role, "content": message.text})
    return turns, said


def _joined(texts: Collection[str]) -> str:
    """Texts on lines of their own, without blank ones where another is not blank."""
    return "\n".join([text for text in texts if text.strip()] or list(texts)[:1])


def _check_turn(sample: Mapping[str, Any], number: int, column: str) -> None:
    """Raise `RecordError` where the id or a text of a turn is longer than one of a sample."""
    checks = ((checked_id, "sample_id"), (checked_text, "user_input"), (checked_text, "response"))
    for check, name in checks:
        place = (
            f"the id of turn {number}" if name == "sample_id" else f"turn {number} of {column!r}"
        )
        try:
            if sample[name] is not None:
                check(sample[name])
        except RecordError as error:
            raise RecordError(f"{place} {error.what}", error.hint) from None


def _turn_number(value: Any, default: int) -> int:
    """The number of a turn, which a cell may hold as text; `default` where there is none."""
    if value is None:
        return default
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}(\.0)?", value.strip()):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= COUNT and value == int(value):
            return int(value)
        raise RecordError("'turn' is no whole number from 0", "number the turns 1, 2, 3")
    raise RecordError(f"'turn' is {VALUE_KINDS[type(value)]}", "number the turns 1, 2, 3")


def _clashes(
    values: Mapping[str, Any], column: str, by_column: Mapping[str, str]
) -> list[RecordError]:
    """Errors of columns that say of one turn what a list of messages says of all."""
    return [
        RecordError(f"{name!r} stands beside the messages in {column!r}", "leave it out")
        for name in ("turn", "history")
        if values.get(name) is not None and name not in by_column
    ]


def _column_of(values: Mapping[str, Any], filled: str, by_column: Mapping[str, str]) -> str:
    return next((name for name in values if by_column.get(name) == filled), filled)


def _check_shared(metadata: str, contexts: list[str] | None, turns: int) -> None:
    """Raise `RecordError` where what every turn has would make a table far larger than its file."""
    # An empty text takes some bytes too.
    size = len(metadata) + sum(len(text) + 16 for text in contexts or [])
    if turns > 1 and size * turns > RECORD_BYTES:
        what = f"{size:,} characters of contexts and metadata for each of {turns:,} turns"
        raise RecordError(what, "write contexts with the messages that they belong to")
