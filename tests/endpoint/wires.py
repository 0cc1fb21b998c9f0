"""Faults of the connection, and of embeddings."""

from collections.abc import Callable, Sequence

from tests.endpoint.fault import Fault
from tests.endpoint.vectors import Vector


def reset(*, midway: bool = False) -> Fault:
    """The connection is reset before the reply, or in the middle of it."""
    return Fault("reset", wire="midway" if midway else "reset")


def close() -> Fault:
    """The connection is closed normally, without a reply."""
    return Fault("close", wire="close")


def refuse(seconds: float = 0.0) -> Fault:
    """The connection is reset and new ones are refused for `seconds`; with 0 until `accept()`."""
    return Fault("refuse", wire="refuse", delay=seconds)


def hang() -> Fault:
    """No reply is ever sent."""
    return Fault("hang", wire="hang")


def slow(seconds: float) -> Fault:
    """The reply is sent `seconds` later."""
    return Fault("slow", delay=seconds)


def drip(pause: float = 0.3, size: int = 16) -> Fault:
    """`size` bytes of the reply every `pause` seconds."""
    return Fault("drip", wire="drip", pause=pause, size=size)


def vectors(change: Callable[[list[Vector]], Sequence[Vector]], name: str = "vectors") -> Fault:
    """The embeddings of the reply, changed: fewer, longer, of zeros, of NaN."""
    return Fault(name, vectors=change)
