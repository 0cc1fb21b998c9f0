"""Claim verification: does a premise entail, contradict or leave open each claim?"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import polars as pl
from pydantic import Field

from stages.base import Stage
from stages.prompt import Fills
from stages.rows import Label, SampleField, Verdict
from stages.tables import Claims, Samples, Verdicts, schema
from stages.tools import EntailmentModel, Judgement, Pair

NO_PREMISE: Final = "the premise is empty"
NO_REPLY: Final = "the model gave no judgement"

_NEUTRAL: Final = Judgement(0.0, 0.0, 1.0, 0, 0)


class _Premise(NamedTuple):
    """What claims are held against: `text`, joined of `texts`; `passage` when it is one of many."""

    text: str
    texts: tuple[str, ...]
    passage: int | None = None


class VerifyClaims(Stage):
    """A verdict on every claim, by natural language inference against a field of its sample.

    Retrieved contexts are one premise, `joined` by line breaks, or a premise `each`. A
    claim is entailed when its probability reaches `threshold`; if not, it is contradicted
    when that is likelier than neutral. A `prompt` is for a language model as judge.
    """

    use: ClassVar[str] = "verify_claims"

    against: Literal["reference", "response", "retrieved_contexts"]
    premises: Literal["joined", "each"] = "joined"
    threshold: float = Field(default=0.5, ge=0, le=1)
    prompt: Annotated[str | None, Fills({"premise", "claims"})] = None

    def reads(self) -> frozenset[SampleField]:
        """The field that is the premise."""
        return frozenset({self.against})

    def run(self, samples: Samples, claims: Claims, *, model: EntailmentModel) -> Verdicts:
        """One row per claim and premise, in the order of the claims.

        A claim whose sample lacks the field has no row; nor has a row that stands for a
        failed decomposition. An empty premise entails nothing, and the model is not asked.
        Every distinct pair is asked once; one that gets no judgement gives a failed row.
        """
        fields = samples.select("sample_id", self.against).iter_rows()
        premises = {sample_id: self._premises(field) for sample_id, field in fields}
        made = claims.filter(pl.col("status") == "made", pl.col("claim").is_not_null())
        asked = [
            (claim_id, Pair(premise.text, claim), premise)
            for claim_id, sample_id, claim in made.select(
                "claim_id", "sample_id", "claim"
            ).iter_rows()
            for premise in premises.get(sample_id, ())
        ]
        pairs = dict.fromkeys(pair for _, pair, _ in asked if pair.premise.strip())
        judged = model.judge(list(pairs)) if pairs else {}
        rows = [
            {
                "claim_id": claim_id,
                "against": self.against,
                "passage": premise.passage,
                **self._verdict(pair, premise, judged),
            }
            for claim_id, pair, premise in asked
        ]
        return pl.DataFrame(rows, schema=schema(Verdict), orient="row")

    def _premises(self, field: str | list[str] | None) -> list[_Premise]:
        if field is None:
            return []
        if isinstance(field, str):
            return [_Premise(field, (field,))]
        if self.premises == "each":
            return [_Premise(text, (text,), passage) for passage, text in enumerate(field)]
        return [_Premise("\n".join(field), tuple(field))]

    def _verdict(
        self, pair: Pair, premise: _Premise, judged: Mapping[Pair, Judgement]
    ) -> dict[str, Any]:
        empty = not pair.premise.strip()
        judgement = _NEUTRAL if empty else judged.get(pair)
        if judgement is None:
            return {"verdict": None, "status": "failed", "reason": NO_REPLY}
        return {
            "verdict": self._label(judgement),
            "status": "judged",
            "p_entailed": judgement.entailed,
            "p_contradicted": judgement.contradicted,
            "p_neutral": judgement.neutral,
            "reason": NO_PREMISE if empty else None,
            **self._evidence(premise, judgement),
        }

    def _label(self, judgement: Judgement) -> Label:
        if judgement.entailed >= self.threshold:
            return "entailed"
        return "contradicted" if judgement.contradicted > judgement.neutral else "neutral"

    def _evidence(self, premise: _Premise, judgement: Judgement) -> dict[str, Any]:
        if judgement.end <= judgement.start:
            return {}
        number, start, end = _place(premise.texts, judgement.start, judgement.end)
        passage = number if premise.passage is None else premise.passage
        return {
            "evidence": premise.texts[number][start:end],
            "evidence_passage": passage if self.against == "retrieved_contexts" else None,
            "evidence_start": start,
            "evidence_end": end,
        }


def _place(texts: tuple[str, ...], start: int, end: int) -> tuple[int, int, int]:
    """Which of `texts`, joined by line breaks, the span lies in, and where there.

    A span over several texts is cut to the part in the text that holds most of it.
    """
    begins = [0, *accumulate(len(text) + 1 for text in texts)]

    def part(number: int) -> tuple[int, int]:
        begin = begins[number]
        return max(start - begin, 0), min(end - begin, len(texts[number]))

    first = bisect_right(begins, start) - 1
    last = bisect_right(begins, end - 1) - 1
    inside = range(first, min(last, len(texts) - 1) + 1)
    number = max(inside, key=lambda n: (part(n)[1] - part(n)[0], -n))
    return number, *part(number)
