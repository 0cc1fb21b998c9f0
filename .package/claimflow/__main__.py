"""`python -m claimflow`: the command line."""

import sys

from claimflow.flows.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
