"""One exchange with the judge about some texts: render, ask, read, ask again for open ids."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from claimflow.flows.judge.calls import Call
from claimflow.flows.judge.client import Exchange, JudgeClient, Message
from claimflow.flows.judge.reply_json import read_json
from claimflow.flows.judge.reply_matching import Problem, match_entries, retry_message
from claimflow.stages.prompts import (
    PromptParts,
    blanks,
    fill,
    split_prompt,
    tagged_text,
    unseen_digits,
)
from claimflow.stages.tools import Failure, Form, Question, Reply

_BETWEEN: Final = "\n\n"

_MOST_CHARACTERS: Final = 6_000
"""Characters of all texts of a call, about 1,500 tokens. A longer text, and the texts of a longer
premise, have calls of their own: there the instructions are a small part of what is paid."""

Questions = Mapping[int, Question]
"""The questions of a call by id; those with one premise stand together."""


def batch_questions(questions: Iterable[Question], form: Form) -> Iterator[list[Question]]:
    """The questions of each call, in their order, those with one premise together.

    A call has up to `per_call` questions, with up to `premises` different premises if the prompt
    takes several, and no more than about 1,500 tokens of texts, unless a single text or premise is
    longer.
    """
    by_premise: dict[str, list[Question]] = {}
    for question in questions:
        by_premise.setdefault(question.premise, []).append(question)
    most = form.premises if f"{form.about}s" in blanks(form.prompt) else 1
    call: list[Question] = []
    premises = characters = 0
    for premise, group in by_premise.items():
        for part in _parts_of(group, form.per_call):
            size = len(premise) + sum(len(question.text) for question in part)
            full = premises == most or len(call) + len(part) > form.per_call
            if call and (full or characters + size > _MOST_CHARACTERS):
                yield call
                call, premises, characters = [], 0, 0
            call += part
            premises += 1
            characters += size
    if call:
        yield call


def _parts_of(group: Iterable[Question], per_call: int) -> Iterator[list[Question]]:
    """Questions with one premise in parts that fit in a call."""
    part: list[Question] = []
    characters = 0
    for question in group:
        size = len(question.text)
        if part and (len(part) == per_call or characters + size > _MOST_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(question)
        characters += size
    yield part


def render_messages(form: Form, questions: Questions) -> list[dict[str, str]]:
    """The messages of a call that asks `questions`.

    The prompt above its first blank is the system message, the same in every call; a
    prompt that begins with a blank has none. The rest is the user message, with every text
    byte for byte between tags that occur in no text of the call. The tags of a premise do
    not depend on the texts asked about, so that calls which share it share their beginning
    (unless a text holds the premise's own tag).

    Raises `ValueError` for a prompt without the blank of the texts or with one that
    is neither theirs nor that of the premise.
    """
    static, varying = _prompt_parts(form.prompt, form.blank, form.about)
    seen = [part for question in questions.values() for part in question]
    listed = _BETWEEN.join(question.text for question in questions.values())
    tag = f"{form.blank.removesuffix('s')}-{unseen_digits(listed, seen)}"
    premises: dict[str, list[str]] = {}
    for number, question in questions.items():
        block = tagged_text(tag, question.text, f' id="{number}"')
        premises.setdefault(question.premise, []).append(block)
    groups = [
        (
            tagged_text(f"{form.about}-{unseen_digits(premise, seen)}", premise),
            _BETWEEN.join(blocks),
        )
        for premise, blocks in premises.items()
    ]
    premise_block, blocks = groups[0]
    values = {
        form.about: premise_block,
        form.blank: blocks,
        f"{form.about}s": _BETWEEN.join(map(_BETWEEN.join, groups)),
    }
    user = {"role": "user", "content": fill(varying, values)}
    return [{"role": "system", "content": static}, user] if static.strip() else [user]


@lru_cache(maxsize=64)
def _prompt_parts(prompt: str, blank: str, about: str) -> PromptParts:
    several = f"{about}s"
    if blank not in blanks(prompt) and several not in blanks(prompt):
        raise ValueError(f"the prompt has no blank {{{{{blank}}}}}")
    return split_prompt(prompt, {about, blank, several})


Answers = dict[int, Reply | Failure]
"""By the id of the text."""


class SaveCall(Protocol):
    """Records a call with the answers it gave."""

    def __call__(self, call: Call, answers: Answers, *, closes: str | None = None) -> None:
        """`closes` is the call with an open reply that was asked about again."""
        ...


_OF_TEXTS: Final = frozenset({"refused", "too_long", "bad_request"})
"""Failures that may be due to one text of a call."""


class _ParsedReply(NamedTuple):
    """A reply as read: answers, problems by id, and the problem of the reply as a whole."""

    answers: Answers
    problems: dict[int, Problem]
    whole: str | None
    cut_off: bool
    repaired: bool


class Conversation:
    """Asks one judge questions of one form, on behalf of a step, or of several, as `step` says.

    `keys` are the ledger keys of the questions, by id. With `fresh` no reply is used that an
    earlier run received.
    """

    def __init__(
        self,
        client: JudgeClient,
        form: Form,
        step: str,
        save: SaveCall,
        *,
        keys: Mapping[int, str],
        fresh: bool = False,
    ) -> None:
        self._client = client
        self._form = form
        self._step = step
        self._save = save
        self._keys = keys
        self._fresh = fresh

    async def ask(self, questions: Questions, *, at_once: bool = False) -> Answers:
        """The judge's answer to each of `questions`, by id, or a `Failure`.

        What an answer lacks is asked again `at_once`, since the first reply may have taken the
        hours of a batch. Raises what `JudgeClient.exchange` raises.
        """
        messages = render_messages(self._form, questions)
        first = await self._exchange(messages, questions, at_once=at_once)
        if first.failure:
            return await self._failed(first, first.failure, questions)
        seen = self._read(first, questions)
        if not seen.problems:
            self._put(first, seen)
            return seen.answers
        if seen.cut_off:
            return await self._in_parts(first, seen, questions)
        self._put(first, seen, is_open=True)
        return seen.answers | await self._again(first, seen, messages, questions)

    async def _failed(self, first: Exchange, failure: Failure, questions: Questions) -> Answers:
        """After a call without a reply: what one text is to blame for must not fail the others.

        Questions about one premise stay together where it is the longest of these texts, because
        then it is what a model most likely finds too long, or declines to read.
        """
        parts = _by_premise(questions)
        if len(parts) == 1 and any(len(one.text) > len(one.premise) for one in questions.values()):
            parts = [{number: question} for number, question in questions.items()]
        if failure.kind not in _OF_TEXTS or len(parts) == 1:
            return self._give_up(first.call, failure, questions)
        self._save(first.call._replace(outcome=failure.kind, error=failure.message), {})
        answers: Answers = {}
        for part in parts:
            answers |= await self.ask(part, at_once=True)
        return answers

    async def _again(
        self, first: Exchange, seen: _ParsedReply, messages: list[Message], texts: Questions
    ) -> Answers:
        """The only retry: the model sees its reply, what is wrong with it, and the open ids."""
        left = {number: texts[number] for number in seen.problems}
        turns = [
            *messages,
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": retry_message(seen.problems, seen.whole)},
        ]
        second = await self._exchange(turns, left, repeats=first.call.call_id, at_once=True)
        if second.failure:
            return self._give_up(second.call, second.failure, left, closes=first.call.call_id)
        again = self._read(second, left)
        failures = {
            number: Failure(kind, message, second.call.call_id)
            for number, (kind, message) in again.problems.items()
        }
        self._put(second, again, closes=first.call.call_id)
        return again.answers | failures

    async def _in_parts(self, first: Exchange, seen: _ParsedReply, texts: Questions) -> Answers:
        """After a reply that was cut off: the unanswered texts in smaller calls."""
        self._put(first, seen)
        left = list(seen.problems)
        if len(left) == 1 == len(texts):
            message = "the reply was cut off; raise max_tokens"
            return {left[0]: Failure("truncated", message, first.call.call_id)}
        half = len(left) if seen.answers else -(-len(left) // 2)
        answers = seen.answers
        for part in (left[:half], left[half:]):
            if part:
                some = {number: texts[number] for number in part}
                answers |= await self.ask(some, at_once=True)
        return answers

    async def _exchange(
        self,
        messages: list[Message],
        texts: Questions,
        *,
        repeats: str | None = None,
        at_once: bool = False,
    ) -> Exchange:
        return await self._client.exchange(
            self._step,
            self._form,
            messages,
            entries=len(texts),
            repeats=repeats,
            fresh=self._fresh,
            keys=[self._keys[number] for number in texts],
            at_once=at_once,
        )

    def _read(self, exchange: Exchange, texts: Questions) -> _ParsedReply:
        """The answers in the reply, none where a part of a reply is not enough (`keep_part`)."""
        read = read_json(exchange.text, cut_off=exchange.cut_off)
        cut_off = exchange.cut_off and (read.cut or read.problem is not None)
        if read.problem is not None or (cut_off and not self._form.keep_part):
            kind = "truncated" if cut_off else read.problem or "truncated"
            problems: dict[int, Problem] = dict.fromkeys(texts, (kind, read.message))
            return _ParsedReply({}, problems, read.message or None, cut_off, False)
        matched = match_entries(read.value, self._form, list(texts))
        call_id = exchange.call.call_id
        answers: Answers = {
            number: Reply(answer, call_id) for number, answer in matched.answers.items()
        }
        repaired = read.repaired or matched.repaired
        return _ParsedReply(answers, matched.problems, None, cut_off, repaired)

    def _put(
        self,
        exchange: Exchange,
        seen: _ParsedReply,
        *,
        is_open: bool = False,
        closes: str | None = None,
    ) -> None:
        if exchange.recorded:
            return
        call = exchange.call
        if not seen.problems:
            call = call._replace(outcome="repaired" if seen.repaired else "ok")
        else:
            kind, message = next(iter(seen.problems.values()))
            outcome = "partial" if seen.answers else kind
            # The answers of a partial reply are saved; the other texts are asked about anew.
            call = call._replace(
                outcome=outcome, error=message or None, open=is_open and not seen.answers
            )
        self._save(call, seen.answers, closes=closes)

    def _give_up(
        self, call: Call, failure: Failure, texts: Questions, *, closes: str | None = None
    ) -> Answers:
        answers: Answers = dict.fromkeys(texts, failure)
        # A request that was not sent is not recorded as a call.
        if failure.call_id is not None:
            call = call._replace(outcome=failure.kind, error=failure.message)
            self._save(call, answers, closes=closes)
        return answers


def _by_premise(questions: Questions) -> list[dict[int, Question]]:
    """The questions with each premise."""
    parts: dict[str, dict[int, Question]] = {}
    for number, question in questions.items():
        parts.setdefault(question.premise, {})[number] = question
    return list(parts.values())
