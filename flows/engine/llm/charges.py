"""What an endpoint charges: by the pipeline's own words, else by litellm's bundled table."""

from decimal import Decimal
from typing import Final

from flows.engine.endpoints import Endpoint
from flows.engine.llm.budget import Price
from flows.engine.llm.prices import price_of

_MILLION: Final = 1_000_000


def charges_of(endpoint: Endpoint) -> Price | None:
    """US dollars per million tokens; None when nobody says, which is not the same as nothing."""
    own = endpoint.price
    if own is not None:
        cached = own.input if own.cached_input is None else own.cached_input
        return Price(_exact(own.input), _exact(cached), _exact(own.output))
    listed = price_of(endpoint.model)
    if listed is None:
        return None
    return Price(*(_exact(price) * _MILLION for price in listed))


def _exact(price: float) -> Decimal:
    """The decimal number that was written, not its nearest binary fraction."""
    return Decimal(str(price))
