"""Provider errors: classified by status and text, reported without secrets."""

import asyncio
import json
import re
import threading
import traceback
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isnan
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import urljoin, urlsplit

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.environment_secrets import missing_headers, without_secrets
from claimflow.flows.judge.provider import BatchTerms, ErrorKind, JudgeProvider, ProviderError
from claimflow.flows.judge.usage import is_count
from claimflow.flows.pipeline.model_settings import Endpoint

LONGEST: Final = 300
"""Characters of a message."""

_GRACE_SECONDS: Final = 1.0

_READ: Final = 4_000
"""Characters of a text that are read, since an endpoint may reply with a whole page."""

_LONGEST_HEADER: Final = 100

_LONGEST_WAIT: Final = 86_400
"""Seconds. No call waits as long; a larger number would only be inexact."""

_WINDOW: Final = 20
"""A text that shares this many characters in a row with a prompt repeats the prompt."""

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
"""The first group of a match stays, the rest is replaced."""


def provider_message(text: str) -> str:
    """The endpoint's own error message, extracted from the text of litellm's exception."""
    text = _SUFFIX.sub("", _PREFIX.sub("", text[:_READ].strip(), count=1))
    start = text.find("{")
    try:
        reply = json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        reply = None
    return _message(reply) or text


def _message(reply: Any) -> str | None:
    """The message in the decoded body of an error, None where there is none."""
    while isinstance(reply, dict):
        reply = reply.get("error") or reply.get("message") or reply.get("detail")
    if isinstance(reply, list):
        faults = [fault for fault in reply if isinstance(fault, dict)]
        messages = [f"{_place(fault.get('loc'))}{fault.get('msg')}" for fault in faults]
        return "; ".join(messages) or None
    return reply if isinstance(reply, str) else None


def _place(steps: Any) -> str:
    return ".".join(map(str, steps)) + ": " if isinstance(steps, list) else ""


