"""Budgets and prices: requests sent and money spent, never more than allowed."""

import asyncio
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from claimflow.flows.judge.provider import Price, ProviderError, Usage, open_provider
from claimflow.flows.judge.provider_errors import provider_answer
from claimflow.flows.pipeline.model_settings import Endpoint

_MILLION: Final = 1_000_000
_FIRST_OUTPUT: Final = 100
_FIRST_OUTPUT_PER_ENTRY: Final = 50


def cost_of(usage: Usage, price: Price | None) -> Decimal | None:
    """US dollars that a call cost; None where its tokens or their price are unknown."""
    if price is None or usage.prompt is None or usage.completion is None:
        return None
    cached = min(usage.cached or 0, usage.prompt)
    fresh = usage.prompt - cached
    total = fresh * price.input + cached * price.cached + usage.completion * price.output
    return total / _MILLION


class BudgetExceeded(Exception):  # noqa: N818
    """The next request might cost more than what is left."""


@dataclass(frozen=True, eq=False)
class Reservation:
    """US dollars set aside for one call, until it is settled or released.

    `share` is what its tokens cost, as a share of their price.
    """

    usd: Decimal
    share: Decimal = Decimal(1)


class Budget:
    """Counts what a judge costs and refuses what would cost too much.

    `usd` and `calls` are the most that may be spent and sent; None is no limit. The estimated
    cost of a call is set aside before it is sent, so that calls in flight exceed the budget at
    most by the error of their estimates. After the first refusal every call is refused:
    otherwise a run would go on with its cheap calls only.

    To be used by coroutines of one loop.
    """

    def __init__(
        self,
        usd: Decimal | float | None,
        calls: int | None,
        price: Price | None,
        *,
        max_tokens: int | None = None,
    ) -> None:
        if usd is not None and price is None:
            raise ValueError("a budget in US dollars needs a price per token")
        self._usd = None if usd is None else Decimal(str(usd))
        self._calls = calls
        self._price = price
        self._max_tokens = max_tokens
        self._largest_output = 0
        self._reserved = Decimal(0)
        self._open: set[Reservation] = set()
        self._waiting: deque[tuple[asyncio.Future[bool], Reservation]] = deque()
        self._refusal: str | None = None
        self.spent = Decimal(0)
        self.sent = 0

    async def reserve(
        self, prompt_tokens: int, entries: int, *, share: Decimal = Decimal(1)
    ) -> Reservation:
        """Set aside what a call about `entries` texts may cost, at a share of the price.

        Waits, in order of arrival, while calls in flight may still cost less than estimated.
        Raises `BudgetExceeded` when the call does not fit.
        """
        self._check_calls()
        reservation = Reservation(self._estimate(prompt_tokens, entries) * share, share)
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append((admitted, reservation))
        self._admit_waiting()
        try:
            if not await admitted:
                raise BudgetExceeded(self._refusal)
        except BaseException:
            self.release(reservation)
            raise
        return reservation

    def count(self) -> None:
        """Count a request before it is sent; raises `BudgetExceeded` if it is one too many."""
        self._check_calls()
        if self._refusal is not None:
            raise BudgetExceeded(self._refusal)
        self.sent += 1

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Replace the estimate of a call by its cost, if the cost is known."""
        cost = None if usage is None else cost_of(usage, self._price)
        if usage is not None:
            self._largest_output = max(self._largest_output, usage.completion or 0)
        paid = reservation.usd if cost is None else cost * reservation.share
        self._close(reservation, paid)

    def release(self, reservation: Reservation) -> None:
        """Give back what was set aside for a call that cost nothing, unless it is settled."""
        self._close(reservation, Decimal(0))

    def _close(self, reservation: Reservation, cost: Decimal) -> None:
        if reservation in self._open:
            self._open.remove(reservation)
            self._reserved -= reservation.usd
            self.spent += cost
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit or refuse waiting calls in order of arrival, as far as that is decided."""
        while self._waiting:
            admitted, reservation = self._waiting[0]
            if not admitted.done():
                fits = self._refusal is None and self._fits(reservation)
                if not fits and self._refusal is None and self._open:
                    return
                if fits:
                    self._open.add(reservation)
                    self._reserved += reservation.usd
                elif self._refusal is None:
                    self._refusal = self._refusal_message(reservation)
                admitted.set_result(fits)
            self._waiting.popleft()

    def _fits(self, reservation: Reservation) -> bool:
        return self._usd is None or self.spent + self._reserved + reservation.usd <= self._usd

    def _check_calls(self) -> None:
        if self._refusal is None and self._calls is not None and self.sent >= self._calls:
            self._refusal = f"the budget of {self._calls} calls is spent"
            self._admit_waiting()

    def _estimate(self, prompt_tokens: int, entries: int) -> Decimal:
        if self._price is None:
            return Decimal(0)
        output = self._largest_output or _FIRST_OUTPUT + _FIRST_OUTPUT_PER_ENTRY * entries
        if self._max_tokens is not None:
            output = min(output, self._max_tokens)
        return (prompt_tokens * self._price.input + output * self._price.output) / _MILLION

    def _refusal_message(self, reservation: Reservation) -> str:
        used, more = _money(self.spent), _money(reservation.usd)
        return (
            f"the budget of {_money(self._usd or Decimal(0))} USD is spent "
            f"({used} used, the next call may cost {more})"
        )


def _money(usd: Decimal) -> str:
    return f"{usd:.2f}" if usd >= 1 or not usd else f"{usd:.2g}"


def price_of(endpoint: Endpoint) -> Price | None:
    """What tokens cost, by the pipeline or else by the provider's list; None if unknown.

    Raises `InputError` where a provider fails to say, or returns what is no price.
    """
    own = endpoint.price
    if own is None:
        provider = open_provider(endpoint.provider)
        with provider_answer(endpoint.provider, "list_price"):
            return _checked_price(provider.list_price(endpoint.model))
    cached = own.input if own.cached_input is None else own.cached_input
    return Price(*(Decimal(str(usd)) for usd in (own.input, cached, own.output)))


def _checked_price(price: Any) -> Price | None:
    if price is None:
        return None
    if not isinstance(price, Price):
        what = f"it returned {type(price).__name__}, not Price or None"
        raise ProviderError("bad_request", what)
    amounts = [Decimal(str(usd)) for usd in price]
    if not all(usd.is_finite() and usd >= 0 for usd in amounts):
        raise ProviderError("bad_request", f"{price} is no price")
    return Price(*amounts)
