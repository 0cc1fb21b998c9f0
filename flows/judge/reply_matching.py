"""The entries of a reply matched by id to the questions asked."""

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
_TOLD: Final = 3
_LINES: Final = 20

Problem = tuple[FailureKind, str]
_Entries = Mapping[int, Sequence[Mapping[str, Any]]]


class Matched(NamedTuple):
    """Every open id stands either in `answers` or, with what is wrong, in `problems`.

    A message has at most 300 characters. `repaired` says that something was accepted which
    was not asked for in that form.
    """

    answers: dict[int, BaseModel]
    problems: dict[int, Problem]
    repaired: bool


def match_entries(value: Any, form: Form, open_ids: Sequence[int]) -> Matched:
    """The answers to `open_ids` in `value`, which is JSON as decoded.

    Taken are an object with the list `form.blank`, that list alone, or, for one open id, its
    entry alone. Entries are matched by id and nothing else: not by order, and not by being
    the only one left.
    """
    entries = _entries(value, form.blank, single=len(open_ids) == 1)
    if entries is None:
        why = f'the reply must be an object with the list "{form.blank}" of entries with ids'
        return Matched({}, dict.fromkeys(open_ids, ("invalid", why)), False)
    of_ids, strays, plain = _sorted_out(entries, open_ids)
    answers: dict[int, BaseModel] = {}
    problems: dict[int, Problem] = {}
    for number in open_ids:
        outcome = _outcome(number, of_ids.get(number, ()), form, strays)
        if isinstance(outcome, BaseModel):
            answers[number] = outcome
        else:
            problems[number] = (outcome[0], one_line(outcome[1], _MESSAGE))
    in_order = list(of_ids) == [number for number in open_ids if number in of_ids]
    once = all(len(said) == 1 for said in of_ids.values())
    asked = isinstance(value, dict) and list(value) == [form.blank]
    return Matched(answers, problems, not (asked and plain and in_order and once and not strays))


def retry_message(problems: Mapping[int, Problem], whole: str | None) -> str:
    """The message that asks once more for the ids of `problems`.

    `whole` is what was wrong with the reply as a whole, if anything was.
    """
    told = [] if whole is None else [one_line(whole, _MESSAGE)]
    told += [one_line(message, _MESSAGE) for _, message in problems.values()]
    lines = list(dict.fromkeys(told))
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


def _sorted_out(
    entries: Iterable[Any], open_ids: Sequence[int]
) -> tuple[_Entries, Sequence[str], bool]:
    """Entries by open id, what the others are, and whether each id is a plain number."""
    of_ids: dict[int, list[dict[str, Any]]] = defaultdict(list)
    strays = set()
    plain = True
    for entry in entries:
        if not isinstance(entry, dict):
            strays.add("an entry is no object")
            continue
        number = _number(entry.get("id"))
        if number is not None and number in open_ids:
            of_ids[number].append(entry)
            plain = plain and isinstance(entry["id"], int)
        elif isinstance(entry.get("id"), str | int | float):
            strays.add(f"id {one_line(json.dumps(entry['id']), 20)} was not asked for")
        else:
            strays.add("an entry has no id")
    return of_ids, sorted(strays), plain


def _number(said: Any) -> int | None:
    if isinstance(said, str) and _WHOLE.fullmatch(said):
        return int(said)
    if isinstance(said, float) and said.is_integer():
        return int(said)
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _outcome(
    number: int, said: Sequence[Mapping[str, Any]], form: Form, strays: Sequence[str]
) -> BaseModel | Problem:
    if not said:
        return "missing", "; ".join([f"id {number} is missing", *strays[:_TOLD]])
    first, *others = (_answer(entry, form) for entry in said)
    if any(other != first for other in others):
        return "conflict", f"id {number} is answered twice, differently"
    if isinstance(first, str):
        return "invalid", f"id {number}: {first}"
    return first


def _answer(entry: Mapping[str, Any], form: Form) -> BaseModel | str:
    """What the entry says, or what is wrong with it."""
    try:
        return form.answer.model_validate({name: entry[name] for name in entry if name != "id"})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(_words(one["type"], one["loc"], one["msg"]) for one in wrong[:_TOLD])


def _words(kind: str, place: tuple[int | str, ...], message: str) -> str:
    name = one_line(".".join(str(part) for part in place), 40)
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"{name} was not asked for"
    if message.startswith("Input should "):
        return f"{name} must {message.removeprefix('Input should ')}"
    return f"{name}: {message}" if name else message
