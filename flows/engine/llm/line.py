"""The line to a judge: one request and its reply, on the best rung that works."""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from claimflow.flows.engine.endpoints import Judge
from claimflow.flows.engine.llm.access import Access
from claimflow.flows.engine.llm.budget import BudgetSpent
from claimflow.flows.engine.llm.calls import Call, chat_call, storable
from claimflow.flows.engine.llm.charges import charges_of
from claimflow.flows.engine.llm.delivery import Delivered
from claimflow.flows.engine.llm.past import OpenReply, Past, recall_past
from claimflow.flows.engine.llm.rungs import RUNGS, Rung, reply_format
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.llm.transport import Received, Request, send, warm
from claimflow.flows.engine.llm.troubles import Trouble
from claimflow.stages.tools import Failure, Form

Message = dict[str, str]


class Exchange(NamedTuple):
    """What became of one request: the reply's text, or why there is none.

    `call` goes on record once somebody has read the text, unless it is `recorded` already.
    """

    call: Call
    text: str
    cut_off: bool
    failure: Failure | None
    recorded: bool = False


class Line:
    """Requests to one judge, by all steps of a run."""

    def __init__(self, name: str, judge: Judge, session: Session, access: Access, past: Past):
        self._name = name
        self._judge = judge
        self._session = session
        self._access = access
        self._open = past.open
        self._rung: Rung = past.rung or RUNGS[0]
        self._seeds = True

    async def exchange(
        self,
        step: str,
        form: Form,
        messages: Sequence[Message],
        *,
        entries: int,
        repeats: str | None = None,
    ) -> Exchange:
        """Send `messages`, about `entries` texts, and return what came back.

        `repeats` is the call whose reply they show to the model. A reply that a run before
        this one got and had no time to act on is taken up instead of being asked for again.

        Raises `JudgeError` when no request can succeed, `StoppedError` when the run is to end.
        """
        while True:
            rung = self._rung
            seed = self._seed(form.draw)
            parameters = self._judge.parameters() | seed | reply_format(rung, form)
            model, api_base = self._judge.model, self._judge.api_base
            request = Request(model, list(messages), parameters, api_base)
            made_by = {"run_id": self._session.run_id, "step": step, "judge": self._name}
            call = chat_call(request, **made_by, rung=rung, repeats=repeats)
            taken_up = self._open.pop(call.request, None)
            if taken_up and self._session.since(step) is None:
                return _taken_up(call, taken_up)
            try:
                delivered = await self._access.request(
                    partial(_send, request),
                    characters=sum(len(message["content"]) for message in messages),
                    entries=entries,
                )
            except Trouble as trouble:
                if trouble.kind == "rung" and self._step_down(rung):
                    continue
                if seed and re.search(r"\bseed\b", trouble.message):
                    self._seeds = False
                    continue
                call = call._replace(seconds=trouble.seconds, attempts=trouble.attempts)
                return Exchange(call, "", False, self._access.failure(trouble, call.call_id))
            except BudgetSpent as spent:
                return Exchange(call, "", False, self._access.failure(spent, call.call_id))
            return self._received(call, delivered)

    def _received(self, call: Call, delivered: Delivered[Received]) -> Exchange:
        received = delivered.received
        usage = received.usage
        call = call._replace(
            reply=storable(received.text if received.refusal is None else received.refusal),
            finish_reason=received.finish,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            cost=self._access.cost(usage),
            seconds=delivered.seconds,
            attempts=delivered.attempts,
        )
        if received.refusal is not None:
            failure = Failure("refused", received.refusal[:300] or "refused", call.call_id)
            return Exchange(call, "", False, failure)
        return Exchange(call, received.text, received.finish == "length", None)

    def _seed(self, draw: int) -> dict[str, int]:
        """The seed of a draw other than the usual one, until the endpoint turns seeds down."""
        return {"seed": (self._judge.seed or 0) + draw} if draw and self._seeds else {}

    def _step_down(self, rung: Rung) -> bool:
        """Whether there is a lower rung than `rung`, which is used from now on."""
        if self._rung == rung:
            if rung == RUNGS[-1]:
                return False
            self._rung = RUNGS[RUNGS.index(rung) + 1]
        return True


def open_line(name: str, judge: Judge, session: Session) -> Line:
    """The line to a judge, with what earlier runs learnt of it. Imports litellm."""
    session.loop.run(warm(judge.model))
    who = f"judge {name}" if name != "judge" else "judge"
    access = Access(who, judge, session, charges_of(judge), max_tokens=judge.max_tokens)
    return Line(name, judge, session, access, recall_past(session.ledger.store, judge))


async def _send(request: Request, seconds: float) -> Received:
    return await send(request, timeout=seconds)


def _taken_up(call: Call, reply: OpenReply) -> Exchange:
    call = call._replace(call_id=reply.call_id)
    return Exchange(call, reply.text, reply.cut_off, None, recorded=True)
