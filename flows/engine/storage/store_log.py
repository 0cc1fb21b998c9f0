"""The log beside a store, where DuckDB keeps what a process wrote that did not live to close it."""

from pathlib import Path

from claimflow.flows.engine.storage.store import Store


def fold_log(store: Store) -> None:
    """Bring into the file what the log beside it, left by a crash, holds."""
    if log_path(store.path).exists():
        with store.writing():
            pass


def log_path(store: Path) -> Path:
    """Where DuckDB keeps what is not in the file yet."""
    return store.with_name(f"{store.name}.wal")
