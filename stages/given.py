"""Claims that people give: rows of them, each with the sentence that it is probably about."""

from collections.abc import Iterable
from typing import Any

from claimflow.stages.keys import content_key
from claimflow.stages.text.locate import source_sentences
from claimflow.stages.words import Side


def given_claims(
    sample_id: str, of: Side, claims: Iterable[str], text: str | None
) -> list[dict[str, Any]]:
    """One row for each of `claims`, in their order; one that is given twice counts once.

    The words are taken as they are. `start` and `end` are those of the sentence of `text` that
    shares most of a claim's words, NULL where none does or there is no text.
    """
    distinct = list(dict.fromkeys(claims))
    places = source_sentences(distinct, text or "")
    rows = []
    for claim, place in zip(distinct, places, strict=True):
        start, end = place or (None, None)
        rows.append(claim_row(sample_id, of, claim) | {"start": start, "end": end})
    return rows


def claim_row(sample_id: str, of: Side, claim: str | None) -> dict[str, Any]:
    """The row of a claim, known by what it says of which text; None where there is none."""
    key = content_key("claim", sample_id, of, claim)
    return {"claim_id": key, "sample_id": sample_id, "of": of, "claim": claim}
