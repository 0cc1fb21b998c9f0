"""What a judge says of some texts: asked, read, and asked once more for what is open."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from claimflow.flows.engine.llm.calls import Call
from claimflow.flows.engine.llm.line import Exchange, Line, Message
from claimflow.flows.engine.llm.matching import Problem, match, reask
from claimflow.flows.engine.llm.reading import read_json
from claimflow.flows.engine.llm.render import render
from claimflow.stages.tools import Failure, Form, Reply

Answers = dict[int, Reply | Failure]
"""By the id of the text."""


class Save(Protocol):
    """Puts a call on record, with what it settled."""

    def __call__(self, call: Call, answers: Answers, *, closes: str | None = None) -> None:
        """`closes` is the call with an open reply that was asked about again."""
        ...


class _Seen(NamedTuple):
    """A reply as it was read: answers, what is wrong with the others, and with all of it."""

    answers: Answers
    problems: dict[int, Problem]
    whole: str | None
    cut_off: bool
    repaired: bool


class Conversation:
    """Asks one judge about the texts of one form, on behalf of one step."""

    def __init__(self, line: Line, form: Form, step: str, save: Save) -> None:
        self._line = line
        self._form = form
        self._step = step
        self._save = save

    async def about(self, premise: str, texts: Mapping[int, str]) -> Answers:
        """What the judge says of each of `texts`, by id, or why it says nothing.

        Raises what `Line.exchange` raises.
        """
        messages = render(self._form, premise, texts)
        first = await self._exchange(messages, texts)
        if first.failure:
            return self._give_up(first.call, first.failure, texts)
        seen = self._read(first, texts)
        if not seen.problems:
            self._put(first, seen)
            return seen.answers
        if seen.cut_off:
            return await self._in_parts(first, seen, premise, texts)
        self._put(first, seen, is_open=True)
        return seen.answers | await self._again(first, seen, messages, texts)

    async def _again(
        self, first: Exchange, seen: _Seen, messages: list[Message], texts: Mapping[int, str]
    ) -> Answers:
        """The one re-ask: the model sees its reply, what is wrong with it, and the open ids."""
        left = {number: texts[number] for number in seen.problems}
        turns = [
            *messages,
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": reask(seen.problems, seen.whole)},
        ]
        second = await self._exchange(turns, left, repeats=first.call.call_id)
        if second.failure:
            return self._give_up(second.call, second.failure, left, closes=first.call.call_id)
        again = self._read(second, left)
        failures = {
            number: Failure(kind, message, second.call.call_id)
            for number, (kind, message) in again.problems.items()
        }
        self._put(second, again, closes=first.call.call_id)
        return again.answers | failures

    async def _in_parts(
        self, first: Exchange, seen: _Seen, premise: str, texts: Mapping[int, str]
    ) -> Answers:
        """After a reply that was cut off: what it left open, in calls that ask for less."""
        self._put(first, seen)
        left = list(seen.problems)
        if len(left) == 1 == len(texts):
            message = "the reply was cut off; raise max_tokens"
            return {left[0]: Failure("truncated", message, first.call.call_id)}
        half = len(left) if seen.answers else -(-len(left) // 2)
        answers = seen.answers
        for part in (left[:half], left[half:]):
            if part:
                answers |= await self.about(premise, {number: texts[number] for number in part})
        return answers

    async def _exchange(
        self, messages: list[Message], texts: Mapping[int, str], *, repeats: str | None = None
    ) -> Exchange:
        return await self._line.exchange(
            self._step, self._form, messages, entries=len(texts), repeats=repeats
        )

    def _read(self, exchange: Exchange, texts: Mapping[int, str]) -> _Seen:
        """What the reply says of each of `texts`; of no text when it may not be taken in part."""
        read = read_json(exchange.text, cut_off=exchange.cut_off)
        cut_off = exchange.cut_off and (read.cut or read.problem is not None)
        if read.problem is not None or (cut_off and not self._form.keep_part):
            kind = "truncated" if cut_off else read.problem or "truncated"
            problems: dict[int, Problem] = dict.fromkeys(texts, (kind, read.message))
            return _Seen({}, problems, read.message or None, cut_off, False)
        matched = match(read.value, self._form, list(texts))
        call_id = exchange.call.call_id
        answers: Answers = {
            number: Reply(answer, call_id) for number, answer in matched.answers.items()
        }
        repaired = read.repaired or matched.repaired
        return _Seen(answers, matched.problems, None, cut_off, repaired)

    def _put(
        self, exchange: Exchange, seen: _Seen, *, is_open: bool = False, closes: str | None = None
    ) -> None:
        if exchange.recorded:
            return
        call = exchange.call
        if not seen.problems:
            call = call._replace(outcome="repaired" if seen.repaired else "ok")
        else:
            kind, message = next(iter(seen.problems.values()))
            outcome = "partial" if seen.answers else kind
            # An answer in part is remembered as such; what it leaves open is asked afresh.
            call = call._replace(
                outcome=outcome, error=message or None, open=is_open and not seen.answers
            )
        self._save(call, seen.answers, closes=closes)

    def _give_up(
        self, call: Call, failure: Failure, texts: Mapping[int, str], *, closes: str | None = None
    ) -> Answers:
        answers: Answers = dict.fromkeys(texts, failure)
        # What was not sent is no call.
        if failure.call_id is not None:
            call = call._replace(outcome=failure.kind, error=failure.message)
            self._save(call, answers, closes=closes)
        return answers
