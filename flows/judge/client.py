"""The judge client: requests within rate limit, budget and response format."""

import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, get_args

from claimflow.flows.errors import JudgeError, StoppedError
from claimflow.flows.judge.batches import BatchQueue, TooFewCallsError
from claimflow.flows.judge.budget import Budget, BudgetExceeded, cost_of, price_of
from claimflow.flows.judge.call_statistics import (
    CHARACTERS_PER_TOKEN,
    OpenReply,
    ResumeState,
    recall_resume_state,
)
from claimflow.flows.judge.calls import Call, chat_call, without_surrogates
from claimflow.flows.judge.environment_secrets import with_header_values, without_secrets
from claimflow.flows.judge.provider import (
    BATCH_SHARE,
    ChatReply,
    JudgeProvider,
    Price,
    ProviderError,
    Request,
    Usage,
)
from claimflow.flows.judge.provider_errors import provider_call, provider_errors_only, scrub
from claimflow.flows.judge.rate_limit import RateLimiter
from claimflow.flows.judge.response_formats import (
    RESPONSE_FORMATS,
    ResponseFormat,
    format_parameters,
    shape_in_words,
)
from claimflow.flows.judge.retry import (
    Delivery,
    FailureStreak,
    longest_call,
    send_with_retries,
)
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.usage import checked_usage
from claimflow.flows.pipeline.model_settings import Endpoint, Judge
from claimflow.flows.store.batches import BatchCall
from claimflow.stages.rows import FailureKind, ReplyFailure
from claimflow.stages.tools import Failure, Form, Reply

_KINDS: Final[dict[str, FailureKind]] = {
    "throttled": "rate_limited",
    "server": "server_error",
    "timeout": "timeout",
    "refused": "refused",
    "too_long": "too_long",
    "format": "bad_request",
    "bad_request": "bad_request",
}
_MOST_BAD_REQUESTS: Final = 5
"""Bad requests, or exceptions of a provider, without any reply, after which none is sent."""

_FEWEST_FAILED: Final = 10
"""The fewest failed calls in a row that stop a run, however few calls were planned."""

_FEWEST_OF_TEXTS: Final = 50
"""As `_FEWEST_FAILED`, for failures that may be due to the texts: similar texts come in a row."""

_OF_ENDPOINT: Final = frozenset({"server_error", "timeout", "rate_limited"})
_UNREADABLE: Final = frozenset(get_args(ReplyFailure)) - {"refused"}
"""Kinds of failures that, like bad requests, stop a run when too many in a row have them."""

_OUTPUT_PER_ENTRY: Final = 60

WARM_UP_SECONDS: Final = 60.0


class _Used(Protocol):
    @property
    def usage(self) -> Usage: ...


Answer = TypeVar("Answer", bound=_Used)


async def chat(provider: JudgeProvider, request: Request, *, timeout: float) -> ChatReply:
    """As `JudgeProvider.chat`, for any provider. Raises `ProviderError`, and nothing else."""
    hide = [message["content"] for message in request.messages]
    async with provider_call(timeout, hide):
        sent = request._replace(parameters=with_header_values(request.parameters))
        return _checked(await provider.chat(sent, timeout=timeout))


async def _chat_in_batch(
    batches: BatchQueue,
    call: Call,
    request: Request,
    keys: Sequence[str],
    reserved: Decimal | None,
) -> ChatReply:
    """As `chat`, through a batch. Raises what `BatchQueue.reply` raises."""
    hide = [message["content"] for message in request.messages]
    try:
        reply = await batches.reply(call, request, keys, reserved=reserved)
    except ProviderError as error:
        error.message = scrub(error.message, hide=hide)
        raise
    with provider_errors_only(hide):
        return _checked(reply)


def _checked(reply: Any) -> ChatReply:
    """The reply of a provider, whose author may have got a type wrong.

    A missing text is an empty one. Raises `TypeError` for other wrong types.
    """
    if not isinstance(reply, ChatReply):
        raise TypeError(f"chat returned {type(reply).__name__}, not ChatReply")
    texts: dict[str, Any] = {}
    for name in ("text", "finish", "refusal", "fingerprint"):
        text = getattr(reply, name)
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} of the ChatReply is {type(text).__name__}, not str")
        # An endpoint may echo a key. Replies are stored, and shown.
        texts[name] = without_surrogates(text and without_secrets(text))
    return reply._replace(**texts | {"text": texts["text"] or ""}, usage=checked_usage(reply.usage))


