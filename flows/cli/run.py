"""`claimflow run`: evaluate a pipeline and print the results."""

import shlex
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from claimflow.flows.cli.data_file import (
    add_pipeline_or_data,
    arguments_of,
    faults_of_options,
    prepare_file,
)
from claimflow.flows.cli.options import (
    Commands,
    add_command,
    add_redact_option,
    add_rerun_options,
    duration,
    wait,
)
from claimflow.flows.cli.output import write_message
from claimflow.flows.cli.stores import remember_store
from claimflow.flows.errors import (
    Fault,
    InputError,
    JudgeError,
    PendingError,
    StoreError,
    WorkersError,
)
from claimflow.flows.files import is_file

if TYPE_CHECKING:
    from claimflow.flows.api import RunResult
    from claimflow.flows.pipeline.rerun import Rerun
    from claimflow.flows.runner.prepare import Prepared
    from claimflow.flows.store.store import Store


def add(commands: Commands) -> None:
    """Declare `run`."""
    parser = add_command(
        commands,
        "run",
        run,
        "evaluate a pipeline: make every table that cannot be reused",
        example="configs/quickstart.yaml --limit 5",
    )
    add_pipeline_or_data(parser).add_argument(
        "--save", type=Path, metavar="FILE", help="write the pipeline to this new YAML file"
    )
    add_rerun_options(parser)
    parser.add_argument(
        "--prefect",
        action="store_true",
        help="track the run in Prefect even if no Prefect API is configured",
    )
    add_redact_option(parser)
    parser.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        help="end the run after this time, in seconds or as in 2h; finished work is kept",
    )
    parser.add_argument(
        "--call-timeout",
        type=duration,
        metavar="TIME",
        help="give up a model call, with its retries, after this time",
    )
    parser.add_argument(
        "--batch",
        action="store_true",
        help="send the calls of judges in batches: half the price, answered within a day",
    )
    parser.add_argument(
        "--batch-wait",
        type=wait,
        metavar="TIME",
        help="wait for batches so long (26h), with 0 not at all; then end with exit code 9, run "
        "again to collect",
    )


def run(options: Namespace) -> int:
    """Run a pipeline and print its results; returns the exit code of its `RunDocument`.

    Where there is nothing to do, it is that of the run that still stands.
    """
    from claimflow.flows.api import run_pipeline
    from claimflow.flows.cli.progress import progress_observer
    from claimflow.flows.orchestration.local_server import is_configured
    from claimflow.flows.pipeline.rerun import Rerun
    from claimflow.flows.report.run_document import RunDocument
    from claimflow.flows.report.terminal import Terminal, print_run
    from claimflow.flows.runner.data_file import is_data_file
    from claimflow.flows.runner.prepare import in_batches
    from claimflow.flows.runner.run import process_time_limit

    rerun = Rerun.of(options)
    if options.prefect and is_data_file(options.config) and not options.save:
        what = f"Prefect runs pipeline files, and {options.config} is a data file"
        raise InputError([Fault("--prefect", what, "add --save FILE")])
    prepared, file = prepare_file(options, rerun)
    if options.batch:
        prepared = in_batches(prepared)
    _tell_migration(prepared.store)
    in_prefect = options.prefect or is_configured()
    if in_prefect and file is None:
        write_message("this run is not tracked in Prefect, which needs a file: add --save FILE")
    if in_prefect and file is not None:
        result = _run_in_prefect(options, file, rerun, prepared)
    else:
        with (
            progress_observer(prepared.store) as observer,
            faults_of_options(options),
            process_time_limit(options.timeout),
            _stopped_by_signals(),
        ):
            result = run_pipeline(
                prepared,
                rerun=rerun,
                redact=options.redact,
                timeout=options.timeout,
                call_timeout=options.call_timeout,
                observer=observer,
                batch_wait=options.batch_wait,
            )
    if result.nothing_to_do:
        return _print_nothing_to_do(result)
    document = RunDocument(result.store, result.run_id)
    named = shlex.quote(str(file)) if file else arguments_of(options)
    store = f" --store {shlex.quote(str(options.store))}" if options.store else ""
    print_run(Terminal(), document, plan=named + store)
    return document.exit_code


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM, and the SIGHUP of a terminal that closes, stop the block as Ctrl-C does.

    Not where they are handled or ignored already, as by nohup.
    """
    # Windows has no SIGHUP. Only the main thread may set handlers.
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main = threading.current_thread() is threading.main_thread()
    ours = [one for one in known if in_main and signal.getsignal(one) is signal.SIG_DFL]
    for one in ours:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)


def _tell_migration(store: "Store") -> None:
    """Say that the run brings an older store to the schema of this version."""
    from claimflow.flows.store.schema import SCHEMA_VERSION
    from claimflow.flows.store.store import store_version

    version = store_version(store) if is_file(store.path) else None
    if version is not None and version < SCHEMA_VERSION:
        told = f"schema version {version}, which this run brings to {SCHEMA_VERSION}"
        write_message(f"{store.path}: {told}")


def _print_nothing_to_do(result: "RunResult") -> int:
    """Say why nothing is done, and how the last run ended; returns the exit code of that.

    A repetition without anything new is no better than what it repeats.
    """
    from claimflow.flows.report.run_document import RunDocument

    print(result.nothing_to_do)
    if not result.run_id:
        return 0
    last = RunDocument(result.store, result.run_id)
    if last.standing:
        print(f"{last.standing}; see it by claimflow show {last.run_id}")
    return last.exit_code


def _run_in_prefect(
    options: Namespace, file: Path, rerun: "Rerun", prepared: "Prepared"
) -> "RunResult":
    from claimflow.flows.api import RunResult
    from claimflow.flows.orchestration.local_server import explain_unreachable
    from claimflow.flows.runner.embedded_models import fetch_models
    from claimflow.flows.runner.plan import choose
    from claimflow.flows.store.store import migrate

    # Prefect takes seconds to import and logs errors with a traceback: mistakes are found first.
    store = prepared.store
    migrate(store)
    choice = choose(fetch_models(prepared, write_message), store, rerun)
    if choice.nothing_to_do is not None:
        return RunResult(choice.looked_at, store, {}, choice.nothing_to_do)
    from claimflow.flows.orchestration.flow import FINISHED, evaluate

    finished: list[RunResult | PendingError] = []
    FINISHED.set(finished)
    try:
        with explain_unreachable(
            "start one with `prefect server start`, or unset it to run without Prefect"
        ):
            evaluate(
                str(file),
                store=str(store.path),
                limit=options.limit,
                redact=options.redact,
                timeout=_whole_seconds(options.timeout),
                call_timeout=_whole_seconds(options.call_timeout),
                batch=options.batch,
                batch_wait=_whole_seconds(options.batch_wait),
                **rerun._asdict(),
            )
    except (InputError, StoreError, JudgeError, WorkersError):
        raise
    except Exception:
        # A gate failed, or the server was lost: the run itself has finished.
        if not finished:
            raise
    remember_store(store)
    if isinstance(finished[0], PendingError):
        raise finished[0]
    return finished[0]


def _whole_seconds(limit: timedelta | None) -> int | None:
    return None if limit is None else int(limit.total_seconds())
