"""The execution of one run: recorded in the store, each step reused or made."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import duckdb

from claimflow.flows.errors import (
    JudgeError,
    PendingError,
    RunTimeoutError,
    StoppedError,
    StoreError,
)
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.corrections import CorrectedTable, make_corrected
from claimflow.flows.runner.incremental import SAMPLES
from claimflow.flows.runner.languages import detect_languages, readers_of
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.part_maker import StepTools
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.table_builder import TableBuilder
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.runner.workers import Workers
from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import Artifact, Provenance, find_artifact, plugin_facts
from claimflow.flows.store.edits import Edit, Edits
from claimflow.flows.store.fingerprint import samples_fingerprint, step_fingerprint, step_recipe
from claimflow.flows.store.languages import Reader, record_readers
from claimflow.flows.store.read_copy import update_read_copy
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key

_AT_ONCE: Final = 4
"""Steps that compute at the same time, beside those that ask a judge."""

_POLL_SECONDS: Final = 0.2
"""Longest time that the main thread waits before it can react to Ctrl-C."""

Result = TypeVar("Result")


@contextmanager
def run_context(
    pipeline: Pipeline,
    store: Store,
    observer: RunObserver,
    open_session: Callable[..., Session],
    *,
    steps: Sequence[str] = (),
    coverage: runs.Coverage | None = None,
    suffix: str = "",
    workers: Workers | None = None,
) -> Iterator[tuple[str, Toolbox]]:
    """Record a new run; gives its id and its tools. The caller records how it ends.

    `open_session` opens the judge session of a `run_id`; `coverage` is how much of the pipeline it
    has; `suffix` is added to the pipeline's name. At the end the tools and the `workers` are closed
    and the read copy is updated, unless the store failed.
    """
    run_id, killed = runs.start_run(
        store,
        pipeline=f"{pipeline.name}{suffix}",
        # A pipeline from Python has no file.
        config_path=str(pipeline.source.path.resolve()) if pipeline.source.lines else "",
        config=pipeline.source.text,
        coverage=coverage,
    )
    toolbox = Toolbox(pipeline, open_session(run_id=run_id), workers)
    observer.run_started(run_id, [SAMPLES, *steps], killed)
    readable = True
    try:
        yield run_id, toolbox
    except StoreError:
        readable = False
        raise
    finally:
        # Close them before the store is copied, which may take a while.
        if workers is not None:
            workers.close()
        toolbox.close()
        if readable:
            update_read_copy(store, wanted=pipeline.read_copy)


class Run:
    """One execution of the selected steps of a pipeline.

    `results` holds the result of every finished step by name. Setting `stop`, which the tools
    check as well, ends the run within moments.
    """

    def __init__(
        self,
        run_id: str,
        prepared: Prepared,
        selection: StepSelection,
        store: Store,
        toolbox: Toolbox,
        workers: Workers,
        *,
        stop: threading.Event,
        observer: RunObserver,
    ) -> None:
        self.results: dict[str, StepResult] = {}
        self._run_id = run_id
        self._steps = {step.name: step for step in selection.steps}
        self._stop = stop
        self._samples = prepared.samples
        self._again = selection.again
        self._store = store
        self._toolbox = toolbox
        self._observer = observer
        self._position = {name: i for i, name in enumerate([SAMPLES, *self._steps])}
        # Steps that compute the same table take turns, so that it is made once.
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        toolbox.share_calls(selection.steps)
        self._readers: dict[str, list[Reader]] = defaultdict(list)
        for reader in readers_of(selection.steps, toolbox):
            self._readers[reader.step].append(reader)
        self._edits = Edits(store, prepared.pipeline.name, lambda: prepared.samples.shards(SHARD))
        self._builder = TableBuilder(
            prepared.samples,
            store,
            workers,
            stop,
            observer,
            selection=selection,
            lend=self._lend,
            edited=lambda step: bool(self._edits.of(step)),
            provenance=self._step_provenance,
        )

    def execute(self) -> None:
        """Make every step by way of the observer, side by side where the DAG allows it.

        Each step has a thread, since it may wait for any other: for its tables, or for questions
        that share calls. Raises the first error of any step, and `StoppedError` when the run was
        stopped; where a model cannot be used (`JudgeError`) or a batch has not ended
        (`PendingError`), the steps that do not need its tables are made first.
        """
        computing = threading.Semaphore(_AT_ONCE)

        def make(name: str, needed: Mapping[str, Future[Artifact]]) -> Artifact:
            try:
                inputs = {need: future.result() for need, future in needed.items()}
                asks = name in self._steps and self._steps[name].judges
                with nullcontext() if asks else computing:
                    return self._observer.make_step(name, inputs, self._make)
            finally:
                self._toolbox.finished(name)

        with ThreadPoolExecutor(len(self._steps) + 1, thread_name_prefix="step") as pool:
            futures = {SAMPLES: pool.submit(make, SAMPLES, {})}
            for name, step in self._steps.items():
                futures[name] = pool.submit(
                    make, name, {need: futures[need] for need in step.needs}
                )
            try:
                _wait_for_all(futures.values())
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self._builder.close()

    def _make(self, name: str, inputs: Mapping[str, Artifact]) -> Artifact:
        """The table of a step, reused or made from `inputs`, the tables of the steps it needs."""
        started = time.monotonic()
        step = self._steps.get(name)
        provenance = self._step_provenance(step, inputs) if step else self._samples_provenance()
        edits = self._edits.of(step) if step else []
        with self._turn(name, provenance.fingerprint):
            result = self._reused(name, provenance, started, record=not edits)
            if result is None:
                artifact, reused_samples = self._build(step, provenance, inputs)
                seconds = time.monotonic() - started
                result = StepResult(name, artifact, False, seconds, reused_samples)
                if not edits:
                    self._record(result)
            if step and edits:
                result = self._corrected(step, result, provenance, edits, started)
        if step is None and self._readers:
            detect_languages(self._store, result.artifact, self._stop)
        self.results[name] = result
        self._observer.step_finished(result)
        return result.artifact

    @contextmanager
    def _turn(self, name: str, fingerprint: str) -> Iterator[None]:
        """The turn of a step among those that compute the same table."""
        lock = self._locks[fingerprint]
        if not lock.acquire(blocking=False):
            # The step that has the turn must not wait for the questions of this one.
            self._toolbox.finished(name)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _build(
        self, step: Step | None, provenance: Provenance, inputs: Mapping[str, Artifact]
    ) -> tuple[Artifact, int]:
        if step is None:
            return self._builder.build_samples(provenance), 0
        return self._builder.build(step, provenance, inputs)

    def _lend(self, step: Step) -> StepTools:
        part_made = partial(self._toolbox.part_made, step.name)
        in_batches = self._toolbox.asks_in_batches(step)
        return StepTools(self._toolbox.lend(step), in_batches, part_made)

    def _samples_provenance(self) -> Provenance:
        key = samples_fingerprint(self._samples.digest)
        settings = {"mapping": dict(self._samples.mapping)}
        recipe = content_key("recipe", SAMPLES)
        return Provenance(self._run_id, key, recipe, {}, SAMPLES, 1, settings, {})

    def _step_provenance(self, step: Step, inputs: Mapping[str, Artifact]) -> Provenance:
        stage = step.stage
        digests = {need: artifact.digest for need, artifact in inputs.items()}
        tools = self._toolbox.identities(step)
        return Provenance(
            self._run_id,
            step_fingerprint(stage, step.inputs, digests, tools),
            step_recipe(stage, tools),
            step.collect(lambda _, need: inputs[need].artifact_id),
            stage.use,
            stage.version,
            stage.model_dump(mode="json"),
            tools,
            plugin_facts(stage),
        )

    def _corrected(
        self,
        step: Step,
        base: StepResult,
        provenance: Provenance,
        edits: Sequence[Edit],
        started: float,
    ) -> StepResult:
        """The table of a step with the corrections people made applied to it."""
        table = CorrectedTable(step.stage.makes, base.artifact, edits)
        with self._store.reading() as connection:
            found = find_artifact(connection, table.fingerprint)
        artifact = found or make_corrected(
            self._store, table, provenance, lambda: self._samples.shards(SHARD)
        )
        seconds = time.monotonic() - started
        result = StepResult(step.name, artifact, found is not None, seconds, base.reused_samples)
        self._record(result)
        return result

    def _reused(
        self, name: str, provenance: Provenance, started: float, *, record: bool
    ) -> StepResult | None:
        """The table in the store, if there is one; recorded for this run if `record` says so."""
        if name in self._again:
            return None
        with self._store.writing() as connection:
            artifact = find_artifact(connection, provenance.fingerprint)
            if artifact is None:
                return None
            result = StepResult(name, artifact, True, time.monotonic() - started)
            if record:
                self._record(result, connection)
        return result

    def _record(
        self, result: StepResult, connection: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        if connection is None:
            with self._store.writing() as own:
                self._record(result, own)
            return
        runs.record_step(
            connection,
            self._run_id,
            step=result.step,
            position=self._position[result.step],
            artifact=result.artifact,
            reused=result.reused,
            seconds=result.seconds,
        )
        record_readers(connection, self._run_id, self._readers.get(result.step, ()))


def run_interruptibly(work: Callable[[], Result], stop: threading.Event) -> Result:
    """Call `work` in a thread and return its result.

    On Ctrl-C, and when the wait ends with another error, `stop` is set and `work` ends in order:
    replies that are on their way are still recorded.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="work") as pool:
        future = pool.submit(work)
        try:
            _wait_for_all([future])
            return future.result()
        except BaseException:
            stop.set()
            raise


