"""Rate limits of a provider: requests at once and per second, beyond them 429."""

from tests.endpoint.fault import Fault
from tests.endpoint.statuses import status


class Throttle:
    """Refuses requests beyond `concurrent` at once or `per_second`.

    The rate is a token bucket of `burst` requests, by default those of one second.
    """

    def __init__(
        self,
        *,
        concurrent: int | None = None,
        per_second: float | None = None,
        burst: float | None = None,
        retry_after: float | None = None,
    ) -> None:
        self._concurrent = concurrent
        self._per_second = per_second
        self._size = max(1.0, per_second or 1.0) if burst is None else burst
        self._left = self._size
        self._filled = 0.0
        self._fault = status(429, retry_after=retry_after)

    def check(self, active: int, now: float) -> Fault | None:
        """The refusal of one more request in addition to `active` ones, at `now` (seconds)."""
        if self._concurrent is not None and active >= self._concurrent:
            return self._fault
        if self._per_second is None:
            return None
        gained = (now - self._filled) * self._per_second
        self._left, self._filled = min(self._size, self._left + gained), now
        if self._left < 1:
            return self._fault
        self._left -= 1
        return None
