"""The `LLM` tool: answers from memory or from the judge, by one judge or a panel."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.client import JudgeClient, open_judge_client
from claimflow.flows.judge.conversation import Answers, Conversation
from claimflow.flows.judge.response_formats import format_parameters
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.tools import Failure, Form, Question, Reply, Voter

_GRACE: Final = 3.0
"""Seconds that calls in flight have to come back when the work is to end."""

_LOOK: Final = 0.2
"""Seconds between two looks whether it is."""

CrewBatch = TypeVar("CrewBatch")
Result = TypeVar("Result")


class WorkerPool:
    """Up to `most` workers for each step that asks; an exception in one step ends all of them."""

    def __init__(self, most: int, stop: threading.Event) -> None:
        self._most = most
        self._stop = stop
        self._broken: Exception | None = None

    async def work_through(
        self, batches: Iterator[CrewBatch], settle: Callable[[CrewBatch], Awaitable[None]]
    ) -> None:
        """Call `settle` for each of `batches`, in a pool: a task for each would take much memory.

        Raises `StoppedError` when the run is to stop, or what any `settle` raised first.
        """

        async def work() -> None:
            # Nothing is raised here, for that would cancel the calls of the others.
            try:
                for batch in batches:
                    if self._is_ending():
                        return
                    await settle(batch)
            except StoppedError:
                return
            except Exception as error:
                self._broken = self._broken or error

        async def all_work() -> None:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self._most):
                    workers.create_task(work())

        await self.patiently(all_work())

    async def patiently(self, awaitable: Awaitable[Result]) -> Result:
        """The result of `awaitable`; when the work is to end, calls in flight get a few seconds."""
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            ending = self._is_ending()
            await asyncio.wait({task}, timeout=_GRACE if ending else _LOOK)
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
"""Failures that are answers: the same question would meet them again."""


class LedgerAnswers:
    """The answers of one judge in the ledger.

    An answer belongs to the judge's identity, the form and the question. Which other
    questions shared its call does not count, so that an edited claim costs no verdict but
    its own; how many might have shared it does. So does which draw it is, where it is not
    the usual one: independent answers are kept apart even where they were asked in the same words.
    """

    def __init__(self, ledger: Ledger, identity: Mapping[str, Any]) -> None:
        self._ledger = ledger
        self._identity = dict(identity)

    def keys(self, questions: Iterable[Question], form: Form) -> dict[Question, str]:
        """The key of each distinct question, in their order."""
        # What is sent of the answer's shape: its docstring may be edited for nothing.
        shape = format_parameters("schema", form)
        asked_by = (self._identity, form.prompt, form.blank, shape, form.per_call)
        form_key = content_key("form", *asked_by, *([form.draw] if form.draw else []))
        return {
            question: content_key("answer", form_key, question.premise, question.text)
            for question in questions
        }

    def recall(
        self, keys: Mapping[Question, str], form: Form, *, since: datetime | None = None
    ) -> dict[Question, Answer]:
        """The answers on file to the questions with these keys, as `Ledger.recall`."""
        found = self._ledger.recall(list(keys.values()), since=since)
        return {
            question: _from_bytes(found[key], form)
            for question, key in keys.items()
            if key in found
        }

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
        self.identity = judge.identity()
        self._name = name
        self._judge = judge
        self._session = session
        self._remembered = LedgerAnswers(session.ledger, self.identity)
        self._pool = WorkerPool(judge.max_concurrency, session.stop)
        self._turn = threading.Lock()
        self._client: JudgeClient | None = None
        self._in_flight: dict[str, asyncio.Future[Answer]] = {}
        self._finished = 0

    def ask(
        self, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `LLM.ask`, for the step of that name. Everything returned is on file.

        Raises `JudgeError` when the endpoint cannot be used and `StoppedError` when the run
        is to stop.
        """
        keys = self._remembered.keys(questions, form)
        finished = self._finished
        known = self._remembered.recall(keys, form, since=self._session.since(step))
        missing = {question: key for question, key in keys.items() if question not in known}
        if not missing:
            return known
        with self._turn:
            self._client = self._client or open_judge_client(self._name, self._judge, self._session)
        conversing = _Conversing(self._client, form, step)
        return known | self._session.loop.run(self._answer_missing(missing, conversing, finished))

    async def _answer_missing(
        self, missing: Mapping[Question, str], conversing: "_Conversing", finished: int
    ) -> dict[Question, Answer]:
        """The answers to `missing` (question -> key). A question that another step is asking at the
        moment is not sent again: its answer is awaited.

        `finished` is the number of calls of `ask` that had finished when `missing` was looked up.
        Where more have finished since, the ledger is read again.
        """
        recalled: dict[Question, Answer] = {}
        while finished != self._finished:
            finished = self._finished
            since = self._session.since(conversing.step)
            recalled = await asyncio.to_thread(
                self._remembered.recall, missing, conversing.form, since=since
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
            await self._answer_batch(batch, ours, conversing)
            answered += len(batch.questions)
            self._session.answered(conversing.step, answered, len(ours))

        try:
            batches = batch_questions(ours, conversing.form.per_call)
            await self._pool.work_through(batches, answer_batch)
            answers = {question: self._in_flight[key].result() for question, key in ours.items()}
            for question, answer in elsewhere.items():
                answers[question] = await self._pool.patiently(asyncio.shield(answer))
            return recalled | answers
        finally:
            try:
                await self._session.ledger_writer.saved()
            finally:
                for key in ours.values():
                    self._in_flight.pop(key).cancel()
                self._finished += 1

    async def _answer_batch(
        self, batch: Batch, keys: Mapping[Question, str], conversing: "_Conversing"
    ) -> None:
        def save(call: Call, answers: Answers, *, closes: str | None = None) -> None:
            by_key = {keys[batch.questions[number]]: found for number, found in answers.items()}
            replies = self._remembered.replies(by_key)
            self._session.ledger_writer.add(call, replies, closes=closes)

        await self._session.ledger_writer.keep_up()
        texts = {number: question.text for number, question in batch.questions.items()}
        answers = await Conversation(*conversing, save).about(batch.premise, texts)
        for number, question in batch.questions.items():
            self._in_flight[keys[question]].set_result(answers[number])


class _Conversing(NamedTuple):
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
