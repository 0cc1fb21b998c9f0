"""The Python interface: `evaluate` in one call, `run_pipeline` for what `prepare` has checked."""

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import polars as pl

from claimflow.flows.errors import ArgumentKind, Fault, InputError, kind_faults, one_of
from claimflow.flows.files import path_exists, path_fault
from claimflow.flows.judge.ledger_writer import recover_journals
from claimflow.flows.judge.provider import JudgeProvider, judge_settings
from claimflow.flows.judge.rate_limit import OpenSharedLimiter, no_shared_limit
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.shared_ledger import SharedLedger, open_shared_ledger
from claimflow.flows.pipeline.compose import compose, metrics_for
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.schema import EarlierTurns
from claimflow.flows.pipeline.yaml_source import YamlSource, source_from
from claimflow.flows.quality.failed_rows import failure_reason
from claimflow.flows.quality.gates import evaluate_gates
from claimflow.flows.result import Result
from claimflow.flows.runner.canaries import judge_canaries
from claimflow.flows.runner.data_file import no_metric_fault
from claimflow.flows.runner.embedded_models import fetch_models
from claimflow.flows.runner.observer import RunObserver, StepResult
from claimflow.flows.runner.plan import choose, coverage
from claimflow.flows.runner.prepare import SHARD, Prepared, check_limit, pipeline_source, prepare
from claimflow.flows.runner.readiness import check_ready
from claimflow.flows.runner.run import Run, run_context, run_interruptibly, time_limit
from claimflow.flows.runner.workers import open_workers
from claimflow.flows.samples.memory import samples_from
from claimflow.flows.samples.reader import SampleSource
from claimflow.flows.store import runs
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.seen_samples import remember_seen
from claimflow.flows.store.store import Store, migrate


def evaluate(
    answers: Any = None,
    *,
    metrics: Iterable[Any] | None = None,
    pipeline: str | Path | Mapping[str, Any] | None = None,
    judge: str | JudgeProvider | Mapping[str, Any] | None = None,
    store: str | Path | None = None,
    limit: int | None = None,
    budget_usd: float | None = None,
    gates: Mapping[str, Any] | None = None,
    baseline: Result | str | None = None,
    rename: Mapping[str, str] | None = None,
    contexts_separator: str | None = None,
    earlier_turns: EarlierTurns | None = None,
    slices: Iterable[str] = (),
    name: str | None = None,
    skip_unusable: bool = False,
    progress: bool | RunObserver | None = None,
) -> Result:
    """Evaluate answers claim by claim.

    `answers` is a table of Polars, pandas or Arrow, a list of dicts, a `Dataset` of Hugging Face,
    an `EvaluationDataset` of ragas, or the path of a file. Its columns are recognised by the names
    that ragas, DeepEval, continuous-eval and RAGChecker use, or by `rename`: column -> field.
    Contexts that are one text are split at `contexts_separator`. A list of messages gives a sample
    for each turn; with `earlier_turns="contexts"` the turns before it are contexts too, which can
    support claims, while `"history"`, the default, has them only to understand the question.

    `metrics` are names such as `"faithfulness"`, mappings with `use` and settings, or functions
    decorated with `claimflow.metric`; the steps that they need are added. By default they are those
    of the quickstart that the fields of the answers allow; `Result.left_out` has the others. A name
    alone has the settings of the quickstart, a mapping the defaults of the stage but for its own.
    `pipeline`, the path of a YAML file or what such a file holds, replaces `metrics`; its own
    samples are evaluated where there are no `answers`.

    `judge` is the language model, as litellm names it, a `JudgeProvider` of your own, or a mapping
    like `judge:` in YAML, whose `provider` may be such an object; None is the judge that claimflow
    carries, or that of the pipeline. `budget_usd` ends the run before its
    calls cost more. `store` is a DuckDB file, in which a later call finds the replies and tables of
    an earlier one; None is a temporary file, which the results of this process share, and which
    goes with the last of them, or the store of the pipeline.

    `limit` takes the first answers only. `gates` are limits on means as in YAML, such as
    `{"faithfulness": {"min": 0.8}}`. `baseline` is what `Result.diff` compares with: a result, or a
    run of the same store by id, tag, `latest` or `previous`. `slices` are metadata fields to
    summarise by, `name` is that of the pipeline. With `skip_unusable`, answers that cannot be used
    are left out and counted in `audit.runs`; without it they are errors. `progress` is shown in
    notebooks; True shows it on standard error too, False nowhere, and a `RunObserver` receives the
    events.

    Raises `InputError` with every mistake in the arguments and the answers, before anything is
    asked or written, and besides that what `run_pipeline` raises. Rows that fail are no error:
    `Result.failures` counts them. Nothing is printed: `Result.warnings` has what may be a mistake.
    """
    _check_fork()
    if isinstance(slices, str):
        slices = [slices]
    _check_kinds(
        metrics=metrics,
        pipeline=pipeline,
        judge=judge,
        store=store,
        limit=limit,
        budget_usd=budget_usd,
        gates=gates,
        baseline=baseline,
        rename=rename,
        contexts_separator=contexts_separator,
        earlier_turns=earlier_turns,
        slices=slices,
        name=name,
        skip_unusable=skip_unusable,
        progress=progress,
    )
    if pipeline is None:
        if answers is None:
            hint = "give answers, or a pipeline with samples"
            raise InputError([Fault("answers", "are missing", hint)])
        answers, source, left_out = _composed(
            answers,
            metrics,
            slices,
            rename=rename,
            contexts_separator=contexts_separator,
            earlier_turns=earlier_turns or "history",
            limit=limit,
            judged=judge is not None,
            skip_unusable=skip_unusable,
        )
        named: dict[str, Any] = {"name": name or "evaluation"}
    else:
        _refuse_beside_pipeline(metrics=metrics, slices=list(slices))
        source, left_out = pipeline_source(pipeline), {}
        named = {"name": name} if name else {}
        given = {
            "rename": rename,
            "contexts_separator": contexts_separator,
            "earlier_turns": earlier_turns,
        }
        if changed := {key: value for key, value in given.items() if value is not None}:
            named["samples"] = source.section("samples") | changed
    if judge is not None:
        named["judge"] = judge_settings(judge)
    if gates is not None:
        named["gates"] = gates
    file = None
    if store is not None:
        named["store"] = Path(store).resolve()
    elif not isinstance(source.value, dict) or "store" not in source.value:
        file = _shared_store(None)
        named |= {"store": file.path, "read_copy": False}
    source = _with_budget(source.with_sections(named), budget_usd)
    rerun = Rerun(skip_unusable=skip_unusable)
    warned: list[Fault] = []
    prepared = prepare(source, answers=answers, limit=limit, rerun=rerun, warn=warned.append)
    file = file or _shared_store(prepared.store.path)
    before = None if baseline is None else _baseline_run(baseline, file, prepared.pipeline.name)
    from claimflow.flows.report.notebook import progress_observer

    with progress_observer(progress) as observer:
        ran = run_pipeline(prepared, file, observer=observer)
    if ran.nothing_to_do is not None:
        hint = "wait for more, or change select"
        raise InputError([Fault("samples", ran.nothing_to_do, hint)])
    ids = [shard["sample_id"] for shard in prepared.samples.shards(SHARD)]
    order = pl.concat(ids) if ids else None
    return Result(
        file,
        ran.run_id,
        left_out=left_out,
        baseline=before,
        sample_ids=order,
        warnings=map(str, warned),
    )


