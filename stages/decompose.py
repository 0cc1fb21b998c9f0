"""Claim decomposition: the statements of a response or a reference, each on its own."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.ask_claims import Decomposition, Named, ask_claims
from stages.base import Stage
from stages.keys import content_key
from stages.prompt import Fills, fill_settings
from stages.rows import Claim
from stages.tables import Claims, Samples, build
from stages.text.claims import decompose
from stages.text.locate import source_sentences
from stages.tools import LLM, Failure, Form
from stages.words import SampleField, Side


class DecomposeClaims(Stage):
    """Claims of one side of every sample, by rules or, with a `prompt`, by a language model.

    `atomicity` says how finely a sentence is split: low keeps it in one piece, high makes
    one claim of every statement in it. `coverage` says how much of it is kept: high keeps
    every detail, low the main point. The rules are of English; a sentence of another
    language is one claim. Sentences that claim nothing (questions, greetings, refusals,
    headings) give none, and a claim made twice in one text counts once. A language model
    is asked about `texts_per_call` texts at a time.
    """

    use: ClassVar[str] = "decompose_claims"
    version: ClassVar[int] = 4
    by_row: ClassVar[bool] = True

    of: Side
    atomicity: Literal["low", "high"] = "low"
    coverage: Literal["low", "high"] = "low"
    prompt: Annotated[str | None, Fills({"texts", "atomicity", "coverage"})] = None
    texts_per_call: int = Field(default=1, ge=1, le=50)

    def reads(self) -> frozenset[SampleField]:
        """The side that is decomposed."""
        return frozenset({self.of})

    def ignores(self) -> frozenset[str]:
        """The language model, where no prompt is for it."""
        return frozenset() if self.prompt else frozenset({"llm"})

    def form(self) -> Form:
        """How a language model is asked."""
        settings = {"atomicity": self.atomicity, "coverage": self.coverage}
        prompt = fill_settings(self.prompt or "", settings)
        return Form(prompt, "texts", Decomposition, self.texts_per_call, keep_part=False)

    def run(self, samples: Samples, *, llm: LLM | None = None) -> Claims:
        """One row per claim, in the order of the samples and of their text.

        A sample whose text is missing, empty or without claims has no row. One whose text
        the language model could not decompose has a row with `status` failed.
        """
        texts = dict(samples.select("sample_id", self.of).iter_rows())
        texts = {sample_id: text for sample_id, text in texts.items() if text and text.strip()}
        rows = self._by_rules(texts) if llm is None else self._by_llm(texts, llm)
        return build(Claim, rows)

    def _by_rules(self, texts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        for sample_id, text in texts.items():
            for claim, start, end in decompose(
                text, atomicity=self.atomicity, coverage=self.coverage
            ):
                yield self._row(sample_id, claim, start=start, end=end)

    def _by_llm(self, texts: Mapping[str, str], llm: LLM) -> Iterator[dict[str, Any]]:
        named = ask_claims(texts.values(), self.form(), llm)
        for sample_id, text in texts.items():
            found = named[text]
            if isinstance(found, Failure):
                yield self._row(
                    sample_id,
                    None,
                    status="failed",
                    failure=found.kind,
                    reason=found.message,
                    call_id=found.call_id,
                )
            else:
                yield from self._placed(sample_id, text, found)

    def _placed(self, sample_id: str, text: str, named: list[Named]) -> Iterator[dict[str, Any]]:
        """The claims with the sentence each was probably drawn from: models do not say."""
        spans = source_sentences([claim for claim, _ in named], text)
        for (claim, call_id), span in zip(named, spans, strict=True):
            start, end = span or (None, None)
            yield self._row(sample_id, claim, start=start, end=end, call_id=call_id)

    def _row(self, sample_id: str, claim: str | None, **rest: Any) -> dict[str, Any]:
        claim_id = content_key("claim", sample_id, self.of, claim)
        row = {"claim_id": claim_id, "sample_id": sample_id, "of": self.of, "claim": claim}
        return row | rest
