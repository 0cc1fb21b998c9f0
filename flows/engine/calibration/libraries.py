"""What the calibration needs beside claimflow's own dependencies."""

from importlib.util import find_spec
from typing import Final

from claimflow.flows.engine.errors import Fault, InputError

NEEDED: Final = {"krippendorff": "krippendorff", "sklearn": "scikit-learn"}
"""The packages by the name of their module."""


def check_installed() -> None:
    """Raise `InputError` where a package is not installed."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        what = f"{' and '.join(missing)} {verb} not installed"
        raise InputError([Fault("calibrate", what, "run: pip install 'claimflow[calibrate]'")])
