"""Claim decomposition: the statements of a response or a reference, each on its own."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from stages.base import Stage
from stages.keys import content_key
from stages.prompt import Fills
from stages.rows import Claim, SampleField, Side
from stages.tables import Claims, Samples, build
from stages.text.claims import decompose


class DecomposeClaims(Stage):
    """Claims of one side of every sample, by rules: no model is asked.

    `atomicity` says how finely a sentence is split: low keeps it in one piece, high makes
    one claim of every statement in it. `coverage` says how much of it is kept: high keeps
    every detail, low the main point. The rules are of English; a sentence of another
    language is one claim. Sentences that claim nothing (questions, greetings, refusals,
    headings) give none, and a claim made twice in one text counts once. A `prompt` is for
    a language model as judge.
    """

    use: ClassVar[str] = "decompose_claims"

    of: Side
    atomicity: Literal["low", "high"] = "low"
    coverage: Literal["low", "high"] = "low"
    prompt: Annotated[str | None, Fills({"text", "atomicity", "coverage"})] = None

    def reads(self) -> frozenset[SampleField]:
        """The side that is decomposed."""
        return frozenset({self.of})

    def run(self, samples: Samples) -> Claims:
        """One row per claim, in the order of the samples and of their text.

        A sample whose text is missing, empty or without claims has no row.
        """
        return build(Claim, self._claims(samples))

    def _claims(self, samples: Samples) -> Iterator[dict[str, Any]]:
        for sample_id, text in samples.select("sample_id", self.of).iter_rows():
            for claim, start, end in decompose(
                text or "", atomicity=self.atomicity, coverage=self.coverage
            ):
                yield {
                    "claim_id": content_key("claim", sample_id, self.of, claim),
                    "sample_id": sample_id,
                    "of": self.of,
                    "claim": claim,
                    "start": start,
                    "end": end,
                }
