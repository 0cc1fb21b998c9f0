"""Estimates of calls, tokens and cost: tools that count requests without sending them."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.judge.budget import cost_of
from claimflow.flows.judge.call_statistics import CHARACTERS_PER_TOKEN, recall_call_statistics
from claimflow.flows.judge.conversation import batch_questions, render_messages
from claimflow.flows.judge.judge import Answer, LedgerAnswers
from claimflow.flows.judge.provider import Price, Usage, endpoint_identity
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Judge
from claimflow.flows.store.batches import Batches
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.tools import Failure, Form, Question

NOT_ASKED: Final = Failure("not_asked", "counted only, no request was sent")

_FEWEST_CACHED: Final = 1_024
"""Tokens from which on OpenAI and most other providers cache the beginning of a prompt."""

_PER_VERDICT: Final = 60
_PER_CLAIM: Final = 25
"""Tokens of a reply for each verdict and claim, until there are calls on record."""


class CascadeEstimate(NamedTuple):
    """Verdicts that the embedded model would settle, refer to the judge, and have audited by it.

    `calls_saved` is the number of calls to the judge that the cascade saves.
    """

    settled: int
    referred: int
    audited: int
    calls_saved: int


class Estimate(NamedTuple):
    """The calls of a step to the endpoint named `who`, a judge or the embedder.

    `calls` is what a run sends when every reply can be used; with `about` it is a guess, because
    claims are not known yet or not all samples were counted. `answers` are in the ledger and not
    requested. Tokens are estimates. `cost` is in US dollars, None where the price is unknown; it
    counts instructions of 1,024 tokens or more as cached from the second call on. `parts` holds
    the estimate of each endpoint where there are several, `cascade` that of a cascade.
    `shared_with` names steps in whose calls some questions are asked: those calls are counted
    there. `submitted` calls are in batches that have not ended, and are not among `calls`;
    `reserved` is what they may cost, None where that is unknown.
    """

    who: str
    calls: int = 0
    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal | None = Decimal(0)
    about: bool = False
    parts: tuple["Estimate", ...] = ()
    cascade: CascadeEstimate | None = None
    shared_with: tuple[str, ...] = ()
    submitted: int = 0
    reserved: Decimal | None = Decimal(0)


def combine(parts: Sequence[Estimate]) -> Estimate:
    """The estimate of a step for all its endpoints; several are kept in `parts`."""
    if len(parts) == 1:
        return parts[0]
    costs = [part.cost for part in parts if part.cost is not None]
    reserved = [part.reserved for part in parts if part.reserved is not None]
    return Estimate(
        " and ".join(part.who for part in parts),
        sum(part.calls for part in parts),
        sum(part.answers for part in parts),
        sum(part.prompt_tokens for part in parts),
        sum(part.completion_tokens for part in parts),
        sum(costs, Decimal(0)) if len(costs) == len(parts) else None,
        any(part.about for part in parts),
        tuple(parts),
        submitted=sum(part.submitted for part in parts),
        reserved=sum(reserved, Decimal(0)) if len(reserved) == len(parts) else None,
    )


@dataclass
class Tally:
    """Calls, ledger answers and tokens counted so far."""

    calls: int = 0
    answers: int = 0
    prompt_tokens: float = 0
    cached_tokens: float = 0
    completion_tokens: float = 0
    submitted: int = 0
    reserved: Decimal | None = Decimal(0)

    def estimate(self, who: str, price: Price | None, *, scale: float, about: bool) -> Estimate:
        """The estimate for all samples: `scale` times what was counted."""
        counted = self.prompt_tokens, self.cached_tokens, self.completion_tokens
        prompt, cached, completion = (round(tokens * scale) for tokens in counted)
        cost = cost_of(Usage(prompt, cached, completion), price) if self.calls else Decimal(0)
        calls, answers = round(self.calls * scale), round(self.answers * scale)
        submitted = round(self.submitted * scale)
        reserved = None if self.reserved is None else self.reserved * Decimal(scale)
        return Estimate(
            *(who, calls, answers, prompt, completion, cost, about),
            submitted=submitted,
            reserved=reserved,
        )


class SharedCalls:
    """Counts the calls of steps that ask together, once all of them have asked.

    A call is counted for the step of its first question; `shared_with` says for each other step
    for which steps its questions were counted.
    """

    def __init__(self) -> None:
        self.shared_with: dict[str, dict[str, None]] = {}
        self._asked: dict[Hashable, tuple[Form, dict[Question, tuple[str, CountingJudge]]]] = {}

    def add(
        self,
        judge: "CountingJudge",
        questions: Iterable[Question],
        form: Form,
        *,
        name: str,
        step: str,
    ) -> None:
        """Note what a step asks the judge of that name."""
        _, asked = self._asked.setdefault((name, judge.fresh, form), (form, {}))
        asked.update((question, (step, judge)) for question in questions)

    def count(self) -> None:
        """Count the calls of all that was asked since the last time."""
        for form, asked in self._asked.values():
            if not asked:
                continue
            _, judge = next(iter(asked.values()))
            for batch in batch_questions(judge.not_submitted(list(asked), form), form):
                first, judge = asked[batch[0]]
                judge.count(batch, form)
                for step in {asked[question][0] for question in batch} - {first}:
                    self.shared_with.setdefault(step, {})[first] = None
        self._asked.clear()


class CountingJudge:
    """Counts the requests that a judge would be sent.

    Counted are questions that are neither in the ledger nor in `asked`, the keys that all steps
    share, since steps with the same question send it once. `tally` counts requests as they are
    sent when every reply can be used. `fresh` ignores the ledger, `since` ignores what was in it
    before that moment. With `shared` the requests are counted there, with those of other steps.
    """

    def __init__(
        self,
        judge: Judge,
        ledger: Ledger,
        asked: set[str],
        *,
        name: str = "",
        fresh: bool = False,
        since: datetime | None = None,
        shared: SharedCalls | None = None,
    ) -> None:
        self.tally = Tally()
        self.identity = endpoint_identity(judge)
        self._name = name
        self._shared = shared
        self._remembered = LedgerAnswers(ledger, self.identity)
        self._batches = Batches(ledger.store)
        address = self.identity["api_base"]
        self._statistics = recall_call_statistics(ledger.store, judge.model, address)
        self._max_tokens = judge.max_tokens
        self.fresh = fresh
        self._since = since
        self._asked = asked

    def ask(
        self,
        questions: Sequence[Question],
        form: Form,
        *,
        step: str = "",
    ) -> Mapping[Question, Answer]:
        """As `EndpointJudge.ask`; questions without an answer in the ledger fail as `not_asked`."""
        keys = self._remembered.keys(questions, form)
        known = {} if self.fresh else keys
        answers = self._remembered.recall(known, form, since=self._since)
        self.tally.answers += len(answers)
        missing = [q for q, key in keys.items() if q not in answers and key not in self._asked]
        self._asked.update(keys[question] for question in missing)
        if self._shared:
            self._shared.add(self, missing, form, name=self._name, step=step)
        else:
            for batch in batch_questions(self.not_submitted(missing, form), form):
                self.count(batch, form)
        return {question: answers.get(question, NOT_ASKED) for question in keys}

    def not_submitted(self, questions: Sequence[Question], form: Form) -> list[Question]:
        """The questions that no open batch asks; the calls of others are counted as submitted.

        Those of all steps that share calls are given together, as a call asks for several.
        """
        missing = self._remembered.keys(questions, form)
        if self.fresh or not missing:
            return list(missing)
        calls = self._batches.open_calls(list(missing.values()), since=self._since)
        self.tally.submitted += len(calls)
        for call in calls:
            if self.tally.reserved is None or call.reserved is None:
                self.tally.reserved = None
                break
            self.tally.reserved += call.reserved
        submitted = {key for call in calls for key in call.keys}
        return [question for question, key in missing.items() if key not in submitted]

    def count(self, batch: Sequence[Question], form: Form) -> None:
        """Count a call that asks these questions."""
        messages = render_messages(form, dict(enumerate(batch, 1)))
        characters = sum(len(message["content"]) for message in messages)
        reply_tokens = sum(self._reply_tokens(question.text, form) for question in batch)
        per_token = self._statistics.characters_per_token
        instructions = len(messages[0]["content"]) / per_token if len(messages) > 1 else 0.0
        if instructions >= _FEWEST_CACHED and self.tally.calls:
            self.tally.cached_tokens += instructions
        self.tally.calls += 1
        self.tally.prompt_tokens += characters / per_token
        limit = self._max_tokens
        self.tally.completion_tokens += reply_tokens if limit is None else min(reply_tokens, limit)

    def _reply_tokens(self, text: str, form: Form) -> float:
        """Tokens that a reply spends on a text."""
        observed = self._statistics.per_entry.get(form.blank)
        if observed is not None:
            return observed
        if form.blank == "texts":
            return _PER_CLAIM * max(len(split_sentences(text)), 1)
        return _PER_VERDICT


class CountingEmbedder:
    """An `Embedder` that counts the requests to an endpoint, as `CountingJudge` does."""

    def __init__(
        self,
        endpoint: EmbeddingEndpoint,
        ledger: Ledger,
        asked: set[str],
        *,
        fresh: bool = False,
        since: datetime | None = None,
    ) -> None:
        self.tally = Tally()
        self._identity = endpoint_identity(endpoint)
        self._per_call = endpoint.texts_per_call
        self._ledger = ledger
        self._fresh = fresh
        self._since = since
        self._asked = asked

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `Embedder.embed`; no text has an embedding."""
        keys = {text: content_key("embedding", self._identity, text) for text in texts}
        asked = [] if self._fresh else list(keys.values())
        known = self._ledger.recall(asked, since=self._since).keys()
        self.tally.answers += len(known)
        missing = [text for text, key in keys.items() if key not in known | self._asked]
        self._asked.update(keys[text] for text in missing)
        self.tally.calls += -(-len(missing) // self._per_call)
        self.tally.prompt_tokens += sum(map(len, missing)) / CHARACTERS_PER_TOKEN
        return pl.DataFrame(schema={"text": pl.String, "embedding": pl.Array(pl.Float32, 1)})
