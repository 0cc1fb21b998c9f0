"""What a pipeline may say of its canaries."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from claimflow.flows.engine.endpoints import Source
from claimflow.flows.engine.object_storage import known_place
from claimflow.flows.engine.spans import Span

AGREEMENT: Final = "canary_agreement"
"""What a gate calls the share of canaries whose verdict is their label."""


class CanarySource(Source):
    """Pairs of premise and claim with a label, which each run's judges are tried on.

    A judge is asked once for each and not again while it, its prompt and its settings are the
    same, unless `fresh` or `every` says so. With both at most `fresh` of those are asked whose
    verdict is older than `every`.
    """

    path: Annotated[str, AfterValidator(known_place)]
    """A file of premise, claim and label, of any format that samples have; or a glob of them."""
    fresh: int | None = Field(default=None, ge=1)
    """So many are asked anew in each run, those first that were not for the longest time."""
    every: Span | None = None
    """Those are asked anew whose verdict is older, in seconds or as in 1d."""
