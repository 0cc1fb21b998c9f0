"""Access to one endpoint, within pace, budget and shared limit, for all steps of a run."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Final, Protocol, TypeVar

from claimflow.flows.engine.endpoints import Endpoint
from claimflow.flows.engine.errors import JudgeError, StoppedError
from claimflow.flows.engine.llm.budget import Budget, BudgetSpent, Price, cost_of
from claimflow.flows.engine.llm.delivery import Delivered, deliver
from claimflow.flows.engine.llm.habits import CHARACTERS_PER_TOKEN
from claimflow.flows.engine.llm.pace import Pace
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.llm.transport import Usage
from claimflow.flows.engine.llm.troubles import Trouble
from claimflow.stages.tools import Failure
from claimflow.stages.words import FailureKind

_KINDS: Final[dict[str, FailureKind]] = {
    "throttled": "rate_limited",
    "server": "server_error",
    "timeout": "timeout",
    "refused": "refused",
    "too_long": "too_long",
    "rung": "bad_request",
    "bad_request": "bad_request",
}
_HOPELESS: Final = 5
"""Bad requests, and nothing else, after which the rest is not sent."""

_DOWN: Final = 200
"""Calls given up in a row, with none answered in between, after which the rest is not tried."""

_OUTPUT_PER_ENTRY: Final = 60


class _Used(Protocol):
    @property
    def usage(self) -> Usage: ...


Answer = TypeVar("Answer", bound=_Used)


class Access:
    """Requests to `endpoint`, which messages call `who`."""

    def __init__(
        self,
        who: str,
        endpoint: Endpoint,
        session: Session,
        price: Price | None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        self._who = who
        self._endpoint = endpoint
        self._session = session
        self._price = price
        self._pace = Pace(endpoint.max_concurrency, endpoint.rpm, endpoint.tpm)
        self._turnstile = session.turnstile(endpoint.shared_limit, self._pace.keep_to)
        limits = (endpoint.budget_usd, endpoint.budget_calls, price)
        self._budget = Budget(*limits, max_tokens=max_tokens)
        self._answered = self._bad = self._lost = 0
        self._characters = self._tokens = 0

    async def request(
        self, send: Callable[[float], Awaitable[Answer]], *, characters: int, entries: int
    ) -> Delivered[Answer]:
        """What `send` brings of a request of so many `characters` about `entries` texts.

        Raises `Trouble`, `BudgetSpent` when the budget does not reach, `StoppedError` when
        the run is to end.
        """
        prompt_tokens = int(characters / self._characters_per_token())
        reservation = await self._budget.reserve(prompt_tokens, entries)
        try:
            async with self._turnstile.passing():
                delivered = await deliver(
                    send,
                    pace=self._pace,
                    tokens=prompt_tokens + _OUTPUT_PER_ENTRY * entries,
                    timeout=self._endpoint.timeout,
                    before_send=self._before_send,
                )
            usage = delivered.received.usage
            self._budget.settle(reservation, usage)
        except Trouble as trouble:
            if trouble.kind == "timeout":
                # What we did not wait for may be on the bill.
                self._budget.settle(reservation, None)
            raise
        finally:
            self._budget.release(reservation)
        self._answered += 1
        self._lost = 0
        if usage.prompt:
            self._characters += characters
            self._tokens += usage.prompt
        return delivered

    def failure(self, error: Trouble | BudgetSpent, call_id: str) -> Failure:
        """What a request that brought nothing means for its texts.

        Raises `JudgeError` where it means that no request can succeed.
        """
        if isinstance(error, BudgetSpent):
            return Failure("not_asked", f"{self._who}: {error}; raise it and run again to go on")
        who = f"{self._who} ({self._endpoint.model})"
        if error.kind == "fatal":
            raise JudgeError(f"{who}: {error.message}")
        kind = _KINDS[error.kind]
        self._bad += kind == "bad_request"
        if self._bad >= _HOPELESS and not self._answered:
            what = f"the first {self._bad} requests were all turned down as wrong"
            raise JudgeError(f"{who}: {what}: {error.message}")
        self._lost += kind in ("server_error", "timeout", "rate_limited")
        if self._lost >= _DOWN:
            raise JudgeError(f"{who}: {self._lost} calls in a row failed: {error.message}")
        return Failure(kind, error.message, call_id)

    def cost(self, usage: Usage) -> Decimal | None:
        """US dollars; None where tokens or their price are unknown."""
        return cost_of(usage, self._price)

    def _before_send(self) -> None:
        if self._session.stop.is_set():
            raise StoppedError
        self._budget.count()

    def _characters_per_token(self) -> float:
        return self._characters / self._tokens if self._tokens else CHARACTERS_PER_TOKEN
