"""What must be the same here and on every worker of a cluster, or rows might differ."""

import platform
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from claimflow.flows.engine.errors import WorkersError
from claimflow.flows.engine.workers.protocol import Made

if TYPE_CHECKING:
    from distributed import Client

_PACKAGES: Final = ("claimflow", "polars", "onnxruntime")


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """Python (its first two numbers) and the packages that make rows, with their versions."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, version(name)) for name in _PACKAGES))


def unlike(client: "Client") -> str:
    """How a worker of a cluster differs from this process, in words; empty where none does.

    Asked by functions of Python's own: a worker may not have claimflow at all.
    """
    found: dict[str, dict[str, Any]] = {"Python": client.run(platform.python_version)}
    for name in _PACKAGES:
        found[name] = client.run(version, name, on_error="return")
    return next(_differences(found), "")


def call_same(
    expected: tuple[tuple[str, str], ...], work: Callable[..., Made], arguments: tuple[Any, ...]
) -> Made:
    """What `work` returns, on a worker that is like the process that sent it.

    A worker may join a cluster in mid-run; raises `WorkersError` where it is another.
    """
    for (name, there), (_, here) in zip(expected, versions(), strict=True):
        if here != there:
            raise WorkersError(f"a worker that joined has {name} {here}, and here is {there}")
    return work(*arguments)


def _differences(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name, here in versions():
        for worker, there in sorted(found[name].items()):
            if isinstance(there, PackageNotFoundError):
                yield f"the worker {worker} has no {name}, and here is {here}"
            elif not f"{there}.".startswith(f"{here}."):
                yield f"the worker {worker} has {name} {there}, and here is {here}"
