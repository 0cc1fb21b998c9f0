import asyncio
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.judge.budget import Budget, BudgetExceeded, Reservation, cost_of
from claimflow.flows.judge.provider import Price, Usage

PRICE = Price(Decimal("2.5"), Decimal("1.25"), Decimal(10))
NO_OUTPUT = Price(Decimal(1_000_000), Decimal(1_000_000), Decimal(0))
"""A dollar per token of the prompt, and nothing else: easy to sum up."""


def budget_of(usd: Any, calls: int | None = None) -> Budget:
    return Budget(usd, calls, NO_OUTPUT)


async def settled(budget: Budget, tokens: int, used: int) -> Reservation:
    reservation = await budget.reserve(tokens, 1)
    budget.settle(reservation, Usage(used, None, 0))
    return reservation


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(1000, 0, 100), "0.0035"),
        (Usage(1000, 400, 100), "0.0030"),
        (Usage(1000, None, 0), "0.0025"),
        (Usage(1000, 5000, 0), "0.00125"),
        (Usage(None, None, 100), None),
        (Usage(1000, None, None), None),
    ],
)
def test_cost(usage: Usage, usd: str | None) -> None:
    assert cost_of(usage, PRICE) == (None if usd is None else Decimal(usd))
    assert cost_of(usage, None) is None


def test_costs_are_exact() -> None:
    async def main() -> Decimal:
        budget = Budget(None, None, Price(Decimal("0.1"), Decimal("0.1"), Decimal("0.1")))
        for _ in range(1000):
            budget.settle(await budget.reserve(1, 1), Usage(1, 0, 1))
        return budget.spent

    assert asyncio.run(main()) == Decimal("0.0002")


def test_a_budget_in_dollars_needs_a_price() -> None:
    with pytest.raises(ValueError, match="needs a price"):
        Budget(5, None, None)


def test_without_limits_nothing_is_refused() -> None:
    async def main() -> Budget:
        budget = Budget(None, None, None)
        for _ in range(100):
            budget.count()
            budget.settle(await budget.reserve(10**9, 1), Usage(10**9, None, 10**9))
        return budget

    budget = asyncio.run(main())
    assert (budget.sent, budget.spent) == (100, 0)


@pytest.mark.parametrize(
    ("max_tokens", "seen", "estimate"),
    [
        (None, [], "0.0060"),
        (None, [50], "0.0030"),
        (None, [900, 50], "0.0115"),
        (200, [], "0.0045"),
        (200, [900], "0.0045"),
        (None, [None], "0.0060"),
    ],
)
def test_a_call_is_estimated_by_the_largest_output_so_far(
    max_tokens: int | None, seen: list[int | None], estimate: str
) -> None:
    async def main() -> Decimal:
        budget = Budget(100, None, PRICE, max_tokens=max_tokens)
        for completion in seen:
            budget.settle(await budget.reserve(1, 1), Usage(1, 0, completion))
        return (await budget.reserve(1000, 5)).usd

    assert asyncio.run(main()) == Decimal(estimate)


def test_the_estimate_stands_when_usage_is_unknown() -> None:
    async def main() -> list[Decimal]:
        budget = budget_of(100)
        spent = []
        for usage in (None, Usage(None, None, 7), Usage(2, None, 0)):
            budget.settle(await budget.reserve(10, 1), usage)
            spent.append(budget.spent)
        return spent

    assert asyncio.run(main()) == [10, 20, 22]


def test_what_is_released_costs_nothing_and_closing_twice_does_nothing() -> None:
    async def main() -> Budget:
        budget = budget_of(10)
        first = await budget.reserve(10, 1)
        budget.release(first)
        second = await budget.reserve(10, 1)
        budget.settle(second, Usage(4, None, 0))
        budget.release(second)
        budget.settle(second, Usage(4, None, 0))
        await budget.reserve(6, 1)
        return budget

    assert asyncio.run(main()).spent == 4


