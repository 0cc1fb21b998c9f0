"""A limit that several runs share, as one run sees it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

KeepTo = Callable[[float], None]
"""Told how many requests a minute a run may send from now on."""


class Turnstile(Protocol):
    """What every request under a shared limit passes. Used in one loop."""

    def passing(self) -> AbstractAsyncContextManager[None]:
        """Held as long as a request may be sent; entered when this run has its part.

        What can go wrong with the limit is the turnstile's: nothing is raised.
        """
        ...

    async def close(self) -> None:
        """Give back what this run has of the limit, within moments."""
        ...


Sharing = Callable[[str, KeepTo], Turnstile]
"""The turnstile of a limit by its name, which says what part of it is this run's."""


class Unshared:
    """Lets everybody pass: a run that knows of no others keeps to its own pace."""

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """As `Turnstile.passing`."""
        yield

    async def close(self) -> None:
        """As `Turnstile.close`."""


def unshared(_name: str, _keep_to: KeepTo) -> Turnstile:
    """The `Sharing` of a run that knows of no others."""
    return Unshared()
