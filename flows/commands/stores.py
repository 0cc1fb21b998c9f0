"""Which store a command means: the one named, a pipeline's, or the last one used here."""

import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Final

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import path_exists
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.store.read_copy import is_current, read_copy_path
from claimflow.flows.store.store import Store

_QUIET: Final = 60.0
"""Seconds without writing after which no run is likely to be going on."""

_MEMORY: Final = Path(".claimflow") / "last_store"


def remember_store(store: Store) -> None:
    """Let later commands in this folder find the store without being told.

    A folder that we may not write in just does not remember.
    """
    with suppress(OSError):
        _MEMORY.parent.mkdir(exist_ok=True)
        _MEMORY.write_text(str(store.path), "utf-8")


def named_store(options: Namespace) -> Store:
    """The store that the options `--store` and `--config` name, or else the last one used."""
    if options.store:
        return Store(options.store.resolve())
    if options.config:
        return Store(build_pipeline(load_yaml(options.config)).store.resolve())
    last = _remembered()
    if last is not None:
        return Store(last)
    what, hint = "no store was used in this folder yet", "name one by --store or --config"
    raise InputError([Fault("store", what, hint)])


def _remembered() -> Path | None:
    """The store that was last used here, where that is on file and can be read."""
    with suppress(OSError, UnicodeDecodeError):
        path = Path(_MEMORY.read_text("utf-8"))
        return path if path.is_absolute() and path_exists(path.parent) else None
    return None


def read_store(options: Namespace) -> Store:
    """As `named_store`, to be read where nobody waits: in its read copy.

    With `--live`, or where there is no copy, it is the store itself. What a user may not
    expect is told on standard error: that there is none, or that it has been out of date
    for a while.
    """
    store = named_store(options)
    copy = read_copy_path(store.path)
    if options.live or not store.path.is_file():
        return store
    if not copy.is_file():
        _tell(f"{copy} is not there yet: reading the store itself, when it is free")
        return store
    if not is_current(store.path) and time.time() - store.path.stat().st_mtime > _QUIET:
        _tell(
            f"{copy} is older than the store, which was not written by a run that ended; "
            "add --live to read the store itself"
        )
    return Store(store.path, copy=copy)


def _tell(words: str) -> None:
    print(f"claimflow: {words}", file=sys.stderr)
