"""Steps that ask together, so that questions about the same text share a call."""

import threading
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from claimflow.flows.errors import StoppedError
from claimflow.flows.judge.judge import PART, Answer, EndpointJudge
from claimflow.flows.pipeline.wiring import Step
from claimflow.stages.tools import Form, Question

_POLL_SECONDS: Final = 0.2
"""How often a waiting step checks whether the run is to stop."""


def steps_that_share(steps: Iterable[Step]) -> list[list[str]]:
    """The names of steps that ask the same judges at the same time, in groups of two or more.

    These are steps of one kind with as many steps that ask a judge before them. The claims of a
    response and of a reference, verified against the same contexts, are an example.
    """
    before: dict[str, int] = {}
    groups: dict[Hashable, list[str]] = {}
    asks = set()
    for step in steps:
        # Steps are in an order that can run.
        ahead = [before[need] + (need in asks) for need in step.needs if need in before]
        before[step.name] = max(ahead, default=0)
        if step.judges:
            asks.add(step.name)
            key = type(step.stage), step.judges, before[step.name]
            groups.setdefault(key, []).append(step.name)
    return [names for names in groups.values() if len(names) > 1]


@dataclass(eq=False)
class _Waiting:
    """What a step asks in a round; `share` is set when the round begins."""

    judge: EndpointJudge
    questions: Sequence[Question]
    form: Form
    share: "_Share | None" = None


@dataclass
class _Share:
    """The steps of a round that ask the same judge in the same form; `leader` asks for all."""

    leader: _Waiting
    questions: dict[str, list[Question]] = field(default_factory=dict)
    answers: Future[Mapping[Question, Answer]] = field(default_factory=Future)


class StepGroup:
    """Steps that ask in rounds: a round begins when each of them has asked, or has ended.

    Where a step asks about several parts of the samples at the same time, each `PART` has rounds of
    its own, in which no step is waited for that has finished this part. A step that votes has asked
    when each of its votes has. `stop` ends the wait of all. Used by the threads of the steps.
    """

    def __init__(self, steps: Collection[str], stop: threading.Event) -> None:
        self._steps = list(steps)
        self._stop = stop
        self._changed = threading.Condition()
        # In a thread of a stage's own `PART` is not set, so a step may ask twice about one part.
        self._waiting: dict[str, dict[int, list[_Waiting]]] = {step: {} for step in steps}
        # The votes of a step on a part that have not ended; 0 where it does not vote.
        self._votes: Counter[tuple[str, int]] = Counter()
        self._finished: dict[str, set[int]] = {step: set() for step in steps}

    def ask(
        self, judge: EndpointJudge, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `EndpointJudge.ask`. Raises `StoppedError` when the run is to stop."""
        asked = _Waiting(judge, questions, form)
        with self._changed:
            if step not in self._steps:
                share = None
            else:
                self._waiting[step].setdefault(PART.get(), []).append(asked)
                self._begin_complete_rounds()
                while asked.share is None and not self._stop.is_set():
                    self._changed.wait(_POLL_SECONDS)
                share = asked.share
                if share is None:
                    # No round may begin with it: others would wait for its answers for ever.
                    self._waiting[step][PART.get()].remove(asked)
                    raise StoppedError
        if share is None:
            return judge.ask(questions, form, step=step)
        if share.leader is asked:
            try:
                share.answers.set_result(judge.ask_together(share.questions, form))
            except BaseException as error:
                share.answers.set_exception(error)
        answers = share.answers.result()
        return {question: answers[question] for question in questions}

    def leave(self, step: str) -> None:
        """Do not wait for a step any more: it has ended, or asks by itself from now on."""
        with self._changed:
            if step in self._steps:
                self._steps.remove(step)
                for asked in chain.from_iterable(self._waiting.pop(step).values()):
                    asked.share = _Share(asked, {step: list(asked.questions)})
                self._begin_complete_rounds()
                self._changed.notify_all()

    def begin_votes(self, step: str, votes: int) -> None:
        """Wait for so many votes of a step in each round of this `PART`, until they end."""
        with self._changed:
            self._votes[step, PART.get()] += votes

    def end_vote(self, step: str) -> None:
        """Wait for one vote of a step less in rounds of this `PART`."""
        with self._changed:
            self._votes[step, PART.get()] -= 1
            self._begin_complete_rounds()

    def finish_part(self, step: str) -> None:
        """Do not wait for a step any more in rounds of this `PART`."""
        with self._changed:
            if step in self._steps:
                self._finished[step].add(PART.get())
                self._begin_complete_rounds()

    def _begin_complete_rounds(self) -> None:
        while any(self._begin_round(part) for part in self._parts_asked()):
            self._changed.notify_all()

    def _parts_asked(self) -> list[int]:
        return sorted({part for waiting in self._waiting.values() for part in waiting})

    def _begin_round(self, part: int) -> bool:
        """Begin a round about a part, unless a step is still to ask about it."""
        if not all(self._has_asked(step, part) for step in self._steps):
            return False
        shares: dict[Hashable, _Share] = {}
        # In the order of the steps, so that a call holds the same texts in every run.
        for step in self._steps:
            for asked in self._waiting[step].pop(part, ()):
                key = id(asked.judge), asked.form, asked.judge.since(step)
                asked.share = shares.setdefault(key, _Share(asked))
                asked.share.questions.setdefault(step, []).extend(asked.questions)
        return True

    def _has_asked(self, step: str, part: int) -> bool:
        """Whether a round about a part waits for a step no longer."""
        waiting = self._waiting[step].get(part, ())
        if not waiting:
            return part in self._finished[step]
        return len(waiting) >= self._votes[step, part]


class SharingJudge:
    """A judge as the steps of a group ask it."""

    def __init__(self, judge: EndpointJudge, group: StepGroup) -> None:
        self._judge = judge
        self._group = group

    @property
    def identity(self) -> dict[str, Any]:
        """As `EndpointJudge.identity`."""
        return self._judge.identity

    def ask(
        self, questions: Sequence[Question], form: Form, *, step: str
    ) -> Mapping[Question, Answer]:
        """As `EndpointJudge.ask`."""
        return self._group.ask(self._judge, questions, form, step=step)
