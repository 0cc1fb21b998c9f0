"""What an endpoint charges: by the pipeline's own words, else by litellm's bundled table."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from claimflow.flows.engine.endpoints import Endpoint
from claimflow.flows.engine.llm.budget import Price
from claimflow.flows.engine.llm.library import litellm

_MILLION: Final = 1_000_000


def charges_of(endpoint: Endpoint) -> Price | None:
    """What tokens cost; None when nobody says, which is not the same as nothing."""
    own = endpoint.price
    if own is None:
        return listed(endpoint.model)
    return _price(own.input, own.cached_input, own.output)


def listed(model: str) -> Price | None:
    """List price of a model; None when litellm's table has none, or does not know the model."""
    entry = _entry(model)
    prompt, completion = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if prompt is None or completion is None:
        return None
    price = _price(prompt, entry.get("cache_read_input_token_cost"), completion)
    return Price(*(per_token * _MILLION for per_token in price))


def _price(prompt: float, cached: float | None, completion: float) -> Price:
    """The decimal numbers that were written; cached tokens without a price cost the full one."""
    said = (prompt, prompt if cached is None else cached, completion)
    return Price(*(Decimal(str(number)) for number in said))


def _entry(model: str) -> Mapping[str, Any]:
    """The table's entry for `provider/name`, or for `name` where it is of that provider.

    Looked up by hand: litellm's own look-up asks a local server about its models.
    """
    table: Mapping[str, Mapping[str, Any]] = litellm().model_cost
    provider, _, name = model.partition("/")
    bare = table.get(name, {}) if provider else {}
    ours = str(bare.get("litellm_provider")).startswith(provider)
    return table.get(model) or (bare if ours else {})
