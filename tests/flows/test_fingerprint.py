from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from claimflow.flows.store.fingerprint import Digest, step_fingerprint, step_recipe
from claimflow.stages.rows import Score, Verdict, content_key
from claimflow.stages.scores.answer_metrics import AnswerCorrectness
from claimflow.stages.scores.claim_metrics import FactualCorrectness
from claimflow.stages.tables import build

CLAIM = "00000000-0000-0000-0000-000000000001"
WIRES = {"samples": "samples", "response_claims": "claims"}
DIGESTS = {"samples": "a", "claims": "b"}


def digest(row, *frames: pl.DataFrame) -> str:
    whole = Digest(row)
    for frame in frames:
        whole.add(frame)
    return whole.value()


def verdict(**changes) -> pl.DataFrame:
    fields = {
        "claim_id": CLAIM,
        "against": "reference",
        "verdict": "entailed",
    }
    return build(Verdict, [fields | changes])


def test_digest_depends_on_the_columns_that_stages_read() -> None:
    assert digest(Verdict, verdict()) != digest(Verdict, verdict(verdict="neutral"))
    assert digest(Verdict, verdict()) != digest(Verdict, verdict(), verdict(against="response"))


def test_digest_ignores_audit_columns() -> None:
    assert digest(Verdict, verdict()) == digest(
        Verdict, verdict(reason="because", p_entailed=0.9, evidence="so it stands")
    )


def test_digest_of_an_empty_table_depends_on_its_kind() -> None:
    assert digest(Verdict) != digest(Score)


@given(st.lists(st.floats(0, 1), max_size=20), st.integers(0, 20))
def test_digest_does_not_depend_on_how_a_table_is_split(values: list[float], cut: int) -> None:
    frame = build(
        Score,
        [
            {"sample_id": str(i), "metric": "m", "score": value, "status": "scored"}
            for i, value in enumerate(values)
        ],
    )
    assert digest(Score, frame) == digest(Score, frame.head(cut), frame.slice(cut))


def test_fingerprint_depends_on_settings_version_contents_and_tools() -> None:
    stage = FactualCorrectness()
    base = step_fingerprint(stage, WIRES, DIGESTS, {})

    class Later(FactualCorrectness):
        version = FactualCorrectness.version + 1

    others = [
        step_fingerprint(FactualCorrectness(beta=2.0), WIRES, DIGESTS, {}),
        step_fingerprint(Later(), WIRES, DIGESTS, {}),
        step_fingerprint(stage, WIRES, DIGESTS | {"claims": "c"}, {}),
        step_fingerprint(stage, WIRES, DIGESTS, {"model": {"name": "other"}}),
        step_fingerprint(stage, {"samples": "samples"}, DIGESTS, {}),
    ]
    assert len({base, *others}) == 6


def test_fingerprint_does_not_depend_on_the_names_of_steps() -> None:
    stage = FactualCorrectness()
    renamed = step_fingerprint(
        stage, WIRES | {"response_claims": "other"}, DIGESTS | {"other": "b"}, {}
    )
    assert renamed == step_fingerprint(stage, WIRES, DIGESTS, {})


def test_a_setting_of_a_later_release_counts_unless_it_is_the_default() -> None:
    """Tables of answer correctness that were stored before these settings came are reused."""
    later: list[dict[str, Any]] = [{"recall_of": "reference"}, {"count": "probabilities"}]
    default = AnswerCorrectness()
    by_response = step_recipe(default, {})
    others = {step_recipe(AnswerCorrectness.model_validate(one), {}) for one in later}
    assert len({by_response, *others}) == 3
    assert not {"recall_of", "count"} & default.fingerprint_settings().keys()
    settings = default.model_dump(mode="json")
    del settings["recall_of"], settings["count"]
    before = content_key("recipe", "answer_correctness", AnswerCorrectness.version, settings, {})
    assert by_response == before
