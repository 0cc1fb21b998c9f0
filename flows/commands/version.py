"""`claimflow version`."""

from argparse import Namespace

from claimflow.flows.version import VERSION


def main(options: Namespace) -> int:
    """Print the version."""
    del options
    print(f"claimflow {VERSION}")
    return 0
