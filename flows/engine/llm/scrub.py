"""What an endpoint said, made fit to be told: short, on one line, without keys or prompts."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

LONGEST: Final = 300
"""Characters of a message."""

_READ: Final = 4_000
"""Characters of a text that are looked at; an endpoint may reply with a whole page."""

_WINDOW: Final = 20
"""A stretch of this many characters of a prompt counts as prompt."""

_PREFIX: Final = re.compile(
    r"(?:(?:litellm\.)?(?:[A-Z]\w*Error|Timeout(?: Error)?): |\w+(?:Exception|Error)(?: \w+)? - )+"
)
_SUFFIX: Final = re.compile(r"\.? Handle with `litellm\.\w+`\.?$")

_STARS: Final = "***"
_DOTS: Final = "[...]"

_SECRETS: Final = (
    re.compile(r"(?i)\b((?:bearer|basic)\s+)[^\s\"',;]{8,}"),
    re.compile(r"(?i)([\w-]*(?:key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&)]+"),
    re.compile(r"(://)[^/\s@]+(?=@)"),
    re.compile(r"\b()(?:(?:sk|pk|rk|gsk|hf|xai|pplx|nvapi|r8)[-_]|AIza)[\w*.-]+"),
)
"""The first group is what may stay."""


def words(text: str) -> str:
    """What the endpoint itself said, out of what litellm wraps it in."""
    text = _SUFFIX.sub("", _PREFIX.sub("", text[:_READ].strip(), count=1))
    start = text.find("{")
    try:
        reply = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        reply = None
    return _message(reply) or text


def _message(reply: Any) -> str | None:
    """The message in the body of an error, in the shapes that endpoints give it."""
    while isinstance(reply, dict):
        reply = reply.get("error") or reply.get("message") or reply.get("detail")
    if isinstance(reply, list):
        faults = [fault for fault in reply if isinstance(fault, dict)]
        told = [f"{_place(fault.get('loc'))}{fault.get('msg')}" for fault in faults]
        return "; ".join(told) or None
    return reply if isinstance(reply, str) else None


def _place(steps: Any) -> str:
    return ".".join(map(str, steps)) + ": " if isinstance(steps, list) else ""


def scrub(text: str, *, hide: Iterable[str] = ()) -> str:
    """`text` on one line, without control characters and secrets, at most 4,000 characters.

    Secrets are what looks like one, and the values of environment variables whose names
    end in KEY, TOKEN or SECRET. Stretches of the texts to `hide` go too.
    """
    text = text[:_READ]
    for secret in _known():
        text = text.replace(secret, _STARS)
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match[1] + _STARS, text)
    for hidden in hide:
        text = _without(text, hidden)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def clip(text: str, longest: int = LONGEST) -> str:
    """`text`, cut with an ellipsis when it is longer than that many characters."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _known() -> Iterator[str]:
    """Secrets of the environment, the longest first, since one may hold another."""
    values = {
        value
        for name, value in os.environ.items()
        if name.upper().endswith(("KEY", "TOKEN", "SECRET")) and len(value) >= 8
    }
    yield from sorted(values, key=len, reverse=True)


def _without(text: str, hidden: str) -> str:
    """`text` without what it repeats of `hidden`, but for a few characters at either end.

    Every stretch of twice the window holds a whole window that starts at a multiple of it.
    """
    windows = [text[start : start + _WINDOW] for start in range(0, len(text), _WINDOW)]
    told = [_DOTS if len(window) == _WINDOW and window in hidden else window for window in windows]
    return re.sub(rf"(?:{re.escape(_DOTS)})+", _DOTS, "".join(told))
