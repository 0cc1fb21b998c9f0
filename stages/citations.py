"""Citations of a response: which retrieved contexts each of its claims cites."""

from typing import ClassVar

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.rows import Citation, SampleField
from claimflow.stages.tables import Citations, Claims, Samples, build
from claimflow.stages.text.citations import cited_by


class FindCitations(Stage):
    """The citations of each claim of the response: those of the sentence that it comes from.

    Markers such as `[1]`, `[2, 3]`, `[^1]`, `[Doc 2]`, superscript digits and URLs of retrieved
    contexts are found by rules. A number counts the contexts from 1. A marker that points to
    none is a citation without a passage.
    """

    use: ClassVar[str] = "find_citations"
    version: ClassVar[int] = 2
    by_row: ClassVar[bool] = True
    columns: ClassVar = {
        "samples": ("sample_id", "response", "retrieved_contexts"),
        # Where a claim stands follows from its words, its text and the version of its stage.
        "response_claims": ("claim_id", "sample_id", "of", "claim", "status", "start"),
    }
    expects: ClassVar = {"response_claims": {"of": "response"}}

    def required_fields(self) -> frozenset[SampleField]:
        """The text with the markers, and what they point to."""
        return frozenset({"response", "retrieved_contexts"})

    def run(self, samples: Samples, response_claims: Claims) -> Citations:
        """One row per claim and passage that it cites, in the order of the samples and claims.

        Markers that point to no passage have a row each. A sample without response or contexts
        has no row, nor has a claim without citations.
        """
        made = response_claims.filter(pl.col("status") == "made", pl.col("claim").is_not_null())
        claims: dict[str, dict[str, tuple[str, int | None]]] = {}
        columns = made.select("sample_id", "claim_id", "claim", "start")
        for sample_id, claim_id, claim, start in columns.iter_rows():
            claims.setdefault(sample_id, {})[claim_id] = claim, start
        rows = []
        texts = samples.select("sample_id", "response", "retrieved_contexts").iter_rows()
        for sample_id, response, contexts in texts:
            of_sample = claims.get(sample_id)
            if not of_sample or not response or contexts is None:
                continue
            words, starts = zip(*of_sample.values(), strict=True)
            cited = cited_by(words, response, contexts, starts)
            for claim_id, marks in zip(of_sample, cited, strict=True):
                key = {"claim_id": claim_id, "sample_id": sample_id}
                rows += [key | mark._asdict() for mark in marks]
        return build(Citation, rows)