@contextmanager
def time_limit(limit: timedelta | None, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when the block takes longer than `limit`.

    The `StoppedError` that follows becomes a `RunTimeoutError`. None is no limit.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        stop.set()

    timer = threading.Timer(limit.total_seconds(), end) if limit is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    except StoppedError:
        if not late.is_set():
            raise
        message = f"the run took longer than its timeout of {limit}; finished work is kept"
        raise RunTimeoutError(message) from None
    finally:
        if timer is not None:
            timer.cancel()


GRACE: Final = timedelta(minutes=1)
"""The time that a run whose time limit is over has to end in order."""


@contextmanager
def process_time_limit(limit: timedelta | None) -> Iterator[None]:
    """End this process when the block goes on for `GRACE` after the time limit.

    Code of a plugin may never return, and Python cannot end a thread. The exit code is 8; the store
    and the ledger lose nothing, and the next run records this one as killed. For processes that
    are claimflow's own.
    """

    def end() -> None:
        late = f"the run took longer than its timeout of {limit} and did not stop in {GRACE} more"
        text = f"claimflow: failed: {late}; finished work is kept; run again to continue\n"
        os.write(2, text.encode())
        os._exit(8)

    timer = threading.Timer((limit + GRACE).total_seconds(), end) if limit is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _wait_for_all(futures: Iterable[Future[Any]]) -> None:
    """Wait until all are done; raises the error of one of them as soon as it occurs.

    A `JudgeError` is raised when all are done, and without one a `PendingError`: other steps may
    still submit batches.
    """
    pending = set(futures)
    unusable: JudgeError | None = None
    waiting: PendingError | None = None
    while pending:
        # Not without a timeout: the Ctrl-C handler of Polars does not interrupt a wait.
        done, pending = wait(pending, _POLL_SECONDS, FIRST_EXCEPTION)
        for future in done:
            try:
                future.result()
            except JudgeError as error:
                unusable = unusable or error
            except PendingError as error:
                waiting = waiting or error
    failure = unusable or waiting
    if failure is not None:
        raise failure