_process: int | None = None
"""The process that called `evaluate` first."""


def _check_fork() -> None:
    """Raise `InputError` in a child that was forked after `evaluate`: Polars would never return."""
    global _process  # noqa: PLW0603
    _process = _process or os.getpid()
    if _process != os.getpid():
        what = "this process was forked from one that had called it, which Polars does not survive"
        hint = 'start it with multiprocessing.get_context("spawn")'
        raise InputError([Fault("evaluate", what, hint)])


_KINDS: Final[dict[str, ArgumentKind]] = {
    "metrics": (Iterable, "a list of metrics"),
    "pipeline": (
        (str, os.PathLike, Mapping),
        "the path of a YAML file, or what it holds as a dict",
    ),
    "judge": ((str, Mapping, JudgeProvider), "the name of a model, a dict, or a JudgeProvider"),
    "limit": (int, "a number of samples"),
    "budget_usd": ((int, float), "a number of US dollars"),
    "gates": (Mapping, 'a dict such as {"faithfulness": {"min": 0.8}}'),
    "baseline": ((Result, str), "a result, or the id or tag of a run"),
    "rename": (Mapping, "a dict of column: field"),
    "contexts_separator": (str, "the text between two contexts"),
    "earlier_turns": (str, "'history' or 'contexts'"),
    "slices": (Iterable, "a list of metadata fields"),
    "name": (str, "the name of the pipeline as text"),
    "skip_unusable": (bool, "True or False"),
    "progress": ((bool, RunObserver), "True, False or a RunObserver"),
}


