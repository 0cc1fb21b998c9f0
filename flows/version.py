"""The installed version of claimflow."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("claimflow")
