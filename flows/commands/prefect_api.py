"""Whether a Prefect API is configured, and what to say where none answers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claimflow.flows.engine.errors import Fault, InputError


def is_configured() -> bool:
    """Whether the environment or a Prefect profile names an API.

    Prefect is asked only where a profile exists, since asking means importing it.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    if not profiles.is_file():
        return False
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


@contextmanager
def reached(right: str) -> Iterator[None]:
    """Tells in our words that no Prefect server answers; `right` is what to do then."""
    try:
        yield
    except RuntimeError as error:
        if "reach API" not in str(error):
            raise
        what = "no Prefect server answers there"
        raise InputError([Fault("PREFECT_API_URL", what, right)]) from error
