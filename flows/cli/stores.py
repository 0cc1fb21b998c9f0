"""Which store a command uses: the one named, a pipeline's, or the last one used in this folder."""

import shlex
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claimflow.flows.cli.output import write_message
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from claimflow.flows.store.store import Store

_QUIET: Final = 60.0
"""Seconds without writing after which a run is unlikely to be in progress."""

_LAST_STORE: Final = Path(".claimflow") / "last_store"


def remember_store(store: "Store") -> None:
    """Record the store as the default of later commands in this folder.

    Where another store was, standard error says so. Does nothing in a folder that cannot be
    written.
    """
    last = last_store()
    with suppress(OSError):
        _LAST_STORE.parent.mkdir(exist_ok=True)
        _LAST_STORE.write_text(str(store.path), "utf-8")
        if last not in (None, store.path):
            _warn(f"commands without --store now read {store.path} instead of {last}")


def named_store(options: Namespace) -> "Store":
    """The store named by `--store` or `--config`, or else the last one used in this folder."""
    from claimflow.flows.files import resolved
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.yaml_source import load_yaml
    from claimflow.flows.store.store import Store

    if options.store:
        return Store(resolved(options.store))
    if options.config:
        return Store(resolved(build_pipeline(load_yaml(options.config)).store))
    last = last_store()
    if last is not None:
        write_message(f"store: {last} (last used here)")
        return Store(last)
    what, hint = "no store was used in this folder yet", "name one by --store or --config"
    raise InputError([Fault("store", what, hint)])


def named_options(options: Namespace) -> str:
    """The options that name the store, as they were given, for another command; else empty."""
    names = {"--store": options.store, "--config": options.config}
    return "".join(f" {name} {shlex.quote(str(path))}" for name, path in names.items() if path)


def last_store() -> Path | None:
    """The store last used in this folder, if that was recorded and its folder still exists."""
    from claimflow.flows.files import path_exists

    with suppress(OSError, UnicodeDecodeError):
        path = Path(_LAST_STORE.read_text("utf-8"))
        return path if path.is_absolute() and path_exists(path.parent) else None
    return None


def readable_store(options: Namespace) -> "Store":
    """The store of `named_store`, read from its read copy, so that no lock is waited for.

    With `--live`, or where there is no copy, it is the store itself. A missing copy, or one that
    has been out of date for a while, is reported on standard error.
    """
    from claimflow.flows.files import is_file
    from claimflow.flows.store.read_copy import is_current, last_written, read_copy_path
    from claimflow.flows.store.read_copy import readable_store as read_store

    store = named_store(options)
    if options.live or not is_file(store.path):
        return store
    copy = read_copy_path(store.path)
    if not is_file(copy):
        _warn(f"{copy} does not exist: reading the store itself when it is free")
    elif not is_current(store.path) and time.time() - last_written(store.path) > _QUIET:
        _warn(
            f"{copy} is older than the store: what a run, a viewer or a command wrote last is not "
            "in it; add --live to read the store itself"
        )
    return read_store(store.path)


def readable_run(options: Namespace) -> tuple["Store", str]:
    """The store of `readable_store`, and the id of the run that the option RUN names in it."""
    store = readable_store(options)
    return store, run_named(options, store, options.run)


def run_named(
    options: Namespace,
    store: "Store",
    word: str | None,
    *,
    before: str | None = None,
    pipeline: str | None = None,
) -> str:
    """The run that `word` names, of the pipeline of `--config`, else of `pipeline`, else of any.

    It is found by `chosen_run`. Where the word could mean another run, standard error says which
    one is taken.
    """
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.yaml_source import load_yaml
    from claimflow.flows.store.results import chosen_run, run_choice_notes

    if options.config:
        pipeline = build_pipeline(load_yaml(options.config)).name
    run_id = chosen_run(store, word, before=before, pipeline=pipeline)
    if before is None:
        for note in run_choice_notes(store, word, run_id, pipeline=pipeline):
            _warn(note)
    return run_id


def _warn(message: str) -> None:
    write_message(f"claimflow: {message}")