class RateLimitedClient:
    """Requests to `endpoint` within rate limit, budget and shared limit.

    Error messages call the endpoint `label`.
    """

    def __init__(
        self,
        label: str,
        endpoint: Endpoint,
        session: Session,
        price: Price | None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        self._label = label
        self._endpoint = endpoint
        self._session = session
        self._price = price
        self._limiter = RateLimiter(endpoint.max_concurrency, endpoint.rpm, endpoint.tpm)
        self._shared_limiter = session.shared_limiter(endpoint.shared_limit, self._limiter.set_rate)
        limits = (endpoint.budget_usd, endpoint.budget_calls, price)
        self._budget = Budget(*limits, max_tokens=max_tokens)
        self._longest = longest_call(endpoint.timeout)
        if session.call_timeout is not None:
            self._longest = min(self._longest, session.call_timeout.total_seconds())
        clock = self._limiter.clock
        self._failed = FailureStreak(fewest=_FEWEST_FAILED, longest=self._longest, clock=clock)
        self._useless = FailureStreak(fewest=_FEWEST_OF_TEXTS, longest=math.inf, clock=clock)
        self._answered = self._bad = 0
        self._characters = self._tokens = 0

    async def request(
        self, send: Callable[[float], Awaitable[Answer]], *, characters: int, entries: int
    ) -> Delivery[Answer]:
        """The result of `send`, a request of `characters` characters about `entries` texts.

        Raises `ProviderError`, `BudgetExceeded` when the budget does not suffice, `StoppedError`
        when the run is to end.
        """
        prompt_tokens = int(characters / self._characters_per_token())
        reservation = await self._budget.reserve(prompt_tokens, entries)
        try:
            async with self._shared_limiter.slot():
                delivered = await send_with_retries(
                    send,
                    limiter=self._limiter,
                    tokens=prompt_tokens + _OUTPUT_PER_ENTRY * entries,
                    timeout=self._endpoint.timeout,
                    longest=self._longest,
                    before_send=self._before_send,
                )
            usage = delivered.received.usage
            self._budget.settle(reservation, usage)
        except ProviderError as error:
            if error.kind == "timeout":
                # The provider may charge for a reply that arrived too late.
                self._budget.settle(reservation, None)
            raise
        finally:
            self._budget.release(reservation)
        self._note_answer(usage, characters)
        return delivered

    async def request_in_batch(
        self,
        reply: Callable[[Decimal | None], Awaitable[Answer]],
        *,
        characters: int,
        entries: int,
        paid: bool = False,
    ) -> Delivery[Answer]:
        """The result of `reply`, a request in a batch: within the budget, at the price of batches.

        `reply` is given what is set aside for it, in US dollars, None where the price is unknown.
        With `paid` it was submitted by an earlier run, within the budget of that. Raises as
        `request` does, and what `reply` raises.
        """
        started = self._limiter.clock()
        if paid:
            received = await reply(None)
        else:
            prompt_tokens = int(characters / self._characters_per_token())
            reservation = await self._budget.reserve(prompt_tokens, entries, share=BATCH_SHARE)
            try:
                self._before_send()
                started = self._limiter.clock()
                received = await reply(None if self._price is None else reservation.usd)
                self._budget.settle(reservation, received.usage)
            finally:
                self._budget.release(reservation)
        self._note_answer(received.usage, characters)
        return Delivery(received, 1, self._limiter.clock() - started, share=BATCH_SHARE)

    def _note_answer(self, usage: Usage, characters: int) -> None:
        self._answered += 1
        self._failed.end()
        if usage.prompt:
            self._characters += characters
            self._tokens += usage.prompt

    def failure(self, error: ProviderError | BudgetExceeded, call_id: str) -> Failure:
        """The failure that the texts of a failed request get.

        Raises `JudgeError` where no further request can succeed.
        """
        if isinstance(error, BudgetExceeded):
            return Failure(
                "not_asked", f"{self._label}: {error}; raise it and run again to continue"
            )
        label = f"{self._label} ({self._endpoint.model})"
        if error.kind == "fatal":
            raise JudgeError(f"{label}: {error.message}")
        kind = _KINDS[error.kind]
        self._bad += kind == "bad_request"
        if self._bad >= _MOST_BAD_REQUESTS and not self._answered:
            what = f"the first {self._bad} requests all failed as bad requests"
            raise JudgeError(f"{label}: {what}: {error.message}")
        enough = None
        if kind in _OF_ENDPOINT:
            enough = self._failed.grow(error.seconds)
        elif kind == "bad_request":
            enough = self._useless.grow(error.seconds)
        if enough:
            raise JudgeError(f"{label}: {enough}: {error.message}")
        return Failure(kind, error.message, call_id)

    def plan(self, calls: int) -> None:
        """Note how many more calls are planned, see `FailureStreak`."""
        self._failed.planned += calls
        self._useless.planned += calls

    def note_useful(self) -> None:
        """Note that a reply was of use."""
        self._useless.end()

    def note_answers(self, answers: Collection[Reply | Failure]) -> None:
        """Note what was read from the reply about some texts.

        Raises `JudgeError` where too many replies in a row could not be read.
        """
        if any(isinstance(one, Reply) for one in answers):
            self.note_useful()
            return
        failures = [one for one in answers if isinstance(one, Failure)]
        unread = [one for one in failures if one.kind in _UNREADABLE]
        enough = self._useless.grow() if unread else None
        if enough:
            why = f"{enough}: {unread[0].kind}: {unread[0].message}"
            raise JudgeError(f"{self._label} ({self._endpoint.model}): {why}")

    def cost(self, usage: Usage, share: Decimal = Decimal(1)) -> Decimal | None:
        """US dollars, at a share of the price; None where tokens or their price are unknown."""
        cost = cost_of(usage, self._price)
        return None if cost is None else cost * share

    def _before_send(self) -> None:
        if self._session.stop.is_set():
            raise StoppedError
        self._budget.count()

    def _characters_per_token(self) -> float:
        return self._characters / self._tokens if self._tokens else CHARACTERS_PER_TOKEN


Message = dict[str, str]


class Exchange(NamedTuple):
    """The result of one request: the reply's text, or the reason why there is none.

    `call` is recorded after the text has been read, unless it is `recorded` already.
    """

    call: Call
    text: str
    cut_off: bool
    failure: Failure | None
    recorded: bool = False


class JudgeClient:
    """Requests to one judge, by all steps of a run."""

    def __init__(
        self,
        name: str,
        judge: Judge,
        session: Session,
        requests: RateLimitedClient,
        resume: ResumeState,
        answered_by: Mapping[str, Any],
    ):
        self._name = name
        self._judge = judge
        self._session = session
        self.requests = requests
        self._provider = session.provider(judge.provider)
        self._answered_by = answered_by
        self._open = resume.open
        self._format: ResponseFormat = resume.response_format or RESPONSE_FORMATS[0]
        self._takes_seed = True

    @property
    def batches(self) -> BatchQueue | None:
        """The queue for calls in batches; None where calls are sent one by one."""
        return self._session.batch_queue(self._name, self._judge, self._provider)

    def collect(self, submitted: Sequence[BatchCall]) -> None:
        """Collect the replies to calls that an earlier run submitted, though they may take a while.

        They are paid for, whether this run sends batches itself or not.
        """
        if not submitted:
            return
        queue = self._session.batch_queue(self._name, self._judge, self._provider, collects=True)
        if queue is not None:
            queue.note_submitted(submitted)

    async def exchange(
        self,
        step: str,
        form: Form,
        messages: Sequence[Message],
        *,
        entries: int,
        repeats: str | None = None,
        fresh: bool = False,
        keys: Sequence[str] = (),
        at_once: bool = False,
    ) -> Exchange:
        """Send `messages`, about `entries` texts, and return what came back.

        `repeats` is the call whose reply they show to the model. A reply that an earlier run
        received but did not act on is used instead of sending the request again, unless `fresh`.
        `keys` are the ledger keys that it is to answer, which mark the call in a batch. With
        `at_once` it is in no batch.

        Raises `JudgeError` when no request can succeed, `StoppedError` when the run is to end.
        """
        # Whether a seed of another call in a batch may be why this one is rejected: at most once.
        others_have_seeds = True
        while True:
            response_format = self._format
            seed = self._seed(form.draw)
            parameters = self._judge.parameters() | seed | format_parameters(response_format, form)
            model, api_base = self._judge.model, self._judge.api_base
            words = shape_in_words(response_format, form)
            request = Request(model, _with_instruction(messages, words), parameters, api_base)
            asker = {"run_id": self._session.run_id, "step": step, "judge": self._name}
            call = chat_call(
                request,
                **asker,
                answered_by=self._answered_by,
                provider=self._judge.provider,
                rung=response_format,
                repeats=repeats,
            )
            open_reply = self._open.pop(call.request, None)
            if open_reply and not fresh:
                return _resumed(call, open_reply)
            characters = sum(len(message["content"]) for message in request.messages)
            try:
                batches = None if at_once else self.batches
                if batches is None or not (self._judge.batch or batches.has_submitted(keys)):
                    send = partial(self._chat, request)
                    delivered = await self.requests.request(
                        send, characters=characters, entries=entries
                    )
                else:
                    call = batches.as_submitted(call, keys)
                    reply = partial(_chat_in_batch, batches, call, request, keys)
                    delivered = await self.requests.request_in_batch(
                        reply,
                        characters=characters,
                        entries=entries,
                        paid=batches.has_submitted(keys),
                    )
            except ProviderError as error:
                if error.kind == "format" and self._step_down(response_format):
                    continue
                for_seed = seed or (batches is not None and others_have_seeds)
                if for_seed and re.search(r"\bseed\b", error.message):
                    self._takes_seed = others_have_seeds = False
                    continue
                call = call._replace(seconds=error.seconds, attempts=error.attempts)
                return Exchange(call, "", False, self.requests.failure(error, call.call_id))
            except TooFewCallsError:
                at_once = True
                continue
            except BudgetExceeded as error:
                return Exchange(call, "", False, self.requests.failure(error, call.call_id))
            return self._received(call, delivered)

    async def _chat(self, request: Request, seconds: float) -> ChatReply:
        return await chat(self._provider, request, timeout=seconds)

    def _received(self, call: Call, delivered: Delivery[ChatReply]) -> Exchange:
        received = delivered.received
        usage = received.usage
        call = call._replace(
            reply=without_surrogates(
                received.text if received.refusal is None else received.refusal
            ),
            finish_reason=received.finish,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            cost=self.requests.cost(usage, delivered.share),
            seconds=delivered.seconds,
            attempts=delivered.attempts,
        )
        if received.refusal is not None:
            failure = Failure("refused", received.refusal[:300] or "refused", call.call_id)
            return Exchange(call, "", False, failure)
        return Exchange(call, received.text, received.finish == "length", None)

    def _seed(self, draw: int) -> dict[str, int]:
        """The seed of a draw other than the first, unless the endpoint has rejected seeds."""
        return {"seed": (self._judge.seed or 0) + draw} if draw and self._takes_seed else {}

    def _step_down(self, rejected: ResponseFormat) -> bool:
        """Use the next less strict response format after `rejected`, if there is one."""
        if self._format == rejected:
            if rejected == RESPONSE_FORMATS[-1]:
                return False
            self._format = RESPONSE_FORMATS[RESPONSE_FORMATS.index(rejected) + 1]
        return True


def _with_instruction(messages: Sequence[Message], words: str) -> list[Message]:
    """The messages with `words` at the end of the part that is the same in every call."""
    first, *rest = messages
    if not words:
        return [first, *rest]
    if first["role"] == "system":
        return [first | {"content": f"{first['content']}\n{words}"}, *rest]
    return [{"role": "system", "content": words}, first, *rest]


def warm_up(session: Session, endpoint: Endpoint, label: str) -> None:
    """Warm up the provider of an endpoint; raises `JudgeError` where that fails."""

    async def warm() -> None:
        async with provider_call(WARM_UP_SECONDS):
            await session.provider(endpoint.provider).warm_up(endpoint.model)

    try:
        session.loop.run(warm())
    except ProviderError as error:
        raise JudgeError(f"{label} ({endpoint.model}): {error.message}") from None


def open_judge_client(
    name: str, judge: Judge, session: Session, answered_by: Mapping[str, Any]
) -> JudgeClient:
    """The client of a judge, with the response format and open replies of earlier runs.

    `answered_by` is what `JudgeProvider.identity` says of the judge.
    """
    label = f"judge {name}" if name != "judge" else "judge"
    warm_up(session, judge, label)
    requests = RateLimitedClient(
        label, judge, session, price_of(judge), max_tokens=judge.max_tokens
    )
    address = answered_by.get("api_base", judge.api_base)
    resume = recall_resume_state(session.ledger.store, judge.model, address)
    return JudgeClient(name, judge, session, requests, resume, answered_by)


def _resumed(call: Call, reply: OpenReply) -> Exchange:
    call = call._replace(call_id=reply.call_id)
    return Exchange(call, reply.text, reply.cut_off, None, recorded=True)
