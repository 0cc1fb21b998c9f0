"""Workers: processes on this machine or on a cluster that share the work of a run."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from claimflow.flows.errors import Fault, InputError
from claimflow.stages.base import Stage

if TYPE_CHECKING:
    import polars as pl

    # The schema loads all stages, of which a worker needs a few.
    from claimflow.flows.pipeline.schema import WorkersSetting
    from claimflow.flows.runner.workers.sub_folder import Rows

Made = TypeVar("Made")


class Workers(Protocol):
    """Processes that call our functions on chunks of work and return the results.

    Any free worker takes a chunk, and another one repeats it when that worker dies: the functions
    have no side effects. They are pickled by name, so that only their arguments travel.
    """

    @property
    def shards(self) -> int:
        """The least number of chunks that the work of a step is split into."""
        ...

    def worth(self, chunks: int) -> bool:
        """Whether that many chunks are done faster by workers than in this process."""
        ...

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Iterator[Made]:
        """The results of `work` on the arguments in each of `chunks`, in their order.

        Only a few more chunks than there are workers are read before their results are consumed,
        so that memory is bounded. Can be called from several threads at once. `what` names the
        work in messages. Raises the errors of `work`, `StoppedError` when the run was stopped,
        and `WorkersError` when workers die again and again. When the iterator is closed, its
        chunks are cancelled.
        """
        ...

    def shared(self, tables: Iterable["pl.DataFrame"]) -> "Iterable[Rows] | None":
        """Tables that chunks may name again and again; None where each chunk carries its own."""
        ...

    def close(self) -> None:
        """Disconnect; workers that were started for this run end."""
        ...


class Engine(Workers, Protocol):
    """What runs workers: processes of this machine, or a cluster."""

    def each(
        self, work: Callable[..., Made], chunks: Iterable[tuple[Any, ...]], *, what: str
    ) -> Generator[Made]:
        """As `Workers.each`."""
        ...

    def on_each(self, work: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
        """What `work` returns on each worker that runs now, or the error it raises, by worker."""
        ...


def open_workers(
    setting: "WorkersSetting",
    stop: threading.Event,
    place: Callable[[str], str],
    stages: Iterable[Stage] = (),
) -> Workers:
    """The workers that a pipeline asks for, to run `stages`; they end the run when `stop` is set.

    `place` gives the position of a key of the setting in the pipeline file. Raises `InputError`
    where a cluster or the folder for tables cannot be used.
    """
    engine = _open_engine(setting, stop, place, stages)
    if setting.folder is None:
        return engine
    from claimflow.flows.runner.workers.folder import FolderWorkers

    try:
        return FolderWorkers(engine, setting.folder, place("folder"))
    except BaseException:
        engine.close()
        raise


def _open_engine(
    setting: "WorkersSetting",
    stop: threading.Event,
    place: Callable[[str], str],
    stages: Iterable[Stage],
) -> Engine:
    if setting.engine == "local" or setting.address is None:
        from claimflow.flows.runner.workers.local import LocalWorkers

        return LocalWorkers(stop, setting.count, setting.shards)
    try:
        from claimflow.flows.runner.workers.dask import DaskWorkers
    except ModuleNotFoundError as error:
        if error.name not in ("distributed", "dask"):
            raise
        what, hint = "Dask is not installed", "run: pip install 'claimflow[dask]'"
        raise InputError([Fault(place("engine"), what, hint)]) from None
    try:
        return DaskWorkers(setting.address, stop, setting.shards, stages)
    except ValueError as error:
        hint = "start its scheduler and workers, all with the claimflow that is installed here"
        raise InputError([Fault(place("address"), str(error), hint)]) from None
