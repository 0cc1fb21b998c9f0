"""The `LLM` tool: answers from memory or from the judge, by one judge or a panel."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.client import JudgeClient, open_judge_client
from claimflow.flows.judge.conversation import Answers, Conversation
from claimflow.flows.judge.provider import provider_identity
from claimflow.flows.judge.response_formats import format_parameters
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.tools import Failure, Form, Question, Reply, Voter

_GRACE_SECONDS: Final = 3.0
"""How long calls in flight may still take when the run is to end."""

_POLL_SECONDS: Final = 0.2
"""How often to check whether the run is to end."""

WorkItem = TypeVar("WorkItem")
Result = TypeVar("Result")


class WorkerPool:
    """Up to `most` workers for each step that asks; an exception in one step ends all of them."""

    def __init__(self, most: int, stop: threading.Event) -> None:
        self._most = most
        self._stop = stop
        self._broken: Exception | None = None

    async def work_through(
        self, items: Iterator[WorkItem], handle: Callable[[WorkItem], Awaitable[None]]
    ) -> None:
        """Call `handle` for each of `items`, which the workers take one after the other.

        A task for each item would take much memory. Raises `StoppedError` when the run is to
        stop, else the first error of any `handle`.
        """

        async def work() -> None:
            # An error raised here would cancel the calls of the other workers.
            try:
                for item in items:
                    if self._is_ending():
                        return
                    await handle(item)
            except StoppedError:
                return
            except Exception as error:
                self._broken = self._broken or error

        async def all_work() -> None:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._most):
                    workers.create_task(work())

        await self.wait_for(all_work())

    async def wait_for(self, awaitable: Awaitable[Result]) -> Result:
        """The result of `awaitable`.

        When the run is to end, `awaitable` is cancelled after a few seconds.
        """
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            ending = self._is_ending()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS if ending else _POLL_SECONDS)
            if ending and not task.done():
                task.cancel()
                await asyncio.wait({task})
        if self._broken is not None:
            raise self._broken
        if self._stop.is_set() or task.cancelled():
            raise StoppedError
        return task.result()

    def _is_ending(self) -> bool:
        return self._stop.is_set() or self._broken is not None


Answer = Reply | Failure

FINAL: Final = frozenset({"refused", "too_long"})
"""Failures that are kept as answers: asking the same question again would fail in the same way."""


class LedgerAnswers:
    """The answers of one judge in the ledger.

    The key of an answer is made of the judge's identity, the form, the question, and the number
    of the draw unless it is the first. The other questions of its call are not part of the key,
    so that an edited claim costs its own verdict only; the number of questions per call is.
    """

    def __init__(self, ledger: Ledger, identity: Mapping[str, Any]) -> None:
        self._ledger = ledger
        self._identity = dict(identity)

    def keys(self, questions: Iterable[Question], form: Form) -> dict[Question, str]:
        """The key of each distinct question, in their order."""
        # The schema as it is sent: other changes of the answer's class cost no new answers.
        shape = format_parameters("schema", form)
        parts = (self._identity, form.prompt, form.blank, shape, form.per_call)
        form_key = content_key("form", *parts, *([form.draw] if form.draw else []))
        return {
            question: content_key("answer", form_key, question.premise, question.text)
            for question in questions
        }

    def recall(
        self, keys: Mapping[Question, str], form: Form, *, since: datetime | None = None
    ) -> dict[Question, Answer]:
        """The stored answers to the questions with these keys, see `Ledger.recall`.

        An answer that cannot be read is none: its question is asked again.
        """
        found = self._ledger.recall(list(keys.values()), since=since)
        answers: dict[Question, Answer] = {}
        for question, key in keys.items():
            with suppress(KeyError, TypeError, ValueError):
                answers[question] = _from_bytes(found[key], form)
        return answers

    def replies(self, answers: Mapping[str, Answer]) -> dict[str, bytes]:
        """The answers that the ledger keeps, as bytes by key: replies and final failures."""
        return {
            key: _to_bytes(answer)
            for key, answer in answers.items()
            if isinstance(answer, Reply) or answer.kind in FINAL
        }


def _to_bytes(answer: Answer) -> bytes:
    if isinstance(answer, Failure):
        saved: Any = {"failure": answer.kind, "message": answer.message}
    else:
        saved = {"answer": answer.answer.model_dump(mode="json")}
    return json.dumps(saved | {"call": answer.call_id}, ensure_ascii=False).encode()


def _from_bytes(reply: bytes, form: Form) -> Answer:
    saved = json.loads(reply)
    if "failure" in saved:
        return Failure(saved["failure"], saved["message"], saved["call"])
    return Reply(form.answer.model_validate(saved["answer"]), saved["call"])


class Batch(NamedTuple):
    """Questions about one premise that go in one call, by the id that each has in it."""

    premise: str
    questions: dict[int, Question]


class EndpointJudge:
    """A language model for all steps of a run that ask it."""

    def __init__(self, name: str, judge: Judge, session: Session) -> None:
        self._answered_by = provider_identity(judge)
        self.identity = judge.identity() | self._answered_by
        self._name = name
        self._judge = judge
        self._session = session
        self._stored = LedgerAnswers(session.ledger, self.identity)
        self._pool = WorkerPool(judge.max_concurrency, session.stop)
        self._client_lock = threading.Lock()
        self._client: JudgeClient | None = None
        self._in_flight: dict[str, asyncio.Future[Answer]] = {}
        self._finished = 0

    def ask(
        self, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `LLM.ask`, for the step of that name. Every answer is stored before it is returned.

        Raises `JudgeError` when the endpoint cannot be used and `StoppedError` when the run
        is to stop.
        """
        keys = self._stored.keys(questions, form)
        finished = self._finished
        known = self._stored.recall(keys, form, since=self._session.since(step))
        missing = {question: key for question, key in keys.items() if question not in known}
        if not missing:
            return known
        with self._client_lock:
            self._client = self._client or open_judge_client(
                self._name, self._judge, self._session, self._answered_by
            )
        arguments = _ConversationArguments(self._client, form, step)
        return known | self._session.loop.run(self._answer_missing(missing, arguments, finished))

    async def _answer_missing(
        self, missing: Mapping[Question, str], arguments: "_ConversationArguments", finished: int
    ) -> dict[Question, Answer]:
        """The answers to `missing` (question -> key).

        A question that another step is asking at the moment is not sent again: its answer is
        awaited.

        `finished` is the number of calls of `ask` that had finished when `missing` was looked up.
        Where more have finished since, the ledger is read again.
        """
        recalled: dict[Question, Answer] = {}
        while finished != self._finished:
            finished = self._finished
            since = self._session.since(arguments.step)
            recalled = await asyncio.to_thread(
                self._stored.recall, missing, arguments.form, since=since
            )
        missing = {question: key for question, key in missing.items() if question not in recalled}
        elsewhere = {
            q: self._in_flight[key] for q, key in missing.items() if key in self._in_flight
        }
        ours = {question: key for question, key in missing.items() if question not in elsewhere}
        loop = asyncio.get_running_loop()
        self._in_flight |= {key: loop.create_future() for key in ours.values()}

        answered = 0

        async def answer_batch(batch: Batch) -> None:
            nonlocal answered
            await self._answer_batch(batch, ours, arguments)
            answered += len(batch.questions)
            self._session.answered(arguments.step, answered, len(ours))

        try:
            batches = batch_questions(ours, arguments.form.per_call)
            await self._pool.work_through(batches, answer_batch)
            answers = {question: self._in_flight[key].result() for question, key in ours.items()}
            for question, answer in elsewhere.items():
                answers[question] = await self._pool.wait_for(asyncio.shield(answer))
            return recalled | answers
        finally:
            try:
                await self._session.ledger_writer.saved()
            finally:
                for key in ours.values():
                    self._in_flight.pop(key).cancel()
                self._finished += 1

    async def _answer_batch(
        self, batch: Batch, keys: Mapping[Question, str], arguments: "_ConversationArguments"
    ) -> None:
        def save(call: Call, answers: Answers, *, closes: str | None = None) -> None:
            by_key = {keys[batch.questions[number]]: found for number, found in answers.items()}
            replies = self._stored.replies(by_key)
            self._session.ledger_writer.add(call, replies, closes=closes)

        await self._session.ledger_writer.keep_up()
        texts = {number: question.text for number, question in batch.questions.items()}
        answers = await Conversation(*arguments, save).about(batch.premise, texts)
        for number, question in batch.questions.items():
            self._in_flight[keys[question]].set_result(answers[number])


