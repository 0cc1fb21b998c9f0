"""`claimflow serve`: run the pipelines of a schedules file when they are due."""

import sys
from argparse import Namespace
from contextlib import ExitStack

from claimflow.flows.commands.schedules import print_found, print_limits, print_schedules
from claimflow.flows.orchestration.local_server import HOME, is_configured, local_server, reached
from claimflow.flows.pipeline.schedules import read_schedules


def main(options: Namespace) -> int:
    """Serve until stopped, by a Prefect server of this folder where none is configured."""
    scheduled, limits = read_schedules(options.schedules)
    with ExitStack() as stack:
        url = None
        if not is_configured():
            _say("no Prefect API is configured: starting a server here, which takes a moment")
            url = stack.enter_context(local_server())
            _say(f"Prefect server: {url} (data and log in {HOME})")
        # Prefect takes seconds to import, and reads which server it is to use.
        from claimflow.flows.orchestration import deployments
        from claimflow.flows.orchestration import shared_limits as shared

        stack.enter_context(reached("start that server, or unset it to have one of your own"))
        client = stack.enter_context(deployments.api(f"{url}/api" if url else None))
        print_found(deployments.settle(client, options.schedules, scheduled))
        print_schedules(scheduled)
        shared.register_limits(client, limits)
        print_limits(limits)
        _say(
            "serving until Ctrl-C; under systemd it goes on for good: see flows/README.md, Nightly"
        )
        deployments.serve(client, options.schedules, scheduled)
    return 0


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