def _check_kinds(*, store: Any, rename: Any, earlier_turns: Any, **given: Any) -> None:
    """Raise `InputError` for arguments that are something else than their kind."""
    given |= {"rename": rename, "earlier_turns": earlier_turns}
    faults = kind_faults({name: one for name, one in given.items() if one is not None}, _KINDS)
    if isinstance(earlier_turns, str) and earlier_turns not in get_args(EarlierTurns):
        hint = one_of(earlier_turns, get_args(EarlierTurns))
        faults.append(Fault("earlier_turns", f"{earlier_turns!r} is unknown", hint))
    if store is not None and (
        fault := path_fault("store", store, "give the path of a DuckDB file")
    ):
        faults.append(fault)
    pairs = rename.items() if isinstance(rename, Mapping) else ()
    faults += [
        Fault(f"rename.{column}", "is no pair of texts", "write {'COLUMN': 'FIELD'}")
        for column, field in pairs
        if not (isinstance(column, str) and isinstance(field, str))
    ]
    if faults:
        raise InputError(faults)


def _composed(
    answers: Any,
    metrics: Iterable[Any] | None,
    slices: Iterable[str],
    *,
    rename: Mapping[str, str] | None,
    contexts_separator: str | None,
    earlier_turns: EarlierTurns,
    limit: int | None,
    judged: bool,
    skip_unusable: bool,
) -> tuple[SampleSource, YamlSource, dict[str, str]]:
    """The samples, a pipeline with the metrics, and the usual metrics that were left out."""
    check_limit(limit)
    samples = samples_from(
        answers,
        rename=rename,
        contexts_separator=contexts_separator,
        earlier_turns=earlier_turns,
        limit=limit,
        skip_unusable=skip_unusable,
    )
    faults = list(samples.faults)
    left_out: dict[str, str] = {}
    steps: dict[str, Any] = {}
    try:
        if metrics is None and not faults:
            metrics, left_out = metrics_for(samples.present)
            if not metrics:
                write = "rename={{{!r}: {!r}}}".format
                raise InputError([no_metric_fault("answers", samples, write)])
        if isinstance(metrics, str):
            metrics = [metrics]
        if metrics is not None:
            talks = "history" in samples.metadata
            steps = compose(metrics, slices=slices, judged=judged, talks=talks, folder=Path.cwd())
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(faults)
    wanted = {
        "path": "",
        "rename": rename or {},
        "contexts_separator": contexts_separator,
        "earlier_turns": earlier_turns,
    }
    values = {"name": "", "samples": wanted}
    source = source_from(values, Path.cwd(), name="evaluate").with_sections({"steps": steps})
    return samples, source, left_out


def _refuse_beside_pipeline(**given: Any) -> None:
    """Raise `InputError` for arguments that a pipeline replaces."""
    hint = "write them in the pipeline, or leave it out"
    faults = [
        Fault(name, "cannot be beside a pipeline", hint) for name, value in given.items() if value
    ]
    if faults:
        raise InputError(faults)


def _with_budget(source: YamlSource, budget: float | None) -> YamlSource:
    """The pipeline with a budget for the model behind an endpoint, where it has one."""
    judges, judge, embedder = map(source.section, ("judges", "judge", "embedder"))
    paid = [f"judges.{name}" for name in judges] + (["judge"] if judge else [])
    if embedder.get("provider", "onnx") != "onnx":
        paid.append("embedder")
    if budget is not None and not budget > 0:
        raise InputError([Fault("budget_usd", f"{budget} is not above 0", "leave it out")])
    if budget is None or not paid:
        return source
    if len(paid) > 1:
        what = f"is for one model, and the pipeline has {' and '.join(paid)}"
        raise InputError([Fault("budget_usd", what, "write budget_usd of each in the pipeline")])
    section, _, name = paid[0].partition(".")
    limited = {**source.section(section), "budget_usd": budget}
    if name:
        limited = {name: {**judges[name], "budget_usd": budget}}
    return source.with_sections({section: limited})


def _baseline_run(baseline: Result | str, store: Store, pipeline: str) -> str:
    """The run to compare with, which must be in the store."""
    if isinstance(baseline, str):
        if not path_exists(store.path):
            what, hint = (
                f"there is no run {baseline!r} in a new store",
                "name the store of that run",
            )
            raise InputError([Fault("baseline", what, hint)])
        migrate(store)
        return chosen_run(store, baseline, pipeline=pipeline)
    if baseline.store != store.path:
        what = f"is in another store, {baseline.store}"
        raise InputError([Fault("baseline", what, f"write store={str(baseline.store)!r}")])
    return baseline.run_id


_STORES: Final[weakref.WeakValueDictionary[tuple[int, Path | None], Store]] = (
    weakref.WeakValueDictionary()
)
"""The stores that results of a process use, by process id and path; None is the temporary one."""

_OPENING: Final = threading.Lock()


def _shared_store(path: Path | None) -> Store:
    """The store at a path, or the temporary store.

    There is one object for all threads of the process, so that they pass the open file on.
    """
    with _OPENING:
        found = _STORES.get((os.getpid(), path))
        if found is None:
            found = _temporary_store() if path is None else Store(path)
            _STORES[os.getpid(), path] = found
        return found


