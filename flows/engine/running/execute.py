"""A whole run: put on record, its steps made as soon as their inputs are, its end noted."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from claimflow.flows.engine.canaries.asking import try_judges
from claimflow.flows.engine.config.rerun import Choice, Rerun, chosen
from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.findings.gates import judge_run
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.llm.sharing import Sharing, unshared
from claimflow.flows.engine.planning.readiness import check_endpoints
from claimflow.flows.engine.prepare import Prepared
from claimflow.flows.engine.running.interruptible import await_all, unless_interrupted
from claimflow.flows.engine.running.on_record import on_record
from claimflow.flows.engine.running.room import check_room
from claimflow.flows.engine.steps.runner import Run, Watch
from claimflow.flows.engine.steps.unchanged import SAMPLES
from claimflow.flows.engine.storage import runs
from claimflow.flows.engine.storage.artifacts import Artifact
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.workers.opening import open_workers

Submit = Callable[[str, Mapping[str, Any]], Any]
"""Starts a step by name, given what was returned for each step that it needs."""

Make = Callable[[str, Mapping[str, Artifact]], Artifact]
"""Makes a step by name, given the table of each step that it needs."""

_THREADS: Final = 4


@contextmanager
def recorded(
    prepared: Prepared,
    store: Store,
    watch: Watch,
    *,
    choice: Choice | None = None,
    redact: bool = False,
    sharing: Sharing = unshared,
) -> Iterator[Run]:
    """A run on record in `store`, whose end is noted however it comes.

    `choice` says which steps it makes, if not all. With `redact` the record of calls keeps
    hashes in place of texts. `sharing` knows the limits that other runs share. Raises
    `InputError` where an endpoint that may be asked lacks a key, or a price that its budget
    needs, and where the workers cannot be reached, and `StoreFullError` where the disk has too
    little room.
    """
    pipeline = prepared.pipeline
    choice = choice or chosen(pipeline, Rerun())
    check_endpoints(prepared, store, choice=choice)
    check_room(prepared, store, wanted=choice.wanted)
    stop = threading.Event()
    place = partial(pipeline.source.place, "workers")

    def session(run_id: str) -> Session:
        return Session(
            Ledger(store),
            run_id=run_id,
            stop=stop,
            redact=redact,
            answered=watch.answered,
            fresh=choice.fresh,
            sharing=sharing,
        )

    with (
        closing(open_workers(pipeline.workers, stop, place)) as workers,
        on_record(pipeline, store, watch, session, workers=workers) as (run_id, toolbox),
    ):
        with runs.ending(store, run_id, stop):
            yield Run(run_id, prepared, choice, store, toolbox, workers, stop=stop, watch=watch)
            trying = partial(try_judges, prepared, store, toolbox, run_id, choice.wanted)
            unless_interrupted(trying, stop)
        judge_run(store, run_id, pipeline.gates)


def walk(run: Run, submit: Submit) -> dict[str, Any]:
    """Submit every step of `run` after those it needs; what `submit` returned, by step."""
    submitted: dict[str, Any] = {SAMPLES: submit(SAMPLES, {})}
    for name, step in run.steps.items():
        submitted[name] = submit(name, {need: submitted[need] for need in step.needs})
    return submitted


def execute(run: Run, make: Make | None = None) -> dict[str, Artifact]:
    """Make every step in this process, side by side where the DAG allows it.

    Steps are submitted in an order that can run and threads take them in that order, so a
    step that waits for others never keeps them from a thread. `make` is called for each in
    place of `run.make`, by whoever has something to do around it.
    """
    make_step = make or run.make

    def make_after(name: str, inputs: Mapping[str, Future[Artifact]]) -> Artifact:
        return make_step(name, {need: future.result() for need, future in inputs.items()})

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="step") as pool:
        futures = walk(run, lambda name, inputs: pool.submit(make_after, name, inputs))
        try:
            await_all(futures.values())
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            run.stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def open_store(prepared: Prepared, override: Path | None) -> Store:
    """The store that a pipeline writes to, or the one that was asked for instead.

    Raises `InputError` where a folder lies at its path.
    """
    path = (override or prepared.pipeline.store).resolve()
    if path.is_dir():
        raise InputError([Fault(str(path), "a folder", "name a file in it as the store")])
    return Store(path)
