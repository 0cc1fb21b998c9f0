"""Matches the entries of a reply to the questions by id, and words the retry message."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError

from claimflow.flows.judge.reply_json import one_line
from claimflow.stages.rows import FailureKind
from claimflow.stages.tools import Form

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,8}")
_MESSAGE: Final = 300
_LISTED: Final = 3
_LINES: Final = 20

Problem = tuple[FailureKind, str]
_Entries = Mapping[int, Sequence[Mapping[str, Any]]]


class Matched(NamedTuple):
    """Every open id is either in `answers` or, with a message of at most 300 characters, in
    `problems`. `repaired` says that a deviation from the requested form was accepted.
    """

    answers: dict[int, BaseModel]
    problems: dict[int, Problem]
    repaired: bool


def match_entries(value: Any, form: Form, open_ids: Sequence[int]) -> Matched:
    """The answers to `open_ids` in the decoded JSON `value`.

    Accepted are an object with the list `form.blank`, that list alone, or, for one open id, its
    entry alone. Entries are matched by id only, never by order or because one is left.
    """
    entries = _entries(value, form.blank, single=len(open_ids) == 1)
    if entries is None:
        why = f'the reply must be an object with the list "{form.blank}" of entries with ids'
        return Matched({}, dict.fromkeys(open_ids, ("invalid", why)), False)
    by_id, unexpected, plain = _by_id(entries, open_ids)
    answers: dict[int, BaseModel] = {}
    problems: dict[int, Problem] = {}
    for number in open_ids:
        outcome = _outcome(number, by_id.get(number, ()), form, unexpected)
        if isinstance(outcome, BaseModel):
            answers[number] = outcome
        else:
            problems[number] = (outcome[0], one_line(outcome[1], _MESSAGE))
    in_order = list(by_id) == [number for number in open_ids if number in by_id]
    once = all(len(same) == 1 for same in by_id.values())
    asked = isinstance(value, dict) and list(value) == [form.blank]
    return Matched(
        answers, problems, not (asked and plain and in_order and once and not unexpected)
    )


def retry_message(problems: Mapping[int, Problem], whole: str | None) -> str:
    """The message that asks again for the ids of `problems`.

    `whole` is the problem of the reply as a whole, None if there is none.
    """
    messages = [*([] if whole is None else [whole]), *(text for _, text in problems.values())]
    lines = list(dict.fromkeys(one_line(message, _MESSAGE) for message in messages))
    if len(lines) > _LINES:
        lines[_LINES:] = [f"and {len(lines) - _LINES} more like these"]
    wrong = "\n".join(f"- {line}" for line in lines)
    ids = ", ".join(str(number) for number in sorted(problems))
    return (
        f"Your last reply cannot be used as it is:\n{wrong}\n\n"
        f"Answer again for the ids {ids} only, in the same form."
    )


def _entries(value: Any, blank: str, *, single: bool) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get(blank), list):
        found = value[blank]
    elif isinstance(value, dict) and single and "id" in value:
        found = [value]
    else:
        found = value
    if not isinstance(found, list):
        return None
    return found if not found or any(isinstance(entry, dict) for entry in found) else None


def _by_id(entries: Iterable[Any], open_ids: Sequence[int]) -> tuple[_Entries, Sequence[str], bool]:
    """Entries by open id, messages on all others, and whether every id is a plain number."""
    by_id: dict[int, list[dict[str, Any]]] = defaultdict(list)
    unexpected = set()
    plain = True
    for entry in entries:
        if not isinstance(entry, dict):
            unexpected.add("an entry is no object")
            continue
        number = _number(entry.get("id"))
        if number is not None and number in open_ids:
            by_id[number].append(entry)
            plain = plain and isinstance(entry["id"], int)
        elif isinstance(entry.get("id"), str | int | float):
            unexpected.add(f"id {one_line(json.dumps(entry['id']), 20)} was not asked for")
        else:
            unexpected.add("an entry has no id")
    return by_id, sorted(unexpected), plain


def _number(value: Any) -> int | None:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _outcome(
    number: int, entries: Sequence[Mapping[str, Any]], form: Form, unexpected: Sequence[str]
) -> BaseModel | Problem:
    if not entries:
        return "missing", "; ".join([f"id {number} is missing", *unexpected[:_LISTED]])
    first, *others = (_answer(entry, form) for entry in entries)
    if any(other != first for other in others):
        return "conflict", f"id {number} is answered twice, differently"
    if isinstance(first, str):
        return "invalid", f"id {number}: {first}"
    return first


def _answer(entry: Mapping[str, Any], form: Form) -> BaseModel | str:
    """The entry as the form's answer, or a message on what is wrong with it."""
    try:
        return form.answer.model_validate({name: entry[name] for name in entry if name != "id"})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(
            _validation_message(one["type"], one["loc"], one["msg"]) for one in wrong[:_LISTED]
        )


def _validation_message(kind: str, place: tuple[int | str, ...], message: str) -> str:
    name = one_line(".".join(str(part) for part in place), 40)
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} was not asked for"
    if message.startswith("Input should "):
        return f"{name} must {message.removeprefix('Input should ')}"
    return f"{name}: {message}" if name else message
