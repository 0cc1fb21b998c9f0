"""What all endpoints of a run share: event loop, providers, ledger writer, shared limits."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from claimflow.flows.judge.asking import Asking
from claimflow.flows.judge.batches import BatchQueue
from claimflow.flows.judge.event_loop import Loop
from claimflow.flows.judge.ledger_writer import LedgerWriter
from claimflow.flows.judge.provider import JudgeProvider, ProviderError, open_provider
from claimflow.flows.judge.provider_errors import provider_call
from claimflow.flows.judge.rate_limit import (
    NoSharedLimit,
    OpenSharedLimiter,
    SetRate,
    SharedLimiter,
    no_shared_limit,
)
from claimflow.flows.judge.shared_ledger import SharedLedger
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.batches import Batches
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import now

_LOG: Final = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 10.0


async def close_providers(providers: Mapping[str, JudgeProvider]) -> None:
    """Close providers, given by name, in their event loop; a failure is logged, not raised.

    All calls are over by then: no result depends on how a connection ends.
    """
    for name, provider in providers.items():
        try:
            async with provider_call(_CLOSE_SECONDS):
                await provider.close()
        except ProviderError as error:
            _LOG.info("judge provider %s: close failed: %s", name, error.message)


Answered = Callable[[str, int, int], None]


class Session:
    """One run's event loop, providers, ledger writer and shared limits.

    Setting `stop` ends all calls. With `redact` the record of calls keeps hashes in place of
    texts. `answered(step, done, of)` is called when questions of a step are answered, with how many
    have been in this run, of how many that it has asked so far. The steps in `fresh` ask again what
    was answered before their time in it, None for the session's start. `open_shared_limiter` opens
    the limits that other runs share, and `shared` is the ledger that runs on other machines share,
    which the caller closes. No call takes longer than `call_timeout`.
    """

    def __init__(  # noqa: PLR0913
        self,
        ledger: Ledger,
        *,
        run_id: str,
        stop: threading.Event,
        redact: bool = False,
        call_timeout: timedelta | None = None,
        answered: Answered = lambda _step, _done, _of: None,
        fresh: Mapping[str, datetime | None] = MappingProxyType({}),
        open_shared_limiter: OpenSharedLimiter = no_shared_limit,
        shared: SharedLedger | None = None,
    ) -> None:
        self.ledger = ledger
        self.batches = Batches(ledger.store)
        self.run_id = run_id
        self.stop = stop
        self._answered = answered
        self._done: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self.call_timeout = call_timeout
        self._started_at = now()
        self._since = {step: since or self._started_at for step, since in fresh.items()}
        self._open_shared_limiter = open_shared_limiter
        self._shared_limiters: list[SharedLimiter] = []
        self._providers: dict[str, JudgeProvider] = {}
        self._batching: tuple[timedelta, Callable[[str], None]] | None = None
        self._batch_queues: dict[str, BatchQueue] = {}
        self.loop = Loop(at_end=self._finish)
        self.ledger_writer = LedgerWriter(ledger, redact=redact, shared=shared)
        self.asking = Asking(ledger, self.ledger_writer, shared)

    def note_questions(self, asked: Mapping[str, int]) -> None:
        """Note how many questions, by step, will be answered; in the loop."""
        self._asked.update(asked)

    def note_answers(self, answered: Mapping[str, int]) -> None:
        """Note how many questions, by step, were answered; in the loop."""
        self._done.update(answered)
        for step in answered:
            self._answered(step, self._done[step], self._asked[step])

    def since(self, step: str) -> datetime | None:
        """The time from which stored replies are reused for a step; None if all of them are."""
        return self._since.get(step)

    def ask_again(self, step: str, *, since: datetime | None = None) -> None:
        """Ignore replies for a step from before `since`, by default the session's start."""
        self._since[step] = since or self._started_at

    def shared_limiter(self, limit: str | None, set_rate: SetRate) -> SharedLimiter:
        """The limiter of the shared limit named `limit`; for None, one that limits nothing."""
        if limit is None:
            return NoSharedLimit()
        self._shared_limiters.append(self._open_shared_limiter(limit, set_rate))
        return self._shared_limiters[-1]

    def provider(self, name: str) -> JudgeProvider:
        """The provider registered under `name`, one instance for the whole run."""
        return self._providers.setdefault(name, open_provider(name))

    def allow_batches(self, wait: timedelta, message: Callable[[str], None]) -> None:
        """Send calls in batches where the settings of a judge ask for it.

        A run waits for batches up to `wait`; `message` is called with what a user should know.
        """
        self._batching = wait, message

    @property
    def allows_batches(self) -> bool:
        """Whether judges that ask for batches get them."""
        return self._batching is not None

    def send_at_once(self) -> None:
        """Send no more batches, whatever the settings of a judge."""
        self._batching = None

    def batch_queue(
        self, name: str, judge: Judge, provider: JudgeProvider, *, collects: bool = False
    ) -> BatchQueue | None:
        """The queue for the batches of a judge; None for one whose calls are sent one by one.

        With `collects` there is one in any case, for the batches of earlier runs.
        """
        wanted = judge.batch or collects or name in self._batch_queues
        if not wanted or self._batching is None:
            return None
        if name not in self._batch_queues:
            wait, message = self._batching
            self._batch_queues[name] = BatchQueue(
                name,
                judge,
                provider,
                self.batches,
                run_id=self.run_id,
                fresh_since=min(self._since.values(), default=None),
                wait=wait,
                message=message,
            )
        return self._batch_queues[name]

    def close(self) -> None:
        """End the loop and its connections."""
        self.loop.close()

    async def _finish(self) -> None:
        try:
            for queue in self._batch_queues.values():
                await queue.close()
            for limiter in self._shared_limiters:
                await limiter.close()
            await close_providers(self._providers)
        finally:
            self.asking.close()
