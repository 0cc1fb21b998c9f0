"""Call records: what was sent, what came back, at what cost."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import ROUND_DOWN, Decimal
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID, uuid4

import polars as pl

from claimflow.flows.judge.provider import Request
from claimflow.flows.judge.usage import is_count
from claimflow.flows.pipeline.model_settings import DEFAULT_PROVIDER
from claimflow.flows.store.store import now
from claimflow.stages.rows import FailureKind, content_key

Outcome = Literal["ok", "repaired", "partial"] | FailureKind
"""ok: every question is answered; repaired: likewise, after repair of the reply's JSON;
partial: some questions are answered; otherwise why there is no answer."""


class Call(NamedTuple):
    """One row of `audit.calls`."""

    call_id: str
    run_id: str
    step: str
    judge: str
    model: str
    api_base: str | None
    request: str
    repeats: str | None
    rung: str | None
    system: str | None
    prompt: str | None
    asked_at: datetime
    reply: str | None = None
    outcome: Outcome = "ok"
    error: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    cost: Decimal | None = None
    seconds: float = 0.0
    attempts: int = 0
    open: bool = False

    def redacted(self) -> "Call":
        """The call with hashes in place of its texts."""
        return self._replace(
            system=_hash(self.system),
            prompt=_hash(self.prompt),
            reply=_hash(self.reply),
            # It may repeat words of the reply, or of the prompt where an endpoint does.
            error=None,
            open=False,
        )


def _hash(text: str | None) -> str | None:
    return None if text is None else content_key("text", text)


_SCHEMA: Final[dict[str, Any]] = {
    "call_id": pl.String,
    "run_id": pl.String,
    "step": pl.String,
    "judge": pl.String,
    "model": pl.String,
    "api_base": pl.String,
    "request": pl.String,
    "repeats": pl.String,
    "rung": pl.String,
    "system": pl.String,
    "prompt": pl.String,
    "asked_at": pl.Datetime("us"),
    "reply": pl.String,
    "outcome": pl.String,
    "error": pl.String,
    "finish_reason": pl.String,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "cost": pl.Decimal(18, 9),
    "seconds": pl.Float64,
    "attempts": pl.Int32,
    "open": pl.Boolean,
}


_TOKENS: Final = ("prompt_tokens", "cached_tokens", "completion_tokens")
_IDS: Final = ("call_id", "request", "repeats")
_OPTIONAL: Final = frozenset(
    {"api_base", "repeats", "rung", "system", "prompt", "reply", "error", "finish_reason"}
)

_BILLIONTH: Final = Decimal("1e-9")

_MOST_USD: Final = 10**9
"""What the column of costs can hold."""

_MOST_SECONDS: Final = 10**9


def chat_call(
    request: Request,
    *,
    answered_by: Mapping[str, Any],
    run_id: str,
    step: str,
    judge: str,
    provider: str,
    rung: str,
    repeats: str | None,
) -> Call:
    """The record of a request of a chat model that is about to be sent.

    `answered_by` is what `JudgeProvider.identity` says of it.
    """
    other_provider = () if provider == DEFAULT_PROVIDER else (provider,)
    request = request._replace(api_base=answered_by.get("api_base", request.api_base))
    more = {name: value for name, value in answered_by.items() if name != "api_base"}
    system, prompt = (without_surrogates(text) for text in _split_messages(request.messages))
    return Call(
        call_id=str(uuid4()),
        run_id=run_id,
        step=step,
        judge=judge,
        model=request.model,
        api_base=request.api_base,
        request=content_key("request", *request, *other_provider, *([more] if more else [])),
        repeats=repeats,
        rung=rung,
        system=system,
        prompt=prompt,
        asked_at=now(),
    )


def embedding_call(
    identity: Mapping[str, Any], texts: Sequence[str], *, run_id: str, step: str
) -> Call:
    """The record of a request for embeddings, without its texts, which would fill the store."""
    return Call(
        call_id=str(uuid4()),
        run_id=run_id,
        step=step,
        judge="embedder",
        model=identity["model"],
        api_base=identity["api_base"],
        request=content_key("embeddings", identity, list(texts)),
        repeats=None,
        rung=None,
        system=None,
        prompt=None,
        asked_at=now(),
    )


def without_surrogates(text: str | None) -> str | None:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by `?`."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _split_messages(messages: Sequence[dict[str, str]]) -> tuple[str | None, str]:
    """The system message, and the others as one text, each under its role if they are several."""
    first = messages[0]
    system = first["content"] if first["role"] == "system" else None
    rest = messages[1:] if system is not None else messages
    if len(rest) == 1:
        return system, rest[0]["content"]
    return system, "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in rest)


def call_table(calls: Sequence[Call]) -> pl.DataFrame:
    """The calls as rows of `audit.calls`, without numbers that cannot be one."""
    # Polars keeps the class of rows, and by that this module and DuckDB, until the process has
    # ended; DuckDB then prints that it leaks. So the rows are plain tuples.
    rows = [tuple(_with_plausible_numbers(call)) for call in calls]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _with_plausible_numbers(call: Call) -> Call:
    """The call, with tokens and cost None, and seconds and attempts 0, where they are absurd."""
    tokens = {name: getattr(call, name) for name in _TOKENS}
    counts: dict[str, Any] = {
        name: count if is_count(count) else None for name, count in tokens.items()
    }
    cost, seconds = call.cost, call.seconds
    if cost is not None:
        plausible = counts == tokens and cost.is_finite() and 0 <= cost < _MOST_USD
        # Polars crashes on more decimal places than its type has.
        cost = cost.quantize(_BILLIONTH, ROUND_DOWN) if plausible else None
    is_time = isinstance(seconds, int | float) and 0 <= seconds < _MOST_SECONDS
    attempts = call.attempts if is_count(call.attempts) else 0
    return call._replace(
        **counts, cost=cost, seconds=seconds if is_time else 0.0, attempts=attempts
    )


def check_id(text: str) -> None:
    """Raise `ValueError` for a text that is no id of a call, a request or a reply."""
    if str(UUID(text)) != text:
        raise ValueError(f"{text!r} is no id")


def read_call(fields: Sequence[Any]) -> Call:
    """The call whose fields were written as JSON. Absurd numbers are left for `call_table`.

    Raises `ValueError`, or `TypeError` for another number of fields, where it is no call.
    """
    call = Call(*fields)
    for name in (name for name, kind in _SCHEMA.items() if kind == pl.String):
        text = getattr(call, name)
        if not isinstance(text, str) and (text is not None or name not in _OPTIONAL):
            raise ValueError(f"{name} is no text")
        if text is not None and name in _IDS:
            check_id(text)
        # Polars takes no lone surrogates.
        str(text).encode()
    asked_at = datetime.fromisoformat(str(call.asked_at))
    if asked_at.tzinfo is not None or not isinstance(call.open, bool):
        raise ValueError("no call of this version")
    try:
        cost = None if call.cost is None else Decimal(str(call.cost))
    except ArithmeticError:
        cost = None
    return call._replace(asked_at=asked_at, cost=cost)


class Entry(NamedTuple):
    """A call, its replies by ledger key, and the id of the open call that it closes.

    `call` is None where it is not known which call gave the replies.
    """

    call: Call | None
    replies: Mapping[str, bytes]
    closes: str | None = None


def entry_line(entry: Entry) -> bytes:
    """The entry as a line of JSON."""
    replies = {key: base64.b64encode(reply).decode() for key, reply in entry.replies.items()}
    line = json.dumps([entry.call, replies, entry.closes], default=str, ensure_ascii=False)
    return line.encode("utf-8", "replace") + b"\n"


def read_entry(line: bytes) -> Entry:
    """The entry of a line. Raises one of `NO_ENTRY` where it is none."""
    call, replies, closes = json.loads(line)
    for key in (*replies, *([] if closes is None else [closes])):
        check_id(key)
    decoded = {key: base64.b64decode(reply, validate=True) for key, reply in replies.items()}
    return Entry(None if call is None else read_call(call), decoded, closes)


NO_ENTRY: Final = (ValueError, TypeError, AttributeError, RecursionError)
"""What `read_entry` raises."""
