"""The stage: claims of samples as rows."""

import polars as pl
import pytest
from pydantic import ValidationError

from stages.decompose import DecomposeClaims
from stages.keys import content_key
from stages.rows import Claim, Sample
from stages.tables import build, schema

TEXT = "Nikola Tesla was born in Smiljan and died in New York."


def samples(*texts: str | None) -> pl.DataFrame:
    return build(Sample, [{"sample_id": f"s{i}", "response": t} for i, t in enumerate(texts)])


def test_one_row_per_claim_in_text_order() -> None:
    stage = DecomposeClaims(of="response", atomicity="high", coverage="high")
    table = stage.make({"samples": samples(TEXT, "Rome is old.")}, {})
    assert table.rows(named=True) == [
        {
            "claim_id": content_key("claim", sample_id, "response", claim),
            "sample_id": sample_id,
            "of": "response",
            "claim": claim,
            "start": start,
            "end": end,
            "status": "made",
            "reason": None,
        }
        for sample_id, claim, start, end in [
            ("s0", "Nikola Tesla was born in Smiljan.", 0, 32),
            ("s0", "Nikola Tesla died in New York.", 37, 53),
            ("s1", "Rome is old.", 0, 12),
        ]
    ]


def test_missing_empty_and_claimless_texts_give_no_rows() -> None:
    table = DecomposeClaims(of="response").make(
        {"samples": samples(None, "", "Who?", "I don't know.")}, {}
    )
    assert table.height == 0
    assert table.schema == schema(Claim)


def test_the_defaults_keep_the_sentence() -> None:
    stage = DecomposeClaims(of="response")
    assert (stage.atomicity, stage.coverage) == ("low", "low")
    assert stage.make({"samples": samples(TEXT)}, {})["claim"].to_list() == [TEXT]


def test_the_other_side_has_other_claims() -> None:
    table = build(Sample, [{"sample_id": "s", "response": "Rome is old.", "reference": "Oslo."}])
    ids = set()
    for of, claim in (("response", "Rome is old."), ("reference", "Oslo.")):
        stage = DecomposeClaims.model_validate({"of": of})
        assert stage.reads() == {of}
        made = stage.make({"samples": table}, {})
        assert made["claim"].to_list() == [claim]
        ids |= set(made["claim_id"])
    assert len(ids) == 2


def test_equal_claims_of_two_samples_have_their_own_ids() -> None:
    table = DecomposeClaims(of="response").make(
        {"samples": samples(TEXT, TEXT, f"{TEXT} {TEXT}")}, {}
    )
    assert table["sample_id"].to_list() == ["s0", "s1", "s2"]
    assert table["claim_id"].n_unique() == 3


def test_settings_are_checked() -> None:
    with pytest.raises(ValidationError, match="'low' or 'high'"):
        DecomposeClaims.model_validate({"of": "response", "atomicity": "middle"})
