"""Prices of tokens, from the pipeline and from the table of litellm."""

from decimal import Decimal
from typing import Any

import pytest

from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.provider import Price, open_provider
from claimflow.flows.pipeline.model_settings import Judge


def judge(**settings: Any) -> Judge:
    return Judge.model_validate({"model": "openai/gpt-4o-mini", **settings})


def listed(model: str) -> Price | None:
    return open_provider("litellm").list_price(model)


def test_without_a_price_in_the_pipeline_the_table_gives_it_per_million_tokens() -> None:
    price = Price(Decimal("0.15"), Decimal("0.075"), Decimal("0.6"))
    assert price_of(judge()) == listed("openai/gpt-4o-mini") == listed("gpt-4o-mini") == price


@pytest.mark.parametrize(
    "unknown", ["openai/nobody", "hosted_vllm/gpt-4o-mini", "groq/gpt-4o-mini"]
)
def test_the_price_of_another_provider_for_the_same_name_is_not_used(unknown: str) -> None:
    assert listed(unknown) is None
    assert price_of(judge(model=unknown)) is None


def test_cached_tokens_without_a_price_cost_the_full_one() -> None:
    embedding = listed("openai/text-embedding-3-small")
    assert embedding is not None
    assert embedding.cached == embedding.input > embedding.output == 0


def test_a_price_in_the_pipeline_precedes_the_table() -> None:
    own = judge(price={"input": 0.1, "output": 2, "cached_input": 0.01})
    assert price_of(own) == Price(Decimal("0.1"), Decimal("0.01"), Decimal("2.0"))
    assert price_of(judge(price={"input": 0.1})) == Price(
        Decimal("0.1"), Decimal("0.1"), Decimal(0)
    )
