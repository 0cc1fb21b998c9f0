"""Secrets of the environment: put into the headers of a request, and taken out of what comes back.

A header is `env:NAME` in the settings, in keys and in the store; its value exists only in the
request that is sent.
"""

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from claimflow.flows.pipeline.model_settings import HEADERS, header_variables

_HIDDEN: Final = "***"
_SHORTEST: Final = 8
_SHORTEST_HEADER: Final = 4
"""Shorter texts are no secrets, and would be found in ordinary words."""

_BLANKS: Final = r"(?:\s|\\[nrt])*"
"""What may be between two characters of a secret that was broken into lines or words."""

_used: Final[set[str]] = set()
"""Variables whose values were put into headers, whatever their names are."""


def with_header_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request with the values of headers that are `env:NAME`.

    Raises `KeyError` with the name of a variable that is not set.
    """
    filled = dict(parameters)
    for name in HEADERS:
        variables = header_variables({name: parameters.get(name)})
        if variables:
            _used.update(variables.values())
            filled[name] = {
                header: os.environ[variables[header]] if header in variables else value
                for header, value in parameters[name].items()
            }
    return filled


def missing_headers(parameters: Mapping[str, Any]) -> str | None:
    """Which variables of headers are not set or unfit for a header; None where none is."""
    for header, name in header_variables(parameters).items():
        value = os.environ.get(name, "")
        if not value:
            return f"set {name} in the environment, the value of the header {header}"
        if not (value.isascii() and value.isprintable()):
            return f"{name} in the environment holds a sign that the header {header} cannot have"
    return None


def without_secrets(text: str, further: Iterable[str] = ()) -> str:
    """The text with stars in place of keys: values of variables whose names end in KEY, TOKEN or
    SECRET, values of headers, and `further` ones. Also of keys that are written in base64, with
    escapes of JSON or of a URL in place of some characters, or with blanks between them."""
    # The longest first, since one may contain another.
    for secret in sorted({*_secrets(), *further}, key=len, reverse=True):
        text = re.sub(_spellings(secret), _HIDDEN, text)
    return text


@cache
def _spellings(secret: str) -> str:
    """A pattern for a secret as it is, or in a coding that a reader of the text may undo."""
    codes = re.escape(base64.b64encode(secret.encode("utf-8", "replace")).decode().rstrip("="))
    characters = _BLANKS.join(
        rf"(?:{re.escape(sign)}|\\{re.escape(sign)}|(?i:\\u{ord(sign):04x}|%{ord(sign):02x}))"
        for sign in secret
    )
    return f"{characters}|{codes}"


def _secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        key = name.upper().endswith(("KEY", "TOKEN", "SECRET")) and len(value) >= _SHORTEST
        if key or (name in _used and len(value) >= _SHORTEST_HEADER):
            yield value
