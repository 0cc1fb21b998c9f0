"""A store's file made smaller: rewritten without the room that removed rows left in it."""

import shutil
import time
from typing import Final

from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.storage.store_log import fold_log, log_path

_GRACE: Final = 0.2
"""Seconds to keep the lock of a file that was replaced, for those who had just opened it."""


def compact(store: Store) -> None:
    """Rewrite the file; the new one takes the place of the old one in a single step.

    A crash leaves either. Readers go on meanwhile. Raises `StoreFullError` where there is no
    room for both.
    """
    part = store.path.with_name(f".{store.path.name}.compact")
    part.unlink(missing_ok=True)
    fold_log(store)
    try:
        with store.reading(alone=True) as connection:
            if log_path(store.path).exists():
                return
            ((name,),) = connection.execute("SELECT current_database()").fetchall()
            connection.execute("ATTACH $path AS compact (READ_WRITE)", {"path": str(part)})
            connection.execute(f'COPY FROM DATABASE "{name}" TO compact')
            connection.execute("DETACH compact")
            shutil.copymode(store.path, part)
            part.replace(store.path)
            # Somebody may have opened the old file and not asked for its lock yet: who got
            # it would write into a file without a name.
            time.sleep(_GRACE)
    finally:
        part.unlink(missing_ok=True)
        log_path(part).unlink(missing_ok=True)