class _ConversationArguments(NamedTuple):
    """The arguments that all conversations of one call of `ask` share."""

    client: JudgeClient
    form: Form
    step: str


def batch_questions(questions: Iterable[Question], per_call: int) -> Iterator[Batch]:
    """The questions in groups of up to `per_call` that share a premise, in their order."""
    by_premise: dict[str, list[Question]] = {}
    for question in questions:
        by_premise.setdefault(question.premise, []).append(question)
    for premise, group in by_premise.items():
        for start in range(0, len(group), per_call):
            yield Batch(premise, dict(enumerate(group[start : start + per_call], 1)))


class Judging(Protocol):
    """One judge of a panel: one that asks an endpoint, or one that counts calls."""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that could change its replies."""
        ...

    def ask(
        self, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `LLM.ask`, on behalf of the step of that name."""
        ...


class JudgePanel:
    """The `LLM` tool of one step: one judge or several, by name.

    `repeat` numbers deliberate repetitions of the same questions: the answers of each repetition
    are independent and have ledger keys of their own. 0 is the normal run.
    """

    def __init__(self, judges: Mapping[str, Judging], *, step: str = "", repeat: int = 0) -> None:
        self._judges = dict(judges)
        self._step = step
        self._repeat = repeat
        identities = [judge.identity for judge in self._judges.values()]
        self.identity = identities[0] if len(identities) == 1 else {"judges": identities}

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`, of the first judge."""
        first = next(iter(self._judges.values()))
        return first.ask(questions, form._replace(draw=self._repeat), step=self._step)

    def voters(self, votes: int) -> list[Voter]:
        """As `LLM.voters`: every judge as often as every other."""
        each = votes // len(self._judges)
        return [
            Voter(name, _Vote(judge, self._step, self._repeat * each + number))
            for name, judge in self._judges.items()
            for number in range(each)
        ]


class _Vote(NamedTuple):
    """One of the independent answers of a judge, as a `Respondent`."""

    judge: Judging
    step: str
    draw: int

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`."""
        return self.judge.ask(questions, form._replace(draw=self.draw), step=self.step)
