"""Answers of one judge: from the ledger, or from its endpoint."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from claimflow.flows.judge.calls import NO_ENTRY, Call, check_id
from claimflow.flows.judge.client import JudgeClient, open_judge_client
from claimflow.flows.judge.conversation import Answers, Conversation, batch_questions
from claimflow.flows.judge.provider import provider_identity
from claimflow.flows.judge.response_formats import format_parameters
from claimflow.flows.judge.session import Session
from claimflow.flows.judge.worker_pool import WorkerPool
from claimflow.flows.pipeline.model_settings import Judge
from claimflow.flows.store.batches import BatchCall
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.tools import Failure, Form, Question, Reply

Answer = Reply | Failure

FINAL: Final = frozenset({"refused", "too_long"})
"""Failures that are kept as answers: asking the same question again would fail in the same way."""


PART: ContextVar[int] = ContextVar("PART", default=0)
"""The part of the samples that a thread makes rows of, where parts are made at the same time."""


class LedgerAnswers:
    """The answers of one judge in the ledger.

    The key of an answer is made of the judge's identity, the form, the question, and the number
    of the draw unless it is the first. The other questions of its call are not part of the key,
    so that an edited claim costs its own verdict only; how many share a call is.
    """

    def __init__(self, ledger: Ledger, identity: Mapping[str, Any]) -> None:
        self._ledger = ledger
        self._identity = dict(identity)

    def keys(self, questions: Iterable[Question], form: Form) -> dict[Question, str]:
        """The key of each distinct question, in their order."""
        # The schema as it is sent: other changes of the answer's class cost no new answers.
        shape = format_parameters("schema", form)
        parts = (self._identity, form.prompt, form.blank, shape, form.per_call)
        premises = [f"{form.premises} premises"] if form.premises > 1 else []
        form_key = content_key("form", *parts, *premises, *([form.draw] if form.draw else []))
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
            with suppress(KeyError, *NO_ENTRY):
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
    """Raises `KeyError` or one of `NO_ENTRY` where the bytes, of any store, are no answer."""
    saved = json.loads(reply)
    check_id(saved["call"])
    if "failure" not in saved:
        return Reply(form.answer.model_validate(saved["answer"]), saved["call"])
    kind, message = saved["failure"], saved["message"]
    if kind not in FINAL or not isinstance(message, str):
        raise ValueError("no failure that is kept")
    return Failure(kind, message, saved["call"])


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
        """As `LLM.ask`, for the step of that name, see `ask_together`."""
        return self.ask_together({step: questions}, form)

    @property
    def asks_in_batches(self) -> bool:
        """Whether calls go into batches."""
        return self._judge.batch and self._session.allows_batches

    def since(self, step: str) -> datetime | None:
        """As `Session.since`: steps that ask together have the same."""
        return self._session.since(step)

    def ask_together(
        self, questions_of: Mapping[str, Sequence[Question]], form: Form
    ) -> Mapping[Question, Answer]:
        """The answers to the questions of several steps, by the name of the step.

        Every answer is stored before it is returned. Raises `JudgeError` when the endpoint cannot
        be used and `StoppedError` when the run is to stop.
        """
        since = self._session.since(next(iter(questions_of)))
        keys = self._stored.keys(chain.from_iterable(questions_of.values()), form)
        finished, changes = self._finished, self._session.asking.changes()
        known = self._stored.recall(keys, form, since=since)
        missing = {question: key for question, key in keys.items() if question not in known}
        if not missing:
            return known
        submitted = self._open_calls(keys, since)
        # A call is collected as a whole: others of its questions may have been answered since.
        wanted = set(missing.values())
        needed = {key for one in submitted if not wanted.isdisjoint(one.keys) for key in one.keys}
        missing |= {question: key for question, key in keys.items() if key in needed}
        known = {question: answer for question, answer in known.items() if question not in missing}
        with self._client_lock:
            self._client = self._client or open_judge_client(
                self._name, self._judge, self._session, self._answered_by
            )
        steps: dict[Question, tuple[str, ...]] = {}
        for step, questions in questions_of.items():
            for question in dict.fromkeys(questions):
                steps[question] = (*steps.get(question, ()), step)
        asked = _Asked(self._client, form, steps, since, together=(*questions_of, PART.get()))
        return known | self._session.loop.run(
            self._answer_missing(missing, asked, finished, changes, submitted)
        )

    async def _answer_missing(
        self,
        missing: Mapping[Question, str],
        asked: "_Asked",
        finished: int,
        changes: int,
        submitted: Sequence[BatchCall],
    ) -> dict[Question, Answer]:
        """The answers to `missing` (question -> key), some of them to calls in open batches.

        A question that another step, or another run, is asking at the moment is not sent again:
        its answer is awaited.

        `finished` is the number of calls of `ask` that had finished when `missing` was looked up.
        Where more have finished since, the ledger is read again. `changes` is for `Asking.ask`.
        """
        form, since = asked.form, asked.since
        recalled: dict[Question, Answer] = {}
        while finished != self._finished:
            finished = self._finished
            recalled = await asyncio.to_thread(self._stored.recall, missing, form, since=since)
        missing = {question: key for question, key in missing.items() if question not in recalled}
        elsewhere = {
            q: self._in_flight[key] for q, key in missing.items() if key in self._in_flight
        }
        ours = {question: key for question, key in missing.items() if question not in elsewhere}
        loop = asyncio.get_running_loop()
        self._in_flight |= {key: loop.create_future() for key in ours.values()}

        self._session.note_questions(asked.by_step(ours))

        def note(answers: Mapping[Question, Answer]) -> None:
            for question, answer in answers.items():
                self._in_flight[ours[question]].set_result(answer)
            self._session.note_answers(asked.by_step(answers))

        async def answer_batch(questions: Sequence[Question]) -> None:
            note(await self._answer_batch(questions, ours, asked))

        async def recall(left: Mapping[Question, str]) -> Collection[Question]:
            found = await asyncio.to_thread(self._stored.recall, left, form)
            note(found)
            # Another run may have submitted what it was asking, and ended.
            still = {question: key for question, key in left.items() if question not in found}
            asked.client.collect(await asyncio.to_thread(self._open_calls, still, since))
            return found

        try:
            asked.client.requests.plan(sum(1 for _ in batch_questions(ours, form)))
            submitted = [one for one in submitted if set(one.keys) <= set(ours.values())]
            asked.client.collect(submitted)
            queue = asked.client.batches
            await self._session.asking.ask(
                ours,
                # All calls of a batch wait at the same time; they are no more than the questions.
                WorkerPool(len(ours), self._session.stop) if queue else self._pool,
                changes=changes,
                fresh=since is not None,
                batches=partial(_group, submitted=submitted, form=form, keys=ours),
                ask=answer_batch,
                recall=recall,
                together=asked.together,
            )
            answers = {question: self._in_flight[key].result() for question, key in ours.items()}
            for question, answer in elsewhere.items():
                answers[question] = await self._pool.wait_for(asyncio.shield(answer))
            return recalled | answers
        finally:
            try:
                await self._session.ledger_writer.saved()
                if asked.client.batches is not None:
                    await asked.client.batches.settle()
            finally:
                for key in ours.values():
                    self._in_flight.pop(key).cancel()
                self._finished += 1

    def _open_calls(
        self, keys: Mapping[Question, str], since: datetime | None
    ) -> Sequence[BatchCall]:
        """The calls in batches of earlier runs that ask for these keys and no others."""
        if not self._session.allows_batches:
            return ()
        return self._session.batches.open_calls(list(keys.values()), since=since)

    async def _answer_batch(
        self, questions: Sequence[Question], keys: Mapping[Question, str], asked: "_Asked"
    ) -> dict[Question, Answer]:
        """The answers to questions that share a call, or more calls if its reply lacks some."""
        numbered = dict(enumerate(questions, 1))

        def save(call: Call, answers: Answers, *, closes: str | None = None) -> None:
            by_key = {keys[numbered[number]]: found for number, found in answers.items()}
            replies = self._stored.replies(by_key)
            self._session.ledger_writer.add(call, replies, closes=closes)

        await self._session.ledger_writer.keep_up()
        # In audit.calls, a call that several steps share names all of them.
        step, fresh = ", ".join(asked.by_step(questions)), asked.since is not None
        conversation = Conversation(
            asked.client,
            asked.form,
            step,
            save,
            keys={number: keys[question] for number, question in numbered.items()},
            fresh=fresh,
        )
        answers = await conversation.ask(numbered)
        asked.client.requests.note_answers(answers.values())
        return {question: answers[number] for number, question in numbered.items()}


def _group(
    questions: Iterable[Question],
    *,
    submitted: Sequence[BatchCall],
    form: Form,
    keys: Mapping[Question, str],
) -> Iterator[Sequence[Question]]:
    """The questions of each call: of those that are submitted already, then of the others."""
    left = {keys[question]: question for question in questions}
    for call in submitted:
        if left.keys() >= set(call.keys):
            yield [left.pop(key) for key in call.keys]
    yield from batch_questions(left.values(), form)


class _Asked(NamedTuple):
    """One call of `ask_together`: how it asks, and the steps that ask each question.

    Of the votes of the same steps on a part of the samples `together` is the same.
    """

    client: JudgeClient
    form: Form
    steps: Mapping[Question, tuple[str, ...]]
    since: datetime | None
    together: tuple[str | int, ...]

    def by_step(self, questions: Iterable[Question]) -> Counter[str]:
        """How many of `questions` each step asks, in the order of their first question."""
        return Counter(step for question in questions for step in self.steps[question])
