"""Claims that a judge has yet to name, guessed well enough to count what verifying them costs."""

from collections.abc import Iterator, Set
from typing import Any, Final

import polars as pl

from claimflow.flows.engine.llm.estimate import NOT_ASKED
from claimflow.stages.base import Stage
from claimflow.stages.decompose import DecomposeClaims
from claimflow.stages.rows import Claim
from claimflow.stages.tables import schema
from claimflow.stages.text.sentences import split_sentences

_BY_RULES: Final = 500
"""Texts that the rules decompose, which takes them about two milliseconds each."""


class ClaimGuesses:
    """Fills the tables of claims that a plan walks through; `steps` are those it guessed for."""

    def __init__(self) -> None:
        self._by_step: dict[str, ClaimGuess] = {}

    @property
    def steps(self) -> Set[str]:
        """The steps with claims that nobody knows yet."""
        return self._by_step.keys()

    def complete(
        self, step: str, stage: Stage, table: pl.DataFrame, samples: pl.DataFrame
    ) -> pl.DataFrame:
        """The table that a counting tool gave `step`, with claims where a judge is to be asked.

        `samples` are those that it is about. A table of anything else stays as it is.
        """
        if not isinstance(stage, DecomposeClaims):
            return table
        unknown = pl.col("failure").eq_missing(pl.lit(NOT_ASKED.kind))
        texts = samples.join(table.filter(unknown), on="sample_id", how="semi")
        if texts.is_empty():
            return table
        guess = self._by_step.setdefault(step, ClaimGuess(stage))
        return pl.concat([table.filter(~unknown), guess.claims(texts)])


class ClaimGuess:
    """Guesses the claims that a step's judge would name.

    The rules make those of the first texts. Of every other text its sentences are taken, as
    many more or fewer as the rules made claims of the sentences they saw.
    """

    def __init__(self, stage: DecomposeClaims) -> None:
        self._stage = stage.model_copy(update={"prompt": None})
        self._left = _BY_RULES
        self._claims = self._sentences = 0
        self._due = 0.0

    def claims(self, samples: pl.DataFrame) -> pl.DataFrame:
        """A table of claims of `samples`, for counting and for nothing else."""
        first, rest = samples.head(self._left), samples.slice(self._left)
        self._left -= first.height
        by_rules = self._stage.run(first)
        self._claims += by_rules.height
        self._sentences += sum(len(_sentences(text)) for text in first[self._stage.of])
        by_sentence = pl.DataFrame(list(self._rows(rest)), schema=schema(Claim))
        return pl.concat([by_rules, by_sentence])

    def _rows(self, samples: pl.DataFrame) -> Iterator[dict[str, Any]]:
        claims_of_one = self._claims / self._sentences if self._sentences else 1.0
        for sample_id, text in samples.select("sample_id", self._stage.of).iter_rows():
            sentences = _sentences(text)
            self._due += claims_of_one * len(sentences)
            # What is rounded off here is added to the next text, so that the sum is right.
            count = round(self._due)
            self._due -= count
            for number in range(count):
                again, which = divmod(number, len(sentences))
                claim = sentences[which] + " again" * again
                claim_id = f"{sample_id} {number}"
                of = self._stage.of
                row = {"claim_id": claim_id, "sample_id": sample_id, "of": of, "claim": claim}
                yield row | {"status": "made"}


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]
