"""Runs at the same time share their requests: each is sent by one run only.

They use one store, or stores on several machines that share a ledger.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from claimflow.flows.judge.key_locks import KeyLocks
from claimflow.flows.judge.ledger_writer import LedgerWriter, recover_journals, write_entries
from claimflow.flows.judge.shared_ledger import SharedLedger
from claimflow.flows.judge.worker_pool import WorkerPool
from claimflow.flows.store.ledger import Ledger

_LOG: Final = logging.getLogger("claimflow")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two looks at what another run is asking."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Asking:
    """Asks for what is missing in the ledger, and waits for what another run is asking.

    Used by the coroutines of one loop.
    """

    def __init__(
        self, ledger: Ledger, writer: LedgerWriter, shared: SharedLedger | None = None
    ) -> None:
        self._ledger = ledger
        self._writer = writer
        self._shared = shared
        # Of their own: requests to the shared ledger must not hold up calls.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="shared ledger")
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

        What the shared ledger has is copied into the store first. A batch that another run is
        asking at the moment is put off, and so is an item that a run on another machine has
        claimed, or has taken over from this one while it was out of reach. Its replies are in the
        ledger when that run has them: `recall` takes over those of some items, and returns the
        items that had one. What then is still missing, because that run failed or was killed, is
        asked. With `fresh` no reply of another run is used. `changes` is what `changes()` returned
        before the ledger was read, `together` is for the pool. Raises what
        `WorkerPool.work_through` raises, and `JudgeError` as `SharedLedger` does.
        """
        left = dict(missing)
        put_off: dict[Item, str] = {}
        reading = asyncio.Lock()
        waited = False

        async def read_ledger() -> None:
            nonlocal changes
            async with reading:
                found = self._locks.changes()
                self._other_runs_seen |= waited or found != changes
                recovered = await self._recover_journals()
                if waited or recovered or found != changes:
                    changes = found
                    for item in await recall(dict(left)):
                        del left[item]

        async def ask_batch(batch: Sequence[Item]) -> None:
            keys = [missing[item] for item in batch]
            held = fresh or self._shared is None or self._shared.holds(keys)
            if not (held and self._locks.take(keys)) and not fresh:
                self._other_runs_seen = True
                put_off.update(zip(batch, keys, strict=True))
                return
            try:
                if not fresh and not left.keys().isdisjoint(batch):
                    await read_ledger()
                # What this run is asking itself must not be recalled as well.
                unanswered = [item for item in batch if left.pop(item, None) is not None]
                if unanswered:
                    await ask(unanswered)
            finally:
                # At once, also what has no answer: another run may wait for it that holds what
                # this run waits for.
                self._writer.when_saved(partial(self._release, keys, fresh=fresh))

        claim = partial(self._claim, left=left, recall=recall, pool=pool, fresh=fresh)
        try:
            todo, elsewhere = await claim(missing)
            pause = _FIRST_PAUSE
            while todo or elsewhere:
                before = len(todo) + len(elsewhere)
                put_off.clear()
                await pool.work_through(batches(todo), ask_batch, together=together)
                waiting = {item: key for item, key in put_off.items() if item in left}
                # Also what waits for a run on this store: a claim may have been lost meanwhile.
                todo, elsewhere = await claim(waiting | elsewhere)
                shorter = len(todo) + len(elsewhere) < before
                pause = _FIRST_PAUSE if shorter else min(2 * pause, _LONGEST_PAUSE)
                if waiting or elsewhere:
                    self._report_wait(pause)
                    await pool.wait_for(asyncio.sleep(random.uniform(pause / 2, pause)))
                    waited = True
        finally:
            # What was claimed and not asked, since the run was stopped.
            self._writer.when_saved(partial(self._release, set(missing.values()), fresh=fresh))

    async def _claim(
        self,
        items: Mapping[Item, str],
        *,
        left: dict[Item, str],
        recall: Callable[[Mapping[Item, str]], Awaitable[Collection[Item]]],
        pool: WorkerPool,
        fresh: bool,
    ) -> tuple[dict[Item, str], dict[Item, str]]:
        """(items that this run is to ask, items that a run on another machine is asking).

        Those that the shared ledger has are copied into the store, recalled, and no longer in
        `left`. With `fresh` all are asked.
        """
        elsewhere = frozenset[str]()
        items = {item: key for item, key in items.items() if item in left}
        if self._shared is not None and items and not fresh:
            asked = self._in_thread(self._shared.take, list(items.values()))
            found, elsewhere = await pool.wait_for(asked)
            if found:
                await self._in_thread(write_entries, self._ledger, found)
                recalled = await recall(items)
                self._shared.use([items[item] for item in recalled])
                for item in recalled:
                    del left[item]
        items = {item: key for item, key in items.items() if item in left}
        theirs = {item: key for item, key in items.items() if key in elsewhere}
        return {item: key for item, key in items.items() if item not in theirs}, theirs

    def _release(self, keys: Collection[str], *, fresh: bool) -> None:
        """Let other runs ask for keys whose replies are saved, or never will be."""
        self._locks.release(keys)
        if self._shared is not None and not fresh:
            self._threads.submit(self._shared.release, keys)

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    def _report_wait(self, pause: float) -> None:
        """Log a warning, once, when the wait for another run has become long."""
        if pause == _LONGEST_PAUSE and not self._wait_reported:
            self._wait_reported = True
            place, run = str(self._ledger.store.path), "another run on this store"
            if self._shared is not None:
                place, run = f"shared ledger at {self._shared.url}", "another run"
            _LOG.warning("%s: waiting for answers that %s is asking for", place, run)

    async def _recover_journals(self) -> int:
        """Save what a killed run left in a journal, where there is or was another run at all."""
        if not self._other_runs_seen:
            return 0
        return await asyncio.to_thread(recover_journals, self._ledger, self._shared)

    def close(self) -> None:
        """Let other runs ask for everything that this one was asking for."""
        self._threads.shutdown()
        self._locks.close()
