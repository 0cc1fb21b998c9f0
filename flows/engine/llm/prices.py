"""What litellm's bundled table says a model costs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flows.engine.llm.library import litellm


class Price(NamedTuple):
    """USD per token: of the prompt, of the part of it that was cached, of the reply."""

    prompt: float
    cached: float
    completion: float


def price_of(model: str) -> Price | None:
    """List prices of a model; None when the table has none, or does not know the model.

    A table entry without a price for cached tokens charges them in full.
    """
    entry = _entry(model)
    prompt, completion = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    cached = entry.get("cache_read_input_token_cost")
    return Price(float(prompt), float(prompt if cached is None else cached), float(completion))


def _entry(model: str) -> Mapping[str, Any]:
    """The table's entry for `provider/name`, or for `name` where it is of that provider.

    Looked up by hand: litellm's own look-up asks a local server about its models.
    """
    table: Mapping[str, Mapping[str, Any]] = litellm().model_cost
    provider, _, name = model.partition("/")
    bare = table.get(name, {}) if provider else {}
    ours = str(bare.get("litellm_provider")).startswith(provider)
    return table.get(model) or (bare if ours else {})
