"""The Python interface: run a pipeline and read what it found."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from claimflow.flows.judge.rate_limit import Sharing, unshared
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import Choice, Rerun, chosen
from claimflow.flows.quality.gates import judge_run
from claimflow.flows.runner.canaries import try_judges
from claimflow.flows.runner.disk_space import check_room
from claimflow.flows.runner.execute import on_record, open_workers, unless_interrupted
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.readiness import check_endpoints
from claimflow.flows.runner.run import Run, Watch
from claimflow.flows.store import runs
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store


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
