"""Runs that use one store at the same time share their requests: each is sent by one run only."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from claimflow.flows.judge.key_locks import KeyLocks
from claimflow.flows.judge.ledger_writer import LedgerWriter, recover_journals
from claimflow.flows.judge.worker_pool import WorkerPool
from claimflow.flows.store.ledger import Ledger

_LOG: Final = logging.getLogger("claimflow")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at what another run is asking."""

Item = TypeVar("Item")


class Asking:
    """Asks for what is missing in the ledger, and waits for what another run is asking.

    Used by the coroutines of one loop.
    """

    def __init__(self, ledger: Ledger, writer: LedgerWriter) -> None:
        self._ledger = ledger
        self._writer = writer
        self._locks = KeyLocks(ledger.store.path)
        self._other_runs_seen = False
        self._wait_reported = False

    def changes(self) -> int:
        """The counter of other runs' changes, which `ask` needs from before the ledger is read."""
        return self._locks.changes()

    async def ask(
        self,
        missing: Mapping[Item, str],
        pool: WorkerPool,
        *,
        changes: int,
        fresh: bool,
        batches: Callable[[Mapping[Item, str]], Iterator[Sequence[Item]]],
        ask: Callable[[Sequence[Item]], Awaitable[None]],
        recall: Callable[[Mapping[Item, str]], Awaitable[Collection[Item]]],
        together: Hashable = None,
    ) -> None:
        """Call `ask` with each of `batches` of the items that are `missing` (item -> ledger key).

        A batch that another run is asking at the moment is put off. Its replies are in the ledger
        when that run has them: `recall` takes over those of some items, and returns the items that
        had one. What then is still missing, because that run failed or was killed, is asked. With
        `fresh` no reply of another run is used. `changes` is what `changes()` returned before the
        ledger was read, `together` is for the pool. Raises what `WorkerPool.work_through` raises.
        """
        left = dict(missing)
        put_off: dict[Item, str] = {}
        reading = asyncio.Lock()

        async def read_ledger(*, after_wait: bool) -> None:
            nonlocal changes
            async with reading:
                found = self._locks.changes()
                self._other_runs_seen |= after_wait or found != changes
                recovered = await self._recover_journals()
                if after_wait or recovered or found != changes:
                    changes = found
                    for item in await recall(dict(left)):
                        del left[item]

        async def ask_batch(batch: Sequence[Item], *, waited: bool) -> None:
            keys = [missing[item] for item in batch]
            if not self._locks.take(keys) and not fresh:
                self._other_runs_seen = True
                put_off.update(zip(batch, keys, strict=True))
                return
            try:
                if not fresh and not left.keys().isdisjoint(batch):
                    await read_ledger(after_wait=waited)
                # What this run is asking itself must not be recalled as well.
                unanswered = [item for item in batch if left.pop(item, None) is not None]
                if unanswered:
                    await ask(unanswered)
            finally:
                self._writer.when_saved(lambda: self._locks.release(keys))

        todo, pause, waited = dict(missing), _FIRST_PAUSE, False
        while todo:
            before = len(todo)
            put_off.clear()
            asked = partial(ask_batch, waited=waited)
            await pool.work_through(batches(todo), asked, together=together)
            todo = {item: key for item, key in put_off.items() if item in left}
            pause = _FIRST_PAUSE if len(todo) < before else min(2 * pause, _LONGEST_PAUSE)
            if todo:
                self._report_wait(pause)
                await pool.wait_for(asyncio.sleep(random.uniform(pause / 2, pause)))
                waited = True

    def _report_wait(self, pause: float) -> None:
        """Log a warning, once, when the wait for another run has become long."""
        if pause == _LONGEST_PAUSE and not self._wait_reported:
            self._wait_reported = True
            what = "%s: waiting for answers that another run on this store is asking for"
            _LOG.warning(what, self._ledger.store.path)

    async def _recover_journals(self) -> int:
        """Save what a killed run left in a journal, where there is or was another run at all."""
        if not self._other_runs_seen:
            return 0
        return await asyncio.to_thread(recover_journals, self._ledger)

    def close(self) -> None:
        """Let other runs ask for everything that this one was asking for."""
        self._locks.close()