def test_what_does_not_fit_for_certain_is_refused_for_good() -> None:
    async def main() -> list[str]:
        budget = budget_of(5.0)
        await settled(budget, 4, 4)
        messages = []
        for tokens in (2, 1):
            with pytest.raises(BudgetExceeded) as raised:
                await budget.reserve(tokens, 1)
            messages.append(str(raised.value))
        return messages

    message = "the budget of 5.00 USD is spent (4.00 used, the next call may cost 2.00)"
    assert asyncio.run(main()) == [message, message]


def test_small_sums_are_legible() -> None:
    async def main() -> str:
        budget = Budget(0.001, None, PRICE)
        budget.settle(await budget.reserve(0, 0), Usage(100, 0, 0))
        with pytest.raises(BudgetExceeded) as raised:
            await budget.reserve(1000, 0)
        return str(raised.value)

    message = "the budget of 0.001 USD is spent (0.00025 used, the next call may cost 0.0035)"
    assert asyncio.run(main()) == message


def test_who_might_still_fit_waits_for_the_calls_in_flight() -> None:
    async def main() -> None:
        budget = budget_of(10)
        first, second = await budget.reserve(6, 1), await budget.reserve(4, 1)
        third = asyncio.create_task(budget.reserve(5, 1))
        fourth = asyncio.create_task(budget.reserve(1, 1))
        await asyncio.sleep(0)
        budget.settle(second, Usage(1, None, 0))
        await asyncio.sleep(0)
        assert not third.done()
        assert not fourth.done(), "in order of arrival"
        budget.settle(first, Usage(2, None, 0))
        budget.settle(await third, Usage(5, None, 0))
        await fourth
        assert budget.spent == 8

    asyncio.run(main())


def test_waiting_calls_are_refused_when_none_is_in_flight() -> None:
    async def main() -> list[Any]:
        budget = budget_of(10)
        first = await budget.reserve(8, 1)
        others = [asyncio.create_task(budget.reserve(tokens, 1)) for tokens in (4, 1, 9)]
        await asyncio.sleep(0)
        budget.settle(first, Usage(9, None, 0))
        return await asyncio.gather(*others, return_exceptions=True)

    assert [type(each) for each in asyncio.run(main())] == [BudgetExceeded] * 3


def test_requests_are_counted_to_the_last() -> None:
    async def main() -> None:
        budget = budget_of(100, calls=2)
        first = await budget.reserve(90, 1)
        waiting = asyncio.create_task(budget.reserve(90, 1))
        await asyncio.sleep(0)
        budget.count()
        budget.count()
        with pytest.raises(BudgetExceeded, match=r"^the budget of 2 calls is spent$"):
            budget.count()
        with pytest.raises(BudgetExceeded, match="2 calls"):
            await waiting
        with pytest.raises(BudgetExceeded, match="2 calls"):
            await budget.reserve(1, 1)
        budget.settle(first, None)
        assert budget.sent == 2

    asyncio.run(main())


def test_nothing_is_reserved_for_a_request_that_may_not_be_sent() -> None:
    async def main() -> None:
        budget = Budget(None, 1, None)
        budget.release(await budget.reserve(1, 1))
        budget.count()
        with pytest.raises(BudgetExceeded, match="1 calls"):
            await budget.reserve(1, 1)

    asyncio.run(main())


@given(st.integers(0, 10**9), st.integers(5, 60))
def test_no_money_is_lost_when_callers_go_away(seed: int, usd: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        budget = budget_of(usd)

        async def call() -> int:
            tokens = chance.randint(1, 5)
            reservation = await budget.reserve(tokens, 1)
            try:
                await asyncio.sleep(0)
                used = chance.randint(0, tokens)
                budget.settle(reservation, Usage(used, None, 0))
            finally:
                budget.release(reservation)
            return used

        calls = [asyncio.create_task(call()) for _ in range(40)]
        for task in chance.sample(calls, 20):
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            task.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        used = sum(each for each in outcomes if isinstance(each, int))
        assert used == budget.spent <= usd
        assert {type(each) for each in outcomes} <= {int, BudgetExceeded, asyncio.CancelledError}
        if BudgetExceeded in {type(each) for each in outcomes}:
            assert usd - used < 5
        else:
            budget.release(await budget.reserve(int(usd - used), 1))

    asyncio.run(main())
