"""Workers: processes here or on a cluster that share the work of a run."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from claimflow.flows.pipeline.schema import WorkersSetting

# What a run asks of its workers, wherever they are.


Made = TypeVar("Made")


class Workers(Protocol):
    """Processes that call functions of ours on chunks of work, and give back what they return.

    A chunk is done by whichever worker is free, and again by another when that one dies: the
    functions change nothing outside of themselves. They are named by their module, so that
    nothing but their arguments travels.
    """

    @property
    def shards(self) -> int:
        """Chunks, at least, that the work of a step is cut into."""
        ...

    def worth(self, chunks: int) -> bool:
        """Whether so many chunks are better done by workers than in this process."""
        ...

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """What `work` returns for the arguments in each of `chunks`, in their order.

        Few more chunks are taken than there are workers before their results are wanted, so
        that memory is bounded; from several threads at once, each has its own. `what` names
        the work in messages. Raises what `work` raises, `StoppedError` when the run was
        asked to stop, and `WorkersError` when workers die again and again. Chunks that nobody
        waits for any more are called off.
        """
        ...

    def close(self) -> None:
        """Let go of the workers; those that were started for this run end."""
        ...


# Workers: processes on this machine, or on a cluster, that do what can be done apart.


__all__ = ["Workers", "WorkersSetting"]
