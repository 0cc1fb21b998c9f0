"""What all endpoints of a run share."""

import threading
from collections.abc import Callable, Collection
from datetime import datetime

from claimflow.flows.engine.llm.loop import Loop
from claimflow.flows.engine.llm.saver import Saver
from claimflow.flows.engine.llm.sharing import KeepTo, Sharing, Turnstile, Unshared, unshared
from claimflow.flows.engine.llm.transport import close
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import now

Answered = Callable[[str, int, int], None]


class Session:
    """One run's loop and its way to the ledger; `stop` asks everything to end.

    With `redact` the record of calls keeps hashes in place of texts. `answered` is told, for
    a step, how many of how many questions that it asks at a time have been answered. The steps
    in `fresh` ask anew what was answered before the session began. `sharing` knows the limits
    that other runs share.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        run_id: str,
        stop: threading.Event,
        redact: bool = False,
        answered: Answered = lambda _step, _done, _of: None,
        fresh: Collection[str] = (),
        sharing: Sharing = unshared,
    ) -> None:
        self.ledger = ledger
        self.run_id = run_id
        self.stop = stop
        self.answered = answered
        self._began_at = now()
        self._since = dict.fromkeys(fresh, self._began_at)
        self._sharing = sharing
        self._turnstiles: list[Turnstile] = []
        self.loop = Loop(at_end=self._finish)
        self.saver = Saver(ledger, redact=redact)

    def since(self, step: str) -> datetime | None:
        """The moment from which replies count for a step; None where all of them do."""
        return self._since.get(step)

    def ask_anew(self, step: str, *, since: datetime | None = None) -> None:
        """Count no reply for a step from before that moment, or before the session began."""
        self._since[step] = since or self._began_at

    def turnstile(self, limit: str | None, keep_to: KeepTo) -> Turnstile:
        """What requests under the shared limit of that name pass, if there is one."""
        if limit is None:
            return Unshared()
        self._turnstiles.append(self._sharing(limit, keep_to))
        return self._turnstiles[-1]

    def close(self) -> None:
        """End the loop and its connections."""
        self.loop.close()

    async def _finish(self) -> None:
        for turnstile in self._turnstiles:
            await turnstile.close()
        await close()
