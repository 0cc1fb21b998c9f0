"""Tokens that a call took, as far as a reply reports them plausibly. Other numbers are unknown."""

import json
import re
from math import inf, isfinite
from typing import Any, Final

from claimflow.flows.judge.provider import Usage

_MOST_TOKENS: Final = 10**9
"""No call has as many."""

_LONGEST_NUMBER: Final = 20
"""Digits. Python refuses to read a number of some thousands."""

_OLLAMA: Final = ("prompt_eval_count", "eval_count")

_COUNT: Final = re.compile(r"tokens?(?:_?count)?$|eval_count$", re.IGNORECASE)
"""Names of numbers of tokens: prompt_tokens, promptTokenCount, eval_count."""


def is_count(value: Any) -> bool:
    """Whether a value can be a number of tokens."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


def checked_usage(usage: Any) -> Usage:
    """The usage that a provider returned, without numbers that cannot be one.

    Raises `TypeError` for anything but a `Usage`.
    """
    if not isinstance(usage, Usage):
        raise TypeError(f"the provider returned {type(usage).__name__}, not Usage")
    checked = Usage(*(count if is_count(count) else None for count in usage))
    if checked.cached is not None and checked.cached > (checked.prompt or 0):
        return checked._replace(cached=None)
    return checked


def read_reply(content: bytes) -> dict[str, Any]:
    """The JSON of a provider's reply, without numbers of tokens that cannot be one.

    litellm rejects a whole reply for one such number, after it was paid for, and some replies
    without a report of tokens, too. Where a number is wrong, all numbers beside it become 0, which
    litellm reads as not reported; a group of numbers within the report, such as
    `prompt_tokens_details`, is left out. So is a number that is not finite, such as 1e999 as the
    time of the reply. An embedding with a truth value in it, of which litellm would make 0 and 1,
    is left out. Raises `ValueError` where the reply is no JSON object.
    """
    reply = json.loads(content, parse_int=whole_number)
    if not isinstance(reply, dict):
        raise ValueError(f"the reply is {str(reply)[:50]!r}, not a JSON object")  # noqa: TRY004
    return checked_reply(reply)


def checked_reply(reply: dict[str, Any]) -> dict[str, Any]:
    """A provider's reply, see `read_reply`."""
    name = "usageMetadata" if "candidates" in reply else "usage"
    reply[name] = _checked_report(reply.get(name))
    # Ollama's numbers stand beside the answer.
    reply |= _checked_report({key: reply[key] for key in _OLLAMA if key in reply})
    for entry in reply["data"] if isinstance(reply.get("data"), list) else ():
        vector = entry.get("embedding") if isinstance(entry, dict) else None
        if isinstance(vector, list) and bool in set(map(type, vector)):
            entry["embedding"] = None
    return {
        name: value
        for name, value in reply.items()
        if not isinstance(value, float) or isfinite(value)
    }


def whole_number(digits: str) -> float:
    """An integer in JSON; infinite where it has more digits than Python reads."""
    return int(digits) if len(digits) <= _LONGEST_NUMBER else inf


def _checked_report(report: Any) -> dict[str, Any]:
    if not isinstance(report, dict):
        return {}
    counts = {name: value or 0 for name, value in report.items() if _COUNT.search(name)}
    if not all(map(_is_whole, counts.values())):
        counts = dict.fromkeys(counts, 0)
    groups = {name: _checked_group(value) for name, value in report.items() if name not in counts}
    return counts | {name: group for name, group in groups.items() if group is not None}


def _checked_group(group: Any) -> Any:
    """A part of a report without numbers that are null; None where a number is wrong."""
    if isinstance(group, list):
        parts = [_checked_group(part) for part in group]
        return None if None in parts else parts
    if not isinstance(group, dict):
        return group
    kept = {name: value for name, value in group.items() if value is not None}
    wrong = any(_COUNT.search(name) and not _is_whole(value) for name, value in kept.items())
    return None if wrong else kept or None


def _is_whole(value: Any) -> bool:
    """Whether a value is a number of tokens, possibly written with a point, as 12.0."""
    return is_count(int(value) if isinstance(value, float) and value.is_integer() else value)
