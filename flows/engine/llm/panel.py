"""The judges of one step as one: the first answers, all of them vote."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from claimflow.flows.engine.llm.remembered import Answer
from claimflow.stages.tools import Form, Question, Respondent, Voter


class One(Respondent, Protocol):
    """Whoever answers for one judge."""

    @property
    def identity(self) -> dict[str, Any]:
        """What could change its replies."""
        ...


class Panel:
    """An `LLM` of one judge or several, by name.

    `repeat` counts how often the same was asked on purpose: every repeat draws answers of
    its own, which are remembered beside those of the others. Repeat 0 is the usual one.
    """

    def __init__(self, judges: Mapping[str, One], *, repeat: int = 0) -> None:
        self._judges = dict(judges)
        self._repeat = repeat
        identities = [judge.identity for judge in self._judges.values()]
        self.identity = identities[0] if len(identities) == 1 else {"judges": identities}

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`, of the first judge."""
        return _Drawing(next(iter(self._judges.values())), self._repeat).ask(questions, form)

    def voters(self, votes: int) -> list[Voter]:
        """As `LLM.voters`: every judge as often as every other."""
        each = votes // len(self._judges)
        return [
            Voter(name, _Drawing(judge, self._repeat * each + number))
            for name, judge in self._judges.items()
            for number in range(each)
        ]


class _Drawing:
    """A judge that is asked for one of its draws."""

    def __init__(self, judge: One, draw: int) -> None:
        self._judge = judge
        self._draw = draw

    def ask(self, questions: Sequence[Question], form: Form) -> Mapping[Question, Answer]:
        """As `LLM.ask`."""
        return self._judge.ask(questions, form._replace(draw=self._draw))
