"""What an endpoint bears: how many calls at once, and from when on."""

import math
from typing import Final

_CUT: Final = 0.6


class Limit:
    """How many calls may be in flight: additive increase, multiplicative decrease."""

    def __init__(self, first: int, most: int) -> None:
        self.now = float(first)
        self._most = most
        self._cut_at = -math.inf

    def grow(self) -> None:
        """Raise the limit for one answer."""
        step = 1 if self._cut_at == -math.inf else 1 / self.now
        self.now = min(self.now + step, self._most)

    def cut(self, sent_at: float, now: float) -> None:
        """Lower the limit, once for all requests that were sent before it was lowered."""
        if sent_at >= self._cut_at:
            self.now = max(self.now * _CUT, 1.0)
            self._cut_at = now


class Gate:
    """Shut for everyone while the endpoint asks to be left alone, and for how long it was."""

    def __init__(self) -> None:
        self.opens_at = -math.inf
        self._shut = 0.0
        self._forgiven = 0.0

    def shut(self, now: float, seconds: float) -> None:
        """Open no sooner than `seconds` after `now`."""
        opens_at = max(now + seconds, self.opens_at)
        self._shut += opens_at - max(now, self.opens_at)
        self.opens_at = opens_at

    def forgive(self, now: float) -> None:
        """Count from here: somebody was answered."""
        self._forgiven = self.elapsed(now)

    def elapsed(self, now: float) -> float:
        """Seconds it was shut until `now`, in all."""
        return self._shut - max(self.opens_at - now, 0.0)

    def shut_since(self, elapsed: float) -> float:
        """Seconds it was and will be shut beyond those that had `elapsed` or are forgiven."""
        return self._shut - max(elapsed, self._forgiven)
