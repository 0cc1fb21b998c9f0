"""A whole run: put on record, its steps made as soon as their inputs are, its end noted."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from flows.engine import runs
from flows.engine.artifacts import Artifact
from flows.engine.errors import StoppedError
from flows.engine.ledger import Ledger
from flows.engine.prepare import Prepared
from flows.engine.runner import SAMPLES, Run, Watch
from flows.engine.store import Store
from flows.engine.toolbox import Toolbox

Submit = Callable[[str, Mapping[str, Any]], Any]
"""Starts a step by name, given what was returned for each step that it needs."""

_THREADS: Final = 4


@contextmanager
def recorded(
    prepared: Prepared, store: Store, watch: Watch, *, again: frozenset[str] = frozenset()
) -> Iterator[Run]:
    """A run on record in `store`, whose end is noted however it comes."""
    pipeline = prepared.pipeline
    stop = threading.Event()
    toolbox = Toolbox(Ledger(store), embedder=pipeline.embedder, stop=stop)
    run_id, killed = runs.start(
        store,
        pipeline=pipeline.name,
        config_path=str(pipeline.source.path.resolve()),
        config=pipeline.source.text,
    )
    run = Run(run_id, prepared, store, toolbox, stop=stop, watch=watch, again=again)
    watch.began(run_id, killed)
    try:
        yield run
    except (KeyboardInterrupt, StoppedError):
        stop.set()
        runs.end(store, run_id, "stopped", "asked to stop")
        raise
    except BaseException as error:
        stop.set()
        runs.end(store, run_id, "failed", f"{type(error).__name__}: {error}")
        raise
    runs.end(store, run_id, "done")


def walk(run: Run, submit: Submit) -> dict[str, Any]:
    """Submit every step of `run` after those it needs; what `submit` returned, by step."""
    submitted: dict[str, Any] = {SAMPLES: submit(SAMPLES, {})}
    for name, step in run.steps.items():
        submitted[name] = submit(name, {need: submitted[need] for need in step.needs})
    return submitted


def execute(run: Run) -> dict[str, Artifact]:
    """Make every step in this process, side by side where the DAG allows it.

    Steps are submitted in an order that can run and threads take them in that order, so a
    step that waits for others never keeps them from a thread.
    """

    def make(name: str, inputs: Mapping[str, Future[Artifact]]) -> Artifact:
        return run.make(name, {need: future.result() for need, future in inputs.items()})

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="step") as pool:
        futures = walk(run, lambda name, inputs: pool.submit(make, name, inputs))
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            run.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def open_store(prepared: Prepared, override: Path | None) -> Store:
    """The store that a pipeline writes to, or the one that was asked for instead."""
    return Store((override or prepared.pipeline.store).resolve())
