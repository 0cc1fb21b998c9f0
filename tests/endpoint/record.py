"""The record of requests, and counts over it."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Recorded:
    """One request. Times are seconds of the monotonic clock; `status` is None without a reply.

    `headers` are without those that hold a key; `authorized` says whether there was one. `fault`
    is the name of the fault, `gone` says that the client left before the reply.
    """

    number: int
    method: str
    path: str
    key: str
    arrived: float
    headers: Mapping[str, str] = field(default_factory=dict)
    authorized: bool = False
    body: Any = None
    replied: float | None = None
    status: int | None = None
    fault: str | None = None
    gone: bool = False


class Record:
    """All requests in the order of arrival, and how many were served at once."""

    def __init__(self) -> None:
        self.active = 0
        self.clear()

    def clear(self) -> None:
        """Delete all requests; those in progress still count for `highest`."""
        self.requests: list[Recorded] = []
        self.highest = self.active
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0

    def begin(self) -> None:
        """Count a request as in progress."""
        self.active += 1
        self.highest = max(self.highest, self.active)

    def end(self) -> None:
        """Count a request as finished."""
        self.active -= 1

    def stats(self) -> dict[str, Any]:
        """The counts, as they are written at `/_stats`."""
        requests = list(self.requests)
        equal = Counter(one.key for one in requests)
        arrived = [one.arrived for one in requests]
        replied = [one.replied for one in requests if one.replied is not None]
        return {
            "hits": len(requests),
            "distinct": len(equal),
            "most_of_one": max(equal.values(), default=0),
            "by_status": Counter(str(one.status) for one in requests),
            "by_path": Counter(one.path for one in requests),
            "by_fault": Counter(one.fault for one in requests if one.fault),
            "gone": sum(one.gone for one in requests),
            "active": self.active,
            "highest": self.highest,
            "seconds": max(replied, default=0.0) - min(arrived) if arrived and replied else 0.0,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cpu_seconds": time.process_time(),
        }
