"""The `LLM` tool of a step: one judge, or several that vote."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple, Protocol

from claimflow.flows.judge.judge import Answer
from claimflow.flows.judge.sharing import StepGroup
from claimflow.stages.tools import Form, Question, Respondent, Result


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
    are independent and have ledger keys of their own. 0 is the normal run. `group` are the steps
    that this one asks together with. At most `threads` votes are asked at the same time, by
    default all of them.
    """

    def __init__(
        self,
        judges: Mapping[str, Judging],
        *,
        step: str = "",
        repeat: int = 0,
        group: StepGroup | None = None,
        threads: int | None = None,
    ) -> None:
        self._judges = dict(judges)
        self._step = step
        self._repeat = repeat
        self._group = group
        self._threads = threads
        identities = [judge.identity for judge in self._judges.values()]
        self.identity = identities[0] if len(identities) == 1 else {"judges": identities}

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`, of the first judge."""
        first = next(iter(self._judges.values()))
        return first.ask(questions, form._replace(draw=self._repeat), step=self._step)

    def vote(self, votes: int, ask: Callable[[Respondent], Result]) -> list[tuple[str, Result]]:
        """As `LLM.vote`: every judge votes as often as every other."""
        each = votes // len(self._judges)
        voters = [
            (name, _Voter(judge, self._step, self._repeat * each + number))
            for name, judge in self._judges.items()
            for number in range(each)
        ]
        if self._group:
            self._group.begin_votes(self._step, len(voters))

        def asked(voter: _Voter) -> Result:
            try:
                return ask(voter)
            finally:
                if self._group:
                    self._group.end_vote(self._step)

        # One batch holds the questions of all votes, and a slow judge holds up no other.
        with ThreadPoolExecutor(self._threads or len(voters), "vote") as threads:
            found = [(name, threads.submit(copy_context().run, asked, one)) for name, one in voters]
        return [(name, result.result()) for name, result in found]


class _Voter(NamedTuple):
    """One of the independent answers of a judge, as a `Respondent`."""

    judge: Judging
    step: str
    draw: int

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`."""
        return self.judge.ask(questions, form._replace(draw=self.draw), step=self.step)
