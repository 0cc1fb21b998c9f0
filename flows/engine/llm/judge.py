"""The `LLM` tool: a judge that is asked nothing twice, by however many steps."""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from claimflow.flows.engine.endpoints import Judge
from claimflow.flows.engine.llm.calls import Call
from claimflow.flows.engine.llm.conversation import Answers, Conversation
from claimflow.flows.engine.llm.crew import Crew
from claimflow.flows.engine.llm.line import Line, open_line
from claimflow.flows.engine.llm.remembered import Answer, Remembered
from claimflow.flows.engine.llm.session import Session
from claimflow.stages.tools import Form, Question


class Batch(NamedTuple):
    """Questions about one premise that go in one call, by the id that each has in it."""

    premise: str
    questions: dict[int, Question]


class LitellmJudge:
    """A language model for all steps of a run that ask it."""

    def __init__(self, name: str, judge: Judge, session: Session) -> None:
        self.identity = judge.identity()
        self._name = name
        self._judge = judge
        self._session = session
        self._remembered = Remembered(session.ledger, self.identity)
        self._crew = Crew(judge.max_concurrency, session.stop)
        self._turn = threading.Lock()
        self._line: Line | None = None
        self._flying: dict[str, asyncio.Future[Answer]] = {}
        self._landings = 0

    def ask(
        self, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `LLM.ask`, for the step of that name. Everything returned is on file.

        Raises `JudgeError` when the endpoint cannot be used and `StoppedError` when the run
        is to stop.
        """
        keys = self._remembered.keys(questions, form)
        landings = self._landings
        known = self._remembered.recall(keys, form, since=self._session.since(step))
        missing = {question: key for question, key in keys.items() if question not in known}
        if not missing:
            return known
        with self._turn:
            self._line = self._line or open_line(self._name, self._judge, self._session)
        conversing = _Conversing(self._line, form, step)
        return known | self._session.loop.run(self._find_out(missing, conversing, landings))

    async def _find_out(
        self, missing: Mapping[Question, str], conversing: "_Conversing", landings: int
    ) -> dict[Question, Answer]:
        """The answers to questions by key: those that another step is asking, from there.

        `missing` was found when `landings` steps had been told what they asked; what more of
        them have been told since is on file by now.
        """
        told: dict[Question, Answer] = {}
        while landings != self._landings:
            landings = self._landings
            since = self._session.since(conversing.step)
            told = await asyncio.to_thread(
                self._remembered.recall, missing, conversing.form, since=since
            )
        missing = {question: key for question, key in missing.items() if question not in told}
        elsewhere = {q: self._flying[key] for q, key in missing.items() if key in self._flying}
        ours = {question: key for question, key in missing.items() if question not in elsewhere}
        loop = asyncio.get_running_loop()
        self._flying |= {key: loop.create_future() for key in ours.values()}

        answered = 0

        async def settle(batch: Batch) -> None:
            nonlocal answered
            await self._settle(batch, ours, conversing)
            answered += len(batch.questions)
            self._session.answered(conversing.step, answered, len(ours))

        try:
            batches = batched(ours, conversing.form.per_call)
            await self._crew.work_through(batches, settle)
            answers = {question: self._flying[key].result() for question, key in ours.items()}
            for question, answer in elsewhere.items():
                answers[question] = await self._crew.patiently(asyncio.shield(answer))
            return told | answers
        finally:
            try:
                await self._session.saver.saved()
            finally:
                for key in ours.values():
                    self._flying.pop(key).cancel()
                self._landings += 1

    async def _settle(
        self, batch: Batch, keys: Mapping[Question, str], conversing: "_Conversing"
    ) -> None:
        def save(call: Call, answers: Answers, *, closes: str | None = None) -> None:
            told = {keys[batch.questions[number]]: found for number, found in answers.items()}
            self._session.saver.add(call, self._remembered.replies(told), closes=closes)

        await self._session.saver.keep_up()
        texts = {number: question.text for number, question in batch.questions.items()}
        answers = await Conversation(*conversing, save).about(batch.premise, texts)
        for number, question in batch.questions.items():
            self._flying[keys[question]].set_result(answers[number])


class _Conversing(NamedTuple):
    line: Line
    form: Form
    step: str


def batched(questions: Iterable[Question], per_call: int) -> Iterator[Batch]:
    """The questions in groups of up to `per_call` that share a premise, in their order."""
    by_premise: dict[str, list[Question]] = {}
    for question in questions:
        by_premise.setdefault(question.premise, []).append(question)
    for premise, group in by_premise.items():
        for start in range(0, len(group), per_call):
            yield Batch(premise, dict(enumerate(group[start : start + per_call], 1)))
