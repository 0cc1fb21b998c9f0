"""`claimflow deploy`: register the pipelines of a schedules file for workers."""

from argparse import Namespace

from claimflow.flows.commands.schedules import print_found, print_limits, print_schedules
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.orchestration.local_server import is_configured, reached
from claimflow.flows.pipeline.schedules import read_schedules


def main(options: Namespace) -> int:
    """Register the deployments and print how a worker is started."""
    scheduled, limits = read_schedules(options.schedules)
    if not is_configured():
        what = "no Prefect API is configured, and workers need one that stays"
        hint = "run `prefect server start` and set it to http://127.0.0.1:4200/api"
        raise InputError([Fault("PREFECT_API_URL", what, hint)])
    # Prefect takes seconds to import.
    from claimflow.flows.orchestration import deployments
    from claimflow.flows.orchestration import shared_limits as shared

    with reached("start that server with `prefect server start`"), deployments.api() as client:
        print_found(deployments.settle(client, options.schedules, scheduled))
        new = deployments.deploy(client, options.schedules, scheduled, pool=options.pool)
        print_schedules(scheduled)
        shared.register_limits(client, limits)
        print_limits(limits)
    pool = f"work pool {options.pool}{' (new)' if new else ''}"
    print(f"{pool}: runs wait for a worker, on each machine one")
    print(f"  prefect worker start --pool {options.pool}")
    return 0
