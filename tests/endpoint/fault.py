"""The types of faults, and of the rules that choose one for a request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.endpoint.asked import Answer
from tests.endpoint.vectors import Vector

Wire = Literal["plain", "reset", "midway", "close", "refuse", "hang", "drip"]
"""How the reply is sent: whole; connection reset before it or within it, or closed; reset and new
connections refused; never; a few bytes at a time."""


@dataclass(frozen=True)
class Refusal:
    """An HTTP answer in place of the judge's; an error in the dialect unless `body` is given."""

    status: int
    message: str = ""
    type: str = ""
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True)
class Fault:
    """One kind of fault. A fault is also a rule: the one that chooses it for every request."""

    name: str
    refusal: Refusal | None = None
    answer: Callable[[Answer], Answer] | None = None
    vectors: Callable[[list[Vector]], Sequence[Vector]] | None = None
    body: Callable[[bytes], bytes] | None = None
    wire: Wire = "plain"
    delay: float = 0.0
    """Seconds before the reply, beside the latency; with "refuse", until it listens again."""
    pause: float = 0.3
    size: int = 16

    def __call__(self, number: int, body: Any, key: str) -> "Fault":
        return self


Rule = Callable[[int, Any, str], Fault | None]
"""(the request's number from 1, its body, a hash of path and body) -> the fault, if any."""