def scrub(text: str, *, hide: Iterable[str] = ()) -> str:
    """`text` on one line, without control characters and secrets, at most 4,000 characters.

    Secrets are texts of a known shape, and those that `without_secrets` knows. Quotations of the
    texts to `hide` are removed, too.
    """
    text = without_secrets(text[: 2 * _READ])[:_READ]
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match[1] + _STARS, text)
    for hidden in hide:
        text = _without(text, hidden)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def clip(text: str, longest: int = LONGEST) -> str:
    """`text`, cut with an ellipsis when it is longer than that many characters."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _without(text: str, hidden: str) -> str:
    """`text` without quotations of `hidden`; a few characters may stay at either end of each.

    `text` is cut into windows and those found in `hidden` are dropped. A quotation of at least
    twice the length of a window covers one window whole.
    """
    windows = [text[start : start + _WINDOW] for start in range(0, len(text), _WINDOW)]
    kept = [_DOTS if len(window) == _WINDOW and window in hidden else window for window in windows]
    return re.sub(rf"(?:{re.escape(_DOTS)})+", _DOTS, "".join(kept))


# Classification by status and text. The classes of litellm's exceptions are not used: they differ
# between providers for the same failure.


class _Rule(NamedTuple):
    """A failure with one of `statuses` and `pattern` in its text is of this `kind`."""

    kind: ErrorKind
    statuses: Container[int]
    pattern: str = ""
    hint: str = ""


_ANY: Final = range(1000)
_CLIENT_ERRORS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)

_PARAMETER: Final = (
    r"\b(?:temperature|seed|max_(?:completion_)?tokens|top_[pk]|min_p|logprobs|logit_bias"
    r"|(?:presence|frequency)_penalty|reasoning_effort)\b"
)
_KEY: Final = "set a key in the environment that the endpoint takes"
_PAY: Final = "the account has nothing left to spend"
_ADDRESS: Final = "write the whole address of the endpoint as api_base"
_NAMES: Final = "check the name of the model and the address of the endpoint"

_RULES: Final = [
    _Rule("timeout", {408, 504}),
    _Rule(
        "fatal",
        _ANY,
        r"missing credentials|missing [\w ]*api key|api_key client option must be set"
        r"|api[ _]key (?:is )?(?:not valid|invalid|expired)|control character detected in headers",
        _KEY,
    ),
    _Rule("fatal", {0, 500}, r"unsupportedprotocol|missingschema|invalid ?url", _ADDRESS),
    _Rule("fatal", _ANY, r"llm provider not provided", "name the provider first: openai/MODEL"),
    _Rule(
        "too_long",
        _ANY,
        r"contextwindowexceeded|context_length_exceeded|maximum context length"
        r"|prompt is too long|exceeds? the (?:available |maximum |model'?s )?context"
        r"|input is too long|input token count exceeds",
    ),
    _Rule("too_long", {400, 413, 422}, r"too many (?:input )?tokens"),
    # Gemini calls a limit per minute a quota, too.
    _Rule("throttled", {429}, r"(?:retry|try again) in \d"),
    _Rule(
        "fatal",
        _CLIENT_ERRORS,
        r"insufficient[_ ](?:quota|credits?|balance)|exceeded your current quota|credit balance"
        r"|\bbilling",
        _PAY,
    ),
    _Rule("throttled", {429, 529}),
    _Rule("throttled", _SERVER_ERRORS, r"overloaded"),
    # The model did not follow the schema this time; another attempt may succeed.
    _Rule("server", _CLIENT_ERRORS, r"json_validate_failed|tool_use_failed"),
    _Rule("server", {409}),
    _Rule(
        "refused",
        {400, 403, 422},
        r"content[_ ](?:policy|filter|management)|policy[_ ]?violation|safety system"
        r"|(?:input|prompt|content) was (?:flagged|blocked)|data_?inspection_?failed",
    ),
    _Rule(
        "fatal",
        {400, 404, 422},
        r"model_not_found|(?:not a valid|invalid|unknown) model\b"
        r"|\bmodel\b.{0,80}(?:not found|does not exist)",
        _NAMES,
    ),
    _Rule(
        "format",
        {400, 404, 422, 501},
        r"response[_ ]?format|json[_ ](?:schema|object|mode)|response_(?:json_)?schema"
        r"|response_mime|output_(?:format|config)|structured[_ ]outputs?|\btools?\b|\btool_"
        r"|function[_ ]call|\bgrammar|\bguided",
    ),
    _Rule(
        "fatal",
        {400, 422},
        r"unsupported[_ ](?:parameter|value)|unsupportedparamserror"
        r"|(?:unknown|unrecognized|unexpected|extra)[_ ](?:request )?"
        r"(?:parameter|argument|field|input|forbidden)"
        rf"|{_PARAMETER}.{{0,80}}(?:support|permit|allow|invalid|must be|too large|deprecated)"
        rf"|(?:support|permit|allow|invalid).{{0,40}}{_PARAMETER}",
        "leave the parameter out (temperature: null), or give it another value",
    ),
    _Rule("fatal", {401, 403}, hint=_KEY),
    _Rule("fatal", {402}, hint=_PAY),
    _Rule("fatal", {404, 405}, hint=_NAMES),
    _Rule("bad_request", _CLIENT_ERRORS),
    _Rule("server", _ANY),
]
"""The first rule that applies decides."""


def classify(error: BaseException, *, hide: Iterable[str] = ()) -> ProviderError:
    """The `ProviderError` for an exception of a call, without quotations of the texts to `hide`."""
    if isinstance(error, ProviderError | TimeoutError):
        return (
            error
            if isinstance(error, ProviderError)
            else ProviderError("timeout", "no reply in time")
        )
    for link in _chain(error):
        known = link if isinstance(link, ProviderError) else redirect_error(link)
        if known is not None:
            known.message = clip(scrub(known.message, hide=tuple(hide)))
            return known
    hidden, status, retry_after = tuple(hide), _status(error), _retry_after(error)
    text, _, trace = str(error).partition("Traceback (most recent call last)")
    message = _error_message(error, text, unreadable=bool(trace))
    message = scrub(message, hide=hidden) or type(error).__name__
    if status in range(400, 600) and status not in (408, 500):
        # litellm gives these two to failures that came without a status.
        message = f"{status}: {message}"
    evidence = f"{type(error).__name__} {text} {getattr(error, 'body', '')} {_chain(error)[-1]}"
    evidence = scrub(evidence, hide=hidden)
    if status == 503 and retry_after is not None:
        status = 429
    fitting = (rule for rule in _RULES if status in rule.statuses)
    rule = next(rule for rule in fitting if re.search(rule.pattern, evidence, re.IGNORECASE))
    end = f" ({rule.hint})" if rule.hint else ""
    return ProviderError(
        rule.kind, clip(message, LONGEST - len(end)) + end, retry_after=retry_after
    )


_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def redirect_error(source: Any) -> ProviderError | None:
    """The error for a redirect, by a reply or an exception that holds one; None if it is none.

    No redirect is followed: the prompt, and some keys, would go where no setting says.
    """
    response = getattr(source, "response", source)
    if getattr(response, "status_code", None) not in _REDIRECTS:
        return None
    try:
        place = urljoin(str(response.url), str(response.headers.get("location") or ""))
        parts = urlsplit(place)
        named = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        address = clip(scrub(named.geturl()), 150)
    except (AttributeError, RuntimeError, ValueError):
        address = "another address"
    message = f"{response.status_code}: the endpoint redirects to {address}, which is not followed"
    return ProviderError("fatal", f"{message}; write the right address as api_base")


def _error_message(error: BaseException, text: str, *, unreadable: bool) -> str:
    """The endpoint's message, or the cause where the reply is `unreadable` or never came."""
    if unreadable:
        # litellm raises with the text of a stack trace; what went wrong first is below it.
        cause = _chain(error)[-1]
        reason = str(cause).partition("Traceback (most recent call last)")[0].strip()
        return f"the reply cannot be read ({type(cause).__name__}: {reason})"
    first = _chain(error)[-1]
    if isinstance(first, OSError):
        return f"the endpoint cannot be reached: {first}"
    return (
        provider_message(text)
        if hasattr(error, "status_code")
        else f"{type(error).__name__}: {text}"
    )


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and its causes, the first cause last."""
    chain = [error]
    while len(chain) < 20 and (before := chain[-1].__cause__ or chain[-1].__context__):
        chain.append(before)
    return chain


def _status(error: BaseException) -> int:
    """The status of the reply; 500 or 0 where there was none."""
    statuses = [
        str(getattr(source, "status_code", ""))
        for link in _chain(error)
        for source in (link, getattr(link, "response", None))
    ]
    found = [int(status) for status in statuses if re.fullmatch(r"[1-9]\d\d", status)]
    # litellm gives some failures with another status the status 500.
    real = (
        status for status in found if status in (*_CLIENT_ERRORS, *_SERVER_ERRORS) and status != 500
    )
    return next(real, found[0] if found else 0)


def _retry_after(error: BaseException) -> float | None:
    """Seconds to wait by the Retry-After header, which holds seconds or a date."""
    reply = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(reply, "headers", None)
    value = headers.get("retry-after") if isinstance(headers, Mapping) else None
    text = str(value or "")[:_LONGEST_HEADER]
    try:
        return _wait_seconds(float(text))
    except ValueError:
        pass
    # A date may name a year, or an offset from UTC, that Python's dates do not have.
    with suppress(ValueError, OverflowError, TypeError):
        until = parsedate_to_datetime(text)
        aware = until if until.tzinfo else until.replace(tzinfo=UTC)
        return _wait_seconds((aware - datetime.now(UTC)).total_seconds())
    return None


def _wait_seconds(value: Any) -> float | None:
    """Seconds that an endpoint may ask to wait: at most a day; None where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and isnan(value):
        return None
    return float(min(max(value, 0), _LONGEST_WAIT))


