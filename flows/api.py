"""The Python interface: `run_pipeline` runs a pipeline that `prepare` has read and checked."""

import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from claimflow.flows.judge.rate_limit import OpenSharedLimiter, no_shared_limit
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.quality.failed_rows import failure_reason
from claimflow.flows.quality.gates import evaluate_gates
from claimflow.flows.runner.canaries import judge_canaries
from claimflow.flows.runner.embedded_models import fetch_models
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.plan import choose, coverage
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.readiness import check_ready
from claimflow.flows.runner.run import Run, run_context, run_interruptibly, time_limit
from claimflow.flows.runner.workers import open_workers
from claimflow.flows.store import runs
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store, migrate


class RunResult(NamedTuple):
    """A finished run: its id, the store it is in, and the result of each step by name.

    `failed` says why the run failed by `fail_when` of its pipeline, None where it did not.

    Where a rerun of failed steps finds that nothing failed, no step is run: `nothing_to_do` says
    so and `run_id` is the run that was looked at.
    """

    run_id: str
    store: Store
    steps: Mapping[str, StepResult]
    nothing_to_do: str | None = None
    failed: str | None = None


def run_pipeline(
    prepared: Prepared,
    store: Store | None = None,
    *,
    rerun: Rerun | None = None,
    redact: bool = False,
    timeout: timedelta | None = None,
    call_timeout: timedelta | None = None,
    observer: RunObserver | None = None,
    open_shared_limiter: OpenSharedLimiter = no_shared_limit,
    stop: threading.Event | None = None,
) -> RunResult:
    """Run a pipeline: reuse the tables that are in `store`, make the others, record the run.

    `store` is that of `prepared` if None. `rerun` selects steps and what to make anew; give
    `prepare` the same. With `redact` the record of model calls keeps hashes instead of texts. The
    run ends when its steps take longer than `timeout`; a call of a model, with all its attempts, is
    given up after `call_timeout`, and after four times the `timeout` of its endpoint in any case.
    `observer` receives the events of the run. `open_shared_limiter` opens the rate limits that
    several runs share. Setting `stop` from another thread ends the run within moments.

    Raises `InputError` where an endpoint that may be asked lacks a key, or a price that its
    budget needs, where a step that is to be reused is not in the store, and where the workers
    cannot be reached; `StoreFullError` where the disk has too little space; `StoppedError` when
    the run was stopped; `RunTimeoutError` when it took too long; `JudgeError` and `StoreError` when
    a model or the store fails. The end of the run is recorded in any case.
    """
    observer, stop = observer or RunObserver(), stop or threading.Event()
    prepared = fetch_models(prepared, observer.message)
    pipeline = prepared.pipeline
    store = store or prepared.store
    rerun = rerun or Rerun()
    migrate(store)
    choice = choose(prepared, store, rerun)
    if choice.run_without_failures is not None:
        return RunResult(choice.run_without_failures, store, {}, choice.nothing_to_do)
    observer.run_prepared(prepared)
    check_ready(prepared, store, choice)

    session = partial(
        Session,
        Ledger(store),
        stop=stop,
        redact=redact,
        call_timeout=call_timeout,
        answered=observer.questions_answered,
        fresh=choice.fresh,
        open_shared_limiter=open_shared_limiter,
    )
    steps = [step.name for step in choice.steps]
    place = partial(pipeline.source.place, "workers")
    stages = [step.stage for step in choice.steps]
    with (
        closing(open_workers(pipeline.workers, stop, place, stages)) as workers,
        run_context(
            pipeline,
            store,
            observer,
            session,
            steps=steps,
            coverage=coverage(prepared, choice, rerun),
            workers=workers,
        ) as recorded,
    ):
        run_id, toolbox = recorded
        with runs.recording_end(store, run_id, stop) as end, time_limit(timeout, stop):
            run = Run(
                run_id, prepared, choice, store, toolbox, workers, stop=stop, observer=observer
            )
            run.execute()
            trying = partial(judge_canaries, prepared, store, toolbox, run_id, choice.wanted)
            run_interruptibly(trying, stop)
            if pipeline.fail_when is not None:
                end.reason = failure_reason(store, run_id, pipeline.fail_when)
                end.status = "failed" if end.reason else "done"
        evaluate_gates(store, run_id, pipeline.gates)
    return RunResult(run_id, store, run.results, failed=end.reason)
