"""What the options of a command ask for."""

from argparse import Namespace

from claimflow.flows.pipeline.rerun import Rerun


def asked_for(options: Namespace) -> Rerun:
    """What of a pipeline is to be run; `options` are those of `rerun_options`."""
    return Rerun(
        tuple(options.again),
        options.fresh,
        tuple(options.only),
        options.from_step,
        options.failed,
        options.samples,
    )