def _temporary_store() -> Store:
    """A store in a folder of its own, which is removed with the last reference to the store."""
    folder = tempfile.mkdtemp(prefix="claimflow-")
    store = Store(Path(folder).resolve() / "evaluation.duckdb")
    weakref.finalize(store, _remove, folder, os.getpid())
    return store


def _remove(folder: str, process: int) -> None:
    """Remove a folder of this process; a forked process leaves it to its parent."""
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


class RunResult(NamedTuple):
    """A finished run: its id, the store it is in, and the result of each step by name.

    `failed` says why the run failed by `fail_when` of its pipeline, None where it did not.

    Where a rerun of failed steps finds that nothing failed, or the pipeline selects no samples, no
    step is run: `nothing_to_do` says so, and `run_id` is the run that was looked at, or the last
    whole one. It is empty where there is none.
    """

    run_id: str
    store: Store
    steps: Mapping[str, StepResult]
    nothing_to_do: str | None = None
    failed: str | None = None


BATCH_WAIT: Final = timedelta(hours=26)
"""How long a run waits for the batches of a provider, which promises them within 24 hours."""


@contextmanager
def _shared_ledger(
    pipeline: Pipeline, ledger: Ledger, stop: threading.Event, observer: RunObserver
) -> Iterator[SharedLedger | None]:
    """The ledger that a pipeline shares, if it does; what killed runs were answered is saved."""
    place = pipeline.source.place("ledger")
    with open_shared_ledger(pipeline.ledger, place, stop) as shared:
        recover_journals(ledger, shared)
        yield shared
        if shared is not None and (summary := shared.summary()):
            observer.message(summary)


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
    batch_wait: timedelta | None = None,
) -> RunResult:
    """Run a pipeline: reuse the tables that are in `store`, make the others, record the run.

    `store` is that of `prepared` if None. `rerun` selects steps and what to make anew; give
    `prepare` the same. With `redact` the record of model calls keeps hashes instead of texts. The
    run ends when its steps take longer than `timeout`; a call of a model, with all its attempts, is
    given up after `call_timeout`, and after four times the `timeout` of its endpoint in any case.
    `observer` receives the events of the run. `open_shared_limiter` opens the rate limits that
    several runs share. Setting `stop` from another thread ends the run within moments. Replies of
    batches are awaited up to `batch_wait`, by default 26 hours; then the run ends, and the next one
    collects them. With a `batch_wait` of 0 the run submits what it can, and ends.

    Raises `InputError` where an endpoint that may be asked lacks a key, or a price that its
    budget needs, where a step that is to be reused is not in the store, and where the workers
    or the shared ledger cannot be reached; `StoreFullError` where the disk has too little space;
    `StoppedError` when the run was stopped; `RunTimeoutError` when it took too long; `PendingError`
    when a batch had not ended in time; `JudgeError` and `StoreError` when a model, the shared
    ledger or the store fails. The end of the run is recorded in any case.
    """
    observer, stop = observer or RunObserver(), stop or threading.Event()
    prepared = fetch_models(prepared, observer.message)
    pipeline = prepared.pipeline
    store = store or prepared.store
    rerun = rerun or Rerun()
    migrate(store)
    choice = choose(prepared, store, rerun)
    if choice.nothing_to_do is not None:
        return RunResult(choice.looked_at, store, {}, choice.nothing_to_do)
    observer.run_prepared(prepared)
    check_ready(prepared, store, choice)

    def session(run_id: str) -> Session:
        opened = open_session(run_id=run_id, shared=shared)
        opened.allow_batches(BATCH_WAIT if batch_wait is None else batch_wait, observer.message)
        return opened

    ledger = Ledger(store)
    open_session = partial(
        Session,
        ledger,
        stop=stop,
        redact=redact,
        call_timeout=call_timeout,
        answered=observer.questions_answered,
        fresh=dict.fromkeys(choice.fresh, choice.fresh_since),
        open_shared_limiter=open_shared_limiter,
    )
    steps = [step.name for step in choice.steps]
    place = partial(pipeline.source.place, "workers")
    stages = [step.stage for step in choice.steps]
    with (
        _shared_ledger(pipeline, ledger, stop, observer) as shared,
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
            toolbox.ask_at_once()
            trying = partial(judge_canaries, prepared, store, toolbox, run_id, choice.wanted)
            run_interruptibly(trying, stop)
            if pipeline.fail_when is not None:
                end.reason = failure_reason(store, run_id, pipeline.fail_when)
                end.status = "failed" if end.reason else "done"
        if prepared.seen is not None and end.status == "done":
            # After its end is recorded: of a run that is killed in between, the next one reads the
            # same samples again, whose tables are in the store.
            remember_seen(store, pipeline.name, run_id, prepared.seen)
        evaluate_gates(store, run_id, pipeline.gates)
    return RunResult(run_id, store, run.results, failed=end.reason)
