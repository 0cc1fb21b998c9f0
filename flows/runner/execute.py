"""A whole run: recorded, its steps executed, its end noted."""

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from claimflow.flows.errors import Fault, InputError, StoreError
from claimflow.flows.judge.ledger_writer import recover_journals
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.schema import WorkersSetting
from claimflow.flows.runner.incremental import SAMPLES
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.run import Run
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.runner.workers.local import LocalWorkers
from claimflow.flows.runner.workers.protocol import Workers
from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.read_copy import update_read_copy
from claimflow.flows.store.store import Store

# Work that asks models, done such that Ctrl-C ends it in order.


Done = TypeVar("Done")

_LOOK: Final = 0.2
"""Seconds until the main thread looks up from its wait."""


def run_interruptibly(work: Callable[[], Done], stop: threading.Event) -> Done:
    """What `work` returns, done in another thread: what is on its way at Ctrl-C is still noted.

    `stop` is set where the wait ends otherwise.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="work") as pool:
        future = pool.submit(work)
        try:
            wait_for_all([future])
            return future.result()
        except BaseException:
            stop.set()
            raise


def wait_for_all(futures: Iterable[Future[Any]]) -> None:
    """Return when all of them are done; raises what one of them raised as soon as it did.

    Not for ever at a time: Polars handles Ctrl-C such that it does not end a wait.
    """
    pending = set(futures)
    while pending:
        done, pending = wait(pending, _LOOK, FIRST_EXCEPTION)
        for future in done:
            future.result()


# A run put on record, with the tools that it asks; let go of and published when it is over.


@contextmanager
def run_context(
    pipeline: Pipeline,
    store: Store,
    observer: RunObserver,
    session: Callable[[str], Session],
    *,
    steps: Sequence[str] = (),
    about: str = "",
    workers: Workers | None = None,
) -> Iterator[tuple[str, Toolbox]]:
    """The id of a new run of a pipeline, and its tools; its end is for the caller to note.

    `session` opens that of a run by its id, `about` is added to the pipeline's name. What runs
    before this one left in journals is taken in first. Afterwards tools and `workers` are let go of
    and the read copy is published, unless it was the store that failed.
    """
    recover_journals(Ledger(store))
    run_id, killed = runs.start_run(
        store,
        pipeline=f"{pipeline.name}{about}",
        config_path=str(pipeline.source.path.resolve()),
        config=pipeline.source.text,
    )
    toolbox = Toolbox(pipeline, session(run_id), workers)
    observer.run_started(run_id, [SAMPLES, *steps], killed)
    readable = True
    try:
        yield run_id, toolbox
    except StoreError:
        readable = False
        raise
    finally:
        # They are not needed any more, and copying the store may take a while.
        if workers is not None:
            workers.close()
        toolbox.close()
        if readable:
            update_read_copy(store, wanted=pipeline.read_copy)


# The workers that a pipeline asks for, ready to work.


def open_workers(
    setting: WorkersSetting, stop: threading.Event, place: Callable[[str], str]
) -> Workers:
    """The workers of `setting`, which see to it that a run ends when `stop` is set.

    Raises `InputError` where a cluster cannot be used; `place` says where a key of the
    setting stands.
    """
    if setting.engine == "local" or setting.address is None:
        return LocalWorkers(stop, setting.count, setting.shards)
    try:
        cluster = importlib.import_module("claimflow.flows.runner.workers.dask")
    except ModuleNotFoundError as error:
        if error.name not in ("distributed", "dask"):
            raise
        what, hint = "Dask is not installed", "run: pip install 'claimflow[dask]'"
        raise InputError([Fault(place("engine"), what, hint)]) from None
    try:
        workers: Workers = cluster.DaskWorkers(setting.address, stop, setting.shards)
    except ValueError as error:
        hint = "start its scheduler and workers, all with this version of claimflow"
        raise InputError([Fault(place("address"), str(error), hint)]) from None
    return workers


# A whole run: put on record, its steps made as soon as their inputs are, its end noted.


_THREADS: Final = 4


def execute_steps(run: Run, observer: RunObserver) -> None:
    """Make every step of `run` by way of `observer`, side by side where the DAG allows it.

    Steps are submitted in an order that can run and threads take them in that order, so a
    step that waits for others never blocks them.
    """

    def make(name: str, needed: Mapping[str, Future[Artifact]]) -> Artifact:
        inputs = {need: future.result() for need, future in needed.items()}
        return observer.make_step(name, inputs, run.make)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="step") as pool:
        futures = {SAMPLES: pool.submit(make, SAMPLES, {})}
        for name, step in run.steps.items():
            futures[name] = pool.submit(make, name, {need: futures[need] for need in step.needs})
        try:
            wait_for_all(futures.values())
        except BaseException:
            run.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
