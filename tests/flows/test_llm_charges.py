"""What tokens cost, by the pipeline's words and by litellm's table."""

from decimal import Decimal
from typing import Any

import pytest

from claimflow.flows.judge.budget import Price, listed, price_of
from claimflow.flows.pipeline.model_settings import Judge


def judge(**settings: Any) -> Judge:
    return Judge.model_validate({"model": "openai/gpt-4o-mini", **settings})


def test_without_words_the_table_says_it_per_million_tokens() -> None:
    price = Price(Decimal("0.15"), Decimal("0.075"), Decimal("0.6"))
    assert price_of(judge()) == listed("openai/gpt-4o-mini") == listed("gpt-4o-mini") == price


@pytest.mark.parametrize(
    "unknown", ["openai/nobody", "hosted_vllm/gpt-4o-mini", "groq/gpt-4o-mini"]
)
def test_a_name_that_another_provider_has_a_price_for_has_none(unknown: str) -> None:
    assert listed(unknown) is None
    assert price_of(judge(model=unknown)) is None


def test_cached_tokens_without_a_price_cost_the_full_one() -> None:
    embedding = listed("openai/text-embedding-3-small")
    assert embedding is not None
    assert embedding.cached == embedding.input > embedding.output == 0


def test_own_words_go_before_the_table() -> None:
    own = judge(price={"input": 0.1, "output": 2, "cached_input": 0.01})
    assert price_of(own) == Price(Decimal("0.1"), Decimal("0.01"), Decimal("2.0"))
    assert price_of(judge(price={"input": 0.1})) == Price(
        Decimal("0.1"), Decimal("0.1"), Decimal(0)
    )
