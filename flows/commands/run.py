"""`claimflow run`: evaluate, then show what was found."""

import sys
from argparse import Namespace
from functools import partial

from claimflow.flows.api import recorded
from claimflow.flows.commands.asked import asked_for
from claimflow.flows.commands.progress import watching
from claimflow.flows.commands.run_tables import print_report
from claimflow.flows.commands.stores import remember_store
from claimflow.flows.errors import InputError, JudgeError, StoreError, WorkersError
from claimflow.flows.orchestration.local_server import is_configured, reached
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.report.text import counted
from claimflow.flows.runner.embedded_models import fetched
from claimflow.flows.runner.execute import execute, open_store
from claimflow.flows.runner.plan import choose
from claimflow.flows.runner.prepare import Prepared, prepare


def main(options: Namespace) -> int:
    """Run a pipeline; returns what `print_report` makes of it."""
    rerun = asked_for(options)
    checked = prepare(options.config, limit=options.limit, rerun=rerun, store=options.store)
    prepared = fetched(checked, partial(print, file=sys.stderr, flush=True))
    store = open_store(prepared, options.store)
    choice = choose(prepared, store, rerun)
    if choice.clean is not None:
        print(choice.nothing())
        return 0
    if options.prefect or is_configured():
        run_id = _tracked(options, rerun, str(store.path))
        remember_store(store)
    else:
        _say_mapping(prepared)
        _say_unshared(prepared)
        with (
            watching(len(choice.steps) + 1) as watch,
            recorded(prepared, store, watch, choice=choice, redact=options.redact) as run,
        ):
            remember_store(store)
            execute(run)
        run_id = run.run_id
    return print_report(store, run_id, config=options.config)


def _say_mapping(prepared: Prepared) -> None:
    mapping = prepared.samples.mapping.items()
    renamed = [f"{field} from {column}" for field, column in mapping if field != column]
    how = f" ({', '.join(renamed)})" if renamed else ""
    print(f"{counted(prepared.samples.count, 'sample')}{how}", file=sys.stderr)


def _say_unshared(prepared: Prepared) -> None:
    for place, limit in prepared.pipeline.shared_limits().items():
        print(
            f"{place}: {limit} is shared by runs that Prefect tracks; this one keeps to its own "
            "pace (set PREFECT_API_URL to share it)",
            file=sys.stderr,
        )


def _tracked(options: Namespace, rerun: Rerun, store: str) -> str:
    # Prefect takes seconds to import, so only a run that it tracks does.
    from claimflow.flows.orchestration.flow import ENDED, evaluate

    ended: list[str] = []
    ENDED.set(ended)
    try:
        with reached("start one with `prefect server start`, or unset it to run without Prefect"):
            evaluate(
                str(options.config),
                store=store,
                limit=options.limit,
                again=list(rerun.again),
                fresh=rerun.fresh,
                only=list(rerun.only),
                from_step=rerun.from_step,
                failed=rerun.failed,
                samples=rerun.samples,
                redact=options.redact,
            )
    except (InputError, StoreError, JudgeError, WorkersError):
        raise
    except Exception:
        # A gate that failed, or a server that was lost: the run itself came to its end.
        if not ended:
            raise
    return ended[0]
