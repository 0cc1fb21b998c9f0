"""Requests to a server that takes evaluations, within limits of time and size, and with retries."""

import asyncio
import json
import logging
import random
import re
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

import httpx

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.environment_secrets import without_secrets
from claimflow.flows.report.formatting import escape_controls

_LOG: Final = logging.getLogger("claimflow")

_ATTEMPT: Final = 30.0
"""Seconds for a request and its whole reply."""

_PATIENCE: Final = 120.0
"""Seconds after which a request that fails is not tried again."""

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0

_REPLY: Final = 1 << 20
"""Bytes of a reply; a longer one is no answer."""

_TOO_LONG: Final = f"replies with more than {_REPLY:,} bytes", "is it the right one?"

_SHOWN: Final = 200
"""Letters of a reply that a message shows."""

_RETRIED: Final = (429, 502, 503, 504)
"""Statuses after which the same request may succeed, by the specification of OTLP."""

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_OWN_HEADERS: Final = frozenset(
    (
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Headers that say how a request is sent, which only its sender can know."""

_URL_KEY: Final = re.compile(r"(?=[^/?&=#]*\d)[^/?&=#]{8,}")
"""A part of a path or query that may be a key: long, with a digit."""


class Reply(NamedTuple):
    """The status of a reply, and its content: as JSON, else its text; None where it is empty."""

    status: int
    content: Any


class TooMuchError(Exception):
    """The server does not take these evaluations together; some of them it may."""


class Endpoint:
    """A server at `url`, which the environment variable `variable` named; close it at the end.

    Redirects are not followed, since requests have keys in their headers. Errors are `InputError`s
    at the variable, without keys.
    """

    def __init__(self, url: str, headers: Mapping[str, str], variable: str) -> None:
        self.url = url
        self._variable = variable
        self._headers = dict(headers)
        for name, value in headers.items():
            hint = "write name=value,name=value, with values in ASCII and percent-encoded"
            if not _HEADER.fullmatch(name):
                # It may be a key of which a part was taken for a name.
                self._fail("gives a header whose name has a sign that no name can have", hint)
            if not (value.isascii() and value.isprintable() and value == value.strip()):
                what = f"gives the header {name[:40]!r} a value with a sign that none can have"
                self._fail(what, hint)
            if name.lower() in _OWN_HEADERS:
                what = f"gives the header {name!r}, which claimflow sets itself"
                self._fail(what, "leave it out")
        self._runner = asyncio.Runner()
        self._client: httpx.AsyncClient | None = None
        self._told = False

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._runner.run(self._client.aclose())
        self._runner.close()

    def post(self, content: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Send JSON and return the reply of status 2xx, or of 4xx except 401, 403, 408 and 429.

        Raises `InputError` where the server cannot be reached in time, fails, refuses the key,
        redirects, or replies with more than a megabyte.
        """
        given = {"content-type": "application/json"} | dict(headers or {}) | self._headers
        return self._runner.run(self._post(content, given))

    async def _post(self, content: bytes, headers: Mapping[str, str]) -> Reply:
        deadline = time.monotonic() + _PATIENCE
        pause = _FIRST_PAUSE
        while True:
            after: float | None = None
            try:
                async with asyncio.timeout(_ATTEMPT):
                    status, reply, after = await self._attempt(content, headers)
                if status not in _RETRIED:
                    return self._checked(status, reply)
                problem = f"replies {status}{self._excerpt(reply)}"
            except TimeoutError:
                problem = f"does not reply within {_ATTEMPT:g} s"
            except httpx.HTTPError as error:
                problem = f"cannot be reached ({self._hidden(str(error) or type(error).__name__)})"
            # A server that names no time, or names 0, would else be asked without a pause.
            wait = max(random.uniform(pause / 2, pause), after or 0.0)
            if time.monotonic() + wait > deadline:
                asked = f" and asks to wait {after:.0f} s" if after else ""
                self._fail(problem + asked, _AGAIN)
            if not self._told:
                self._told = True
                place = f"{self._variable} ({shown_address(self.url)})"
                _LOG.warning("%s: %s; tried again for %.0f s", place, problem, _PATIENCE)
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attempt(
        self, content: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes, float | None]:
        if self._client is None:
            self._client = httpx.AsyncClient(follow_redirects=False, timeout=_ATTEMPT)
        # Some servers compress nevertheless.
        sent = dict(headers) | {"accept-encoding": "identity"}
        async with self._client.stream("POST", self.url, content=content, headers=sent) as reply:
            if reply.is_redirect:
                where = self._hidden(_server(reply.headers.get("location", "")))
                what = f"redirects to {where or 'another address'}, and keys are not sent there"
                self._fail(what, "name the address that it redirects to, if you trust it")
            read = b""
            async for part in reply.aiter_raw():
                read += part
                if len(read) > _REPLY:
                    self._fail(*_TOO_LONG)
            read = self._decoded(read, reply.headers.get("content-encoding", "identity"))
            return reply.status_code, read, _retry_after(reply.headers.get("retry-after"))

    def _decoded(self, content: bytes, encoding: str) -> bytes:
        """A reply without its compression, in which little may become much."""
        named = encoding.strip().lower()
        if not content or named == "identity":
            return content
        hint = "have it reply without compression"
        if named not in ("gzip", "x-gzip"):
            self._fail(f"replies in the encoding {self._hidden(encoding)[:40]!r}", hint)
        decompressor = zlib.decompressobj(wbits=31)
        try:
            found = decompressor.decompress(content, _REPLY + 1)
        except zlib.error:
            self._fail("replies with what is not gzip, as it says", hint)
        if len(found) > _REPLY:
            self._fail(*_TOO_LONG)
        if not decompressor.eof:
            self._fail("replies with gzip that is cut off", hint)
        return found

    def _checked(self, status: int, reply: bytes) -> Reply:
        if status in (401, 403):
            # Such a reply may repeat the key in any form.
            self._fail(f"replies {status}", "check its key")
        if status == 408 or not (200 <= status < 300 or 400 <= status < 500):
            self._fail(f"replies {status}{self._excerpt(reply)}", _AGAIN)
        if not reply.strip():
            return Reply(status, None)
        content = None
        with suppress(ValueError, RecursionError):
            content = json.loads(reply)
        return Reply(status, content if content is not None else self._hidden(_text(reply)))

    def refused(self, reply: Reply, why: str = "") -> NoReturn:
        """Raise `InputError` for a reply that takes nothing, or not all that was sent."""
        hint = "check the address and the version of the server"
        self._fail(f"replies {reply.status}{why}{self.excerpt(reply.content)}", hint)

    def too_large(self, reply: Reply, count: int) -> str:
        """Why the server refuses the one evaluation sent; of several, raises `TooMuchError`."""
        if count > 1:
            raise TooMuchError
        return f"it is too large for the server{self.excerpt(reply.content)}"

    def excerpt(self, content: Any) -> str:
        """The beginning of what a server says, without keys, after a colon; else empty."""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        text = self._hidden(text)[:_SHOWN]
        return f": {text}" if text and content not in (None, "") else ""

    def _excerpt(self, reply: bytes) -> str:
        return self.excerpt(_text(reply))

    def _hidden(self, text: str) -> str:
        values = [
            part for value in self._headers.values() for part in (value, value.rpartition(" ")[2])
        ]
        parts = urlsplit(self.url)
        values += _URL_KEY.findall(f"{parts.path}?{parts.query}")
        flat = " ".join(text.split())
        shown = without_secrets(flat, [value for value in values if len(value) > 3])
        # Here and not where it is printed: messages also go into logs, which escape nothing.
        return escape_controls(shown)

    def _fail(self, what: str, hint: str) -> NoReturn:
        raise InputError([Fault(f"{self._variable} ({shown_address(self.url)})", what, hint)])


_AGAIN: Final = "send again later: what the server has taken is not sent twice"


def _server(location: str) -> str:
    """The scheme, host and port of an address; empty where it has none."""
    with suppress(ValueError):
        parts = urlsplit(location)
        if parts.netloc:
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return ""


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "replace")


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait by the header Retry-After, a number or a date; None where it has neither."""
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}", value.strip()):
        return float(value)
    with suppress(ValueError, TypeError, OverflowError):
        until = parsedate_to_datetime(value)
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return None


def checked_address(variable: str, value: str) -> str:
    """An address of the environment; raises `InputError` where it is none or has keys."""
    try:
        parts = urlsplit(value)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        httpx.URL(value)
    except (ValueError, httpx.InvalidURL):
        valid = False
    if not valid or not value.isprintable():
        raise InputError([Fault(variable, "is no address", "write one as in http://host:4318")])
    if parts.username is not None or parts.password is not None:
        hint = "write it without them; keys have variables of their own"
        raise InputError([Fault(variable, "has a user or a key in it", hint)])
    return value


def address_on(variable: str, value: str, path: str, *, known: str) -> str:
    """The address of `path` on the server at an address of the environment.

    That may end in a slash or in a path that the pattern `known` matches: servers take requests at
    several, and other programs expect theirs in the same variable. Raises as `checked_address`.
    """
    parts = urlsplit(checked_address(variable, value))
    base = re.sub(f"(?:{known})$", "", parts.path.rstrip("/"))
    return parts._replace(path=f"{base.rstrip('/')}{path}").geturl()


def shown_address(url: str) -> str:
    """Scheme, host and port of an address: user, path and query may be keys."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def parsed_headers(variable: str, value: str) -> dict[str, str]:
    """Headers as OpenTelemetry writes them in the environment: `name=value,name=value`.

    Values are percent-encoded. Raises `InputError`.
    """
    headers = {}
    for part in filter(str.strip, value.split(",")):
        name, equals, given = part.partition("=")
        if not equals:
            hint = "write name=value,name=value, with values percent-encoded"
            raise InputError([Fault(variable, "has a part without =", hint)])
        headers[name.strip().lower()] = unquote(given.strip())
    return headers
