"""Tools that count calls and tokens without asking an endpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.judge.budget import cost_of
from claimflow.flows.judge.call_statistics import CHARACTERS_PER_TOKEN, CallStatistics
from claimflow.flows.judge.conversation import render_messages
from claimflow.flows.judge.judge import Answer, Batch, LedgerAnswers, batch_questions
from claimflow.flows.judge.provider import Price, Usage
from claimflow.flows.pipeline.model_settings import EmbeddingEndpoint, Judge
from claimflow.flows.store.ledger import Ledger
from claimflow.stages.rows import content_key
from claimflow.stages.text.sentences import split_sentences
from claimflow.stages.tools import Failure, Form, Question

NOT_ASKED: Final = Failure("not_asked", "nobody was asked")

_PER_VERDICT: Final = 60
_PER_CLAIM: Final = 25
"""Tokens of a reply, where no call on record tells."""


class CascadeEstimate(NamedTuple):
    """Verdicts that the embedded model would settle, leave to the judge, and see audited by it;
    `calls_saved` are those that the judge would be sent without the cascade, beyond those it is.
    """

    settled: int
    referred: int
    audited: int
    calls_saved: int


class Estimate(NamedTuple):
    """What a step would ask of the endpoint that `who` names, a judge or the embedder.

    `parts` is what it would ask of each, where there are several, `cascade` what one would do.

    `calls` is what a run sends when every reply can be used. It is a guess where `about` says
    so: claims are not known yet, or not all samples were looked at. `answers` are on file and
    not asked for. Tokens are estimates; `cost` is in US dollars, as though no provider had
    any of it cached, and None where nobody knows the price.
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


def combine(parts: Sequence[Estimate]) -> Estimate:
    """What a step asks of all its endpoints; `parts` says what of each, where they are several."""
    if len(parts) == 1:
        return parts[0]
    costs = [part.cost for part in parts if part.cost is not None]
    return Estimate(
        " and ".join(part.who for part in parts),
        sum(part.calls for part in parts),
        sum(part.answers for part in parts),
        sum(part.prompt_tokens for part in parts),
        sum(part.completion_tokens for part in parts),
        sum(costs, Decimal(0)) if len(costs) == len(parts) else None,
        any(part.about for part in parts),
        tuple(parts),
    )


@dataclass
class Tally:
    """What was counted so far."""

    calls: int = 0
    answers: int = 0
    prompt_tokens: float = 0
    completion_tokens: float = 0

    def estimate(self, who: str, price: Price | None, *, scale: float, about: bool) -> Estimate:
        """What all samples would ask, `scale` times what was counted."""
        prompt, completion = (
            round(self.prompt_tokens * scale),
            round(self.completion_tokens * scale),
        )
        cost = cost_of(Usage(prompt, None, completion), price) if self.calls else Decimal(0)
        calls, answers = round(self.calls * scale), round(self.answers * scale)
        return Estimate(who, calls, answers, prompt, completion, cost, about)


class CountingJudge:
    """Counts what a judge would be asked.

    Asked are questions that neither the ledger nor `asked` knows, which is shared by all
    steps: what one asks, the others need not. `tally` counts requests as they are made when
    every reply can be used. With `fresh` what the ledger knows is asked anew, with `since` what
    it knew before that moment.
    """

    def __init__(
        self,
        judge: Judge,
        ledger: Ledger,
        habits: CallStatistics,
        asked: set[str],
        *,
        fresh: bool = False,
        since: datetime | None = None,
    ) -> None:
        self.tally = Tally()
        self.identity = judge.identity()
        self._remembered = LedgerAnswers(ledger, self.identity)
        self._habits = habits
        self._most = judge.max_tokens
        self._fresh = fresh
        self._since = since
        self._asked = asked

    def ask(
        self,
        questions: Sequence[Question],
        form: Form,
        *,
        step: str = "",  # noqa: ARG002
    ) -> Mapping[Question, Answer]:
        """As `EndpointJudge.ask`; a question without an answer on file is a failure `not_asked`."""
        keys = self._remembered.keys(questions, form)
        known = {} if self._fresh else keys
        answers = self._remembered.recall(known, form, since=self._since)
        self.tally.answers += len(answers)
        missing = [q for q, key in keys.items() if q not in answers and key not in self._asked]
        self._asked.update(keys[question] for question in missing)
        for batch in batch_questions(missing, form.per_call):
            self._count(batch, form)
        return {question: answers.get(question, NOT_ASKED) for question in keys}

    def _count(self, batch: Batch, form: Form) -> None:
        texts = {number: question.text for number, question in batch.questions.items()}
        messages = render_messages(form, batch.premise, texts)
        characters = sum(len(message["content"]) for message in messages)
        said = sum(self._said_of(text, form) for text in texts.values())
        self.tally.calls += 1
        self.tally.prompt_tokens += characters / self._habits.characters_per_token
        self.tally.completion_tokens += said if self._most is None else min(said, self._most)

    def _said_of(self, text: str, form: Form) -> float:
        """Tokens that a reply spends on a text."""
        observed = self._habits.per_entry.get(form.blank)
        if observed is not None:
            return observed
        if form.blank == "texts":
            return _PER_CLAIM * max(len(split_sentences(text)), 1)
        return _PER_VERDICT


class CountingEmbedder:
    """An `Embedder` that counts what an endpoint would be asked, as `CountingJudge` does."""

    def __init__(
        self,
        endpoint: EmbeddingEndpoint,
        ledger: Ledger,
        asked: set[str],
        *,
        fresh: bool = False,
    ) -> None:
        self.tally = Tally()
        self._identity = endpoint.identity()
        self._per_call = endpoint.texts_per_call
        self._ledger = ledger
        self._fresh = fresh
        self._asked = asked

    def embed(self, texts: Sequence[str]) -> pl.DataFrame:
        """As `Embedder.embed`; no text has an embedding."""
        keys = {text: content_key("embedding", self._identity, text) for text in texts}
        known = set() if self._fresh else self._ledger.recall(list(keys.values())).keys()
        self.tally.answers += len(known)
        missing = [text for text, key in keys.items() if key not in known | self._asked]
        self._asked.update(keys[text] for text in missing)
        self.tally.calls += -(-len(missing) // self._per_call)
        self.tally.prompt_tokens += sum(map(len, missing)) / CHARACTERS_PER_TOKEN
        return pl.DataFrame(schema={"text": pl.String, "embedding": pl.Array(pl.Float32, 1)})
