"""`claimflow version`."""

from argparse import Namespace

from claimflow.flows import __version__


def main(options: Namespace) -> int:
    """Print the version."""
    del options
    print(f"claimflow {__version__}")
    return 0
