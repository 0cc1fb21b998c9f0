"""One exchange with the judge about some texts: render, ask, read, ask again for open ids."""

from collections.abc import Mapping
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
from claimflow.stages.tools import Failure, Form, Reply

_BETWEEN: Final = "\n\n"


def render_messages(form: Form, premise: str, texts: Mapping[int, str]) -> list[dict[str, str]]:
    """The messages of a call that asks about `texts`, by id, held against `premise`.

    The prompt above its first blank is the system message, the same in every call; a
    prompt that begins with a blank has none. The rest is the user message, with every text
    byte for byte between tags that occur in no text of the call. The tags of a premise do
    not depend on the texts asked about, so that calls which share it share their beginning
    (unless a text holds the premise's own tag).

    Raises `ValueError` for a prompt without the blank of the texts or with one that
    is neither theirs nor that of the premise.
    """
    static, varying = _parts(form.prompt, form.blank, form.about)
    name = form.blank.removesuffix("s")
    listed = list(texts.values())
    premise_tag = f"{form.about}-{unseen_digits(premise, [premise, *listed])}"
    tag = f"{name}-{unseen_digits(_BETWEEN.join(listed), [premise, *listed])}"
    blocks = [tagged_text(tag, text, f' id="{number}"') for number, text in texts.items()]
    values = {form.about: tagged_text(premise_tag, premise), form.blank: _BETWEEN.join(blocks)}
    user = {"role": "user", "content": fill(varying, values)}
    return [{"role": "system", "content": static}, user] if static.strip() else [user]


@lru_cache(maxsize=64)
def _parts(prompt: str, blank: str, about: str) -> PromptParts:
    if blank not in blanks(prompt):
        raise ValueError(f"the prompt has no blank {{{{{blank}}}}}")
    return split_prompt(prompt, {about, blank})


Answers = dict[int, Reply | Failure]
"""By the id of the text."""


class SaveCall(Protocol):
    """Records a call with the answers it gave."""

    def __call__(self, call: Call, answers: Answers, *, closes: str | None = None) -> None:
        """`closes` is the call with an open reply that was asked about again."""
        ...


class _ParsedReply(NamedTuple):
    """A reply as read: answers, problems by id, and the problem of the reply as a whole."""

    answers: Answers
    problems: dict[int, Problem]
    whole: str | None
    cut_off: bool
    repaired: bool


class Conversation:
    """Asks one judge about the texts of one form, on behalf of one step."""

    def __init__(self, client: JudgeClient, form: Form, step: str, save: SaveCall) -> None:
        self._client = client
        self._form = form
        self._step = step
        self._save = save

    async def about(self, premise: str, texts: Mapping[int, str]) -> Answers:
        """The judge's answer to each of `texts`, by id, or a `Failure`.

        Raises what `JudgeClient.exchange` raises.
        """
        messages = render_messages(self._form, premise, texts)
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
        self, first: Exchange, seen: _ParsedReply, messages: list[Message], texts: Mapping[int, str]
    ) -> Answers:
        """The only retry: the model sees its reply, what is wrong with it, and the open ids."""
        left = {number: texts[number] for number in seen.problems}
        turns = [
            *messages,
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": retry_message(seen.problems, seen.whole)},
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
        self, first: Exchange, seen: _ParsedReply, premise: str, texts: Mapping[int, str]
    ) -> Answers:
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
                answers |= await self.about(premise, {number: texts[number] for number in part})
        return answers

    async def _exchange(
        self, messages: list[Message], texts: Mapping[int, str], *, repeats: str | None = None
    ) -> Exchange:
        return await self._client.exchange(
            self._step, self._form, messages, entries=len(texts), repeats=repeats
        )

    def _read(self, exchange: Exchange, texts: Mapping[int, str]) -> _ParsedReply:
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
        self, call: Call, failure: Failure, texts: Mapping[int, str], *, closes: str | None = None
    ) -> Answers:
        answers: Answers = dict.fromkeys(texts, failure)
        # A request that was not sent is not recorded as a call.
        if failure.call_id is not None:
            call = call._replace(outcome=failure.kind, error=failure.message)
            self._save(call, answers, closes=closes)
        return answers
