"""`claimflow serve` and `claimflow deploy`: pipelines that run on a schedule."""

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from claimflow.flows.cli.options import Commands, add_command
from claimflow.flows.cli.output import write_message
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from claimflow.flows.orchestration.deployments import Repairs
    from claimflow.flows.pipeline.schedules import Scheduled, ScheduleFile, SharedLimit


def add(commands: Commands) -> None:
    """Declare `serve` and `deploy`."""
    parser = add_command(
        commands,
        "serve",
        serve,
        "run pipelines on schedule, in this process",
        example="configs/schedules.yaml",
    )
    _add_schedules(parser)

    parser = add_command(
        commands,
        "deploy",
        deploy,
        "run pipelines on schedule, in Prefect workers",
        example="configs/schedules.yaml --pool claimflow",
    )
    _add_schedules(parser)
    parser.add_argument(
        "--pool", default="claimflow", metavar="NAME", help="the work pool (default: claimflow)"
    )


def _add_schedules(parser: ArgumentParser) -> None:
    parser.add_argument(
        "schedules",
        nargs="?",
        type=Path,
        default=Path("configs/schedules.yaml"),
        metavar="FILE",
        help="a schedules file (default: configs/schedules.yaml)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="take over deployments and limits that another schedules file registered",
    )
    parser.add_argument(
        "--no-automations",
        action="store_true",
        help="print the Prefect automations as YAML instead of creating or updating them",
    )


def serve(options: Namespace) -> int:
    """Run due pipelines until stopped; starts a Prefect server if none is configured."""
    from claimflow.flows.orchestration.local_server import (
        HOME,
        explain_unreachable,
        is_configured,
        local_server,
    )
    from claimflow.flows.pipeline.schedules import read_schedules

    schedules = read_schedules(options.schedules)
    # Until Prefect's runner handles it. Otherwise the server that is started here would be left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        url = None
        if not is_configured():
            write_message(
                "no Prefect API is configured: starting a server here, which takes a moment"
            )
            url = stack.enter_context(local_server())
            write_message(f"Prefect server: {url} (data and log in {HOME})")
        # Only now: on import Prefect reads which server it is to use.
        from claimflow.flows.orchestration import deployments

        stack.enter_context(explain_unreachable("start that server, or unset it to start one here"))
        client = stack.enter_context(deployments.api(f"{url}/api" if url else None))
        _register(client, options, schedules)
        write_message(
            "serving until Ctrl-C; to keep it running under systemd see flows/guides/nightly.md"
        )
        deployments.serve(client, options.schedules, schedules.scheduled)
    return 0


def deploy(options: Namespace) -> int:
    """Register the deployments with Prefect and print how to start a worker."""
    from claimflow.flows.orchestration.local_server import explain_unreachable, is_configured
    from claimflow.flows.pipeline.schedules import read_schedules

    schedules = read_schedules(options.schedules)
    if not is_configured():
        what = "no Prefect API is configured, and workers need one that stays"
        hint = "run `prefect server start` and set it to http://127.0.0.1:4200/api"
        raise InputError([Fault("PREFECT_API_URL", what, hint)])
    from claimflow.flows.orchestration import deployments

    with (
        explain_unreachable("start that server with `prefect server start`"),
        deployments.api() as client,
    ):
        _register(client, options, schedules)
        file, scheduled = options.schedules, schedules.scheduled
        pool = deployments.deploy(client, file, scheduled, pool=options.pool)
    name = f"work pool {options.pool}{' (new)' if pool.new else ''}"
    if pool.type != "process":
        print(f"{name} is of type {pool.type}: claimflow and the files must be where its jobs run")
    if pool.paused:
        print(f"{name} is paused: no run starts until `prefect work-pool resume {options.pool}`")
    print(f"{name}: runs wait for a worker; start one on each machine")
    print(f"  prefect worker start --pool {options.pool}")
    return 0


def _register(client: "SyncPrefectClient", options: Namespace, schedules: "ScheduleFile") -> None:
    """Check names, repair what earlier processes left, register automations and limits."""
    from claimflow.flows.orchestration import automations, deployments
    from claimflow.flows.orchestration.shared_limits import register_limits

    file = options.schedules
    deployments.check_names(client, file, schedules, replace=options.replace)
    tag, block = deployments.file_tag(file), schedules.block
    if options.no_automations:
        summary = automations.automations_yaml(client, tag, block).rstrip()
    else:
        automations.register_automations(client, tag, block)
        sent = f"are sent by {block}" if block else "are sent nowhere: name a block under notify"
        summary = f"messages about runs that failed or are late {sent}"
    _print_repairs(deployments.repair(client, file, schedules.scheduled))
    _print_schedules(schedules.scheduled)
    announce_other_stores(schedules.scheduled)
    register_limits(client, schedules.limits)
    _print_limits(schedules.limits)
    print(summary, flush=True)


def _print_schedules(scheduled: "Iterable[Scheduled]") -> None:
    """Print for each deployment its name, its pipeline and when it runs."""
    for name, _, written in scheduled:
        if written.cron is not None:
            when = f"cron {written.cron} in {written.timezone or 'UTC'}"
        else:
            when = f"every {written.interval}"
        rules = f"overlap {written.overlap}, missed {written.missed}"
        print(f"evaluate/{name}: {written.pipeline}, {when}; {rules}", flush=True)


def announce_other_stores(scheduled: "Iterable[Scheduled]") -> None:
    """Say on standard error which deployments write to another store than commands here read."""
    from claimflow.flows.cli.stores import last_store
    from claimflow.flows.files import resolved
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.yaml_source import load_yaml

    last = last_store()
    for one in scheduled:
        pipeline = build_pipeline(load_yaml(Path(one.parameters["config"])))
        store = resolved(Path(one.parameters.get("store") or pipeline.store))
        if last not in (None, store):
            write_message(
                f"evaluate/{one.name} writes to {store}; commands here without --store read {last}"
            )


def _print_limits(limits: "Mapping[str, SharedLimit]") -> None:
    for name, limit in limits.items():
        print(f"limit {name}: {limit.rpm:,} requests a minute, for all runs together", flush=True)


def _print_repairs(found: "Repairs") -> None:
    """Print which runs were marked as crashed or left out, and which deployments are paused."""
    for orphan in found.orphans:
        print(f"run {orphan.name} is marked as crashed: {orphan.reason}")
    for name in found.missed:
        print(f"run {name} was missed and is left out")
    for name in found.removed:
        again = f"`prefect deployment delete evaluate/{name}` removes it"
        print(f"evaluate/{name} is no longer in the file: it is paused; {again}")
    if found.moved:
        names = ", ".join(f"evaluate/{name}" for name in found.moved)
        print(f"registered again, because another version of claimflow registered them: {names}")
