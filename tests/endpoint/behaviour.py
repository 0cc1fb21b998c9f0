"""The settings of an endpoint, which may be changed while it runs."""

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.endpoint.batches import BatchBehaviour
from tests.endpoint.fault import Rule
from tests.endpoint.throttle import Throttle


@dataclass
class Behaviour:
    """The settings of an endpoint.

    A reply takes `latency` seconds plus `per_token` for each of its tokens, varied by up to the
    share `spread` of that (0.5: 0.5 to 1.5 times), by a hash of the request.
    `refuses` names formats (json_schema, json_object, tools), parameters (seed, max_tokens)
    and "empty_input" (embeddings of nothing) that are answered with 400. With `api_key` any
    other key is answered with 401. Without `keep_bodies` no header or body is recorded. `batches`
    says what becomes of batches.
    """

    fault: Rule | None = None
    latency: float = 0.0
    per_token: float = 0.0
    spread: float = 0.0
    throttle: Throttle | None = None
    refuses: Collection[str] = ()
    api_key: str | None = None
    dimension: int = 384
    keep_bodies: bool = True
    batches: BatchBehaviour = field(default_factory=BatchBehaviour)

    def seconds(self, key: str, tokens: int) -> float:
        """Seconds until a reply of `tokens` tokens is sent."""
        whole = self.latency + self.per_token * tokens
        drawn = int(key[:8], 16) / 2**31 - 1 if self.spread else 0.0
        return whole * (1 + self.spread * drawn)
