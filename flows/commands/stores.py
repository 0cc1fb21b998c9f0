"""Which store a command means: the one named, a pipeline's, or the last one used here."""

from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Final

from flows.engine.errors import Fault, InputError
from flows.engine.pipeline import build_pipeline
from flows.engine.store import Store
from flows.engine.yaml_source import load_yaml

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
    if _MEMORY.is_file():
        return Store(Path(_MEMORY.read_text("utf-8")))
    what, right = "no store was used in this folder yet", "name one by --store or --config"
    raise InputError([Fault("store", what, right)])
