"""`claimflow run`: evaluate, then show what was found."""

import os
import sys
from argparse import Namespace
from pathlib import Path

from flows.commands.answers import counted
from flows.commands.asked import asked_for
from flows.commands.progress import watching
from flows.commands.report import print_report
from flows.commands.stores import remember_store
from flows.engine.choosing import choose
from flows.engine.errors import Fault, InputError
from flows.engine.execute import execute, open_store, recorded
from flows.engine.prepare import Prepared, prepare
from flows.engine.rerun import Rerun


def main(options: Namespace) -> int:
    """Run a pipeline; returns what `print_report` makes of it."""
    rerun = asked_for(options)
    prepared = prepare(options.config, limit=options.limit, rerun=rerun, store=options.store)
    store = open_store(prepared, options.store)
    choice = choose(prepared, store, rerun)
    if choice.clean is not None:
        print(choice.nothing())
        return 0
    if options.prefect or _prefect_is_configured():
        run_id = _tracked(options, rerun, str(store.path))
        remember_store(store)
    else:
        _say_mapping(prepared)
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


def _tracked(options: Namespace, rerun: Rerun, store: str) -> str:
    # Prefect takes seconds to import, so only a run that it tracks does.
    from flows.evaluate import evaluate

    try:
        return evaluate(
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
    except RuntimeError as error:
        if "reach API" not in str(error):
            raise
        right = "start one with `prefect server start`, or unset it to run without Prefect"
        what = "no Prefect server answers there"
        raise InputError([Fault("PREFECT_API_URL", what, right)]) from error


def _prefect_is_configured() -> bool:
    """Whether the environment or a Prefect profile names an API.

    Prefect is asked only where a profile exists, since asking means importing it.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    if not profiles.is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())