def _in_main_thread() -> bool:
    """Whether Ctrl-C is raised in this thread; elsewhere only a provider raises it."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def provider_errors_only(hide: Iterable[str]) -> Iterator[None]:
    """Raise a `ProviderError` for every exception of a provider's method, without texts to `hide`.

    A provider of the user's may raise anything. Exceptions of libraries and of the network are
    classified. Those of Python itself, such as `KeyError`, are mistakes in the provider or replies
    that it did not expect: the message names the line, and the request is not repeated.
    """
    try:
        yield
    except ProviderError as error:
        failure = _valid(error)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    # A `SystemExit` would end the event loop, and every call in it would wait for ever.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _in_main_thread():
            raise
        if isinstance(error, OSError) or type(error).__module__ != "builtins":
            failure = classify(error, hide=hide)
        else:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
            failure = ProviderError("bad_request", clip(scrub(text, hide=hide)))
    else:
        return
    # Raised out here, it does not carry the exception, which may hold the prompt.
    raise failure


@asynccontextmanager
async def provider_call(timeout: float, hide: Iterable[str] = ()) -> AsyncIterator[None]:
    """As `provider_errors_only`, for a coroutine of a provider that may exceed `timeout` seconds.

    A provider has to keep the limit itself, and has a moment more to say what went wrong.
    """
    with provider_errors_only(hide):
        try:
            async with asyncio.timeout(timeout + _GRACE_SECONDS):
                yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ProviderError("server", "the provider cancelled the call") from None


def _valid(error: ProviderError) -> ProviderError:
    """`error` as `ProviderError` describes it, however a provider has made it."""
    if error.kind not in get_args(ErrorKind):
        return ProviderError("bad_request", f"ProviderError of the unknown kind {error.kind!r}")
    error.message = clip(scrub(str(error.message)))
    error.args = (error.message,)
    error.retry_after = _wait_seconds(error.retry_after)
    return error


@contextmanager
def provider_answer(name: str, method: str) -> Iterator[None]:
    """Raise `InputError`, which names the provider, for every exception of one of its methods.

    For methods that are called before a run. What they return must be checked within.
    """
    try:
        with provider_errors_only(()):
            yield
    except ProviderError as error:
        what = f"{method} failed: {error.message}"
        raise InputError([Fault(f"judge provider {name}", what, "mend the provider")]) from None


def missing_of(endpoint: Endpoint, provider: JudgeProvider) -> str | None:
    """As `JudgeProvider.missing`, for any provider. Raises `InputError`, and nothing else."""
    if missing := missing_headers(endpoint.parameters()):
        return missing
    with provider_answer(endpoint.provider, "missing"):
        return _text_or_none(provider.missing(endpoint.model, endpoint.api_base))


def batch_terms_of(endpoint: Endpoint, provider: JudgeProvider) -> BatchTerms | None:
    """As `JudgeProvider.batch_terms`, for any provider. Raises `InputError`, and nothing else."""
    with provider_answer(endpoint.provider, "batch_terms"):
        terms = provider.batch_terms(endpoint.model, endpoint.api_base, endpoint.parameters())
        if terms is None:
            return None
        if not isinstance(terms, BatchTerms) or not is_count(terms.fewest):
            what = f"it returned {terms!r:.100}, not BatchTerms or None"
            raise ProviderError("bad_request", what)
        return terms._replace(missing=_text_or_none(terms.missing))


def batch_fault(endpoint: Endpoint, provider: JudgeProvider) -> tuple[str, str] | None:
    """Why the calls of an endpoint cannot go into batches, and what to do; None where they can.

    Nothing is asked of the endpoint.
    """
    terms = batch_terms_of(endpoint, provider)
    if terms is None:
        who = "OpenAI, Azure, Anthropic, Vertex AI and Bedrock, and servers of your own"
        return f"batch: true, and {endpoint.model} takes no batches", f"remove it; {who} do"
    if terms.missing:
        return f"{endpoint.model} cannot be asked in batches", terms.missing
    return None


def key_variables_of(endpoint: Endpoint, provider: JudgeProvider) -> tuple[str, ...]:
    """The variables of `JudgeProvider.key_variable`, for any provider; none to look for is ().

    Raises `InputError`, and nothing else.
    """
    with provider_answer(endpoint.provider, "key_variable"):
        found = provider.key_variable(endpoint.model, endpoint.api_base)
        if isinstance(found, list | tuple) and all(isinstance(name, str) for name in found):
            return tuple(found)
        name = _text_or_none(found)
        return () if name is None else (name,)


def _text_or_none(found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise ProviderError("bad_request", f"it returned {type(found).__name__}, not str or None")
    return found
