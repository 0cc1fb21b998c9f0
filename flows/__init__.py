"""When, where and how stages run: command line, Prefect, runner, judges, store."""

from importlib.metadata import version
from typing import Final

__version__: Final = version("claimflow")
"""The installed version."""
