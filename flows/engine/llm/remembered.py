"""What a judge said before, question by question: asked once, in whatever company."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from claimflow.flows.engine.llm.rungs import reply_format
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.stages.keys import content_key
from claimflow.stages.tools import Failure, Form, Question, Reply

Answer = Reply | Failure

FINAL: Final = frozenset({"refused", "too_long"})
"""Failures that are answers: the same question would meet them again."""


class Remembered:
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
        shape = reply_format("schema", form)
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
        """Of answers by key those worth remembering, as the ledger keeps them."""
        return {
            key: _to_bytes(answer)
            for key, answer in answers.items()
            if isinstance(answer, Reply) or answer.kind in FINAL
        }


def _to_bytes(answer: Answer) -> bytes:
    if isinstance(answer, Failure):
        said: Any = {"failure": answer.kind, "message": answer.message}
    else:
        said = {"answer": answer.answer.model_dump(mode="json")}
    return json.dumps(said | {"call": answer.call_id}, ensure_ascii=False).encode()


def _from_bytes(reply: bytes, form: Form) -> Answer:
    said = json.loads(reply)
    if "failure" in said:
        return Failure(said["failure"], said["message"], said["call"])
    return Reply(form.answer.model_validate(said["answer"]), said["call"])
