"""When, where and how stages run: command line, Prefect, runner, judges, store."""

from typing import Final

__version__: Final = "0.2.0"
"""The version of the package, which the build reads here."""
