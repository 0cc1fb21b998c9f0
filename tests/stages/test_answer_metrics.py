"""Answer correctness and semantic similarity."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from claimflow.stages.rows import Sample, Similarity
from claimflow.stages.scores.answer_metrics import AnswerCorrectness, SemanticSimilarity
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.tables import TableError, build

YES, NO = "entailed", "neutral"
TEXTS = {"response": "a response", "reference": "a reference"}


def similarity(cosine: float | None, **fields: Any) -> Any:
    sides = {"left": "response", "right": "reference"}
    return build(Similarity, [{"sample_id": "s", **sides, "cosine": cosine, **fields}])


def samples(**fields: Any) -> Any:
    return build(Sample, [{"sample_id": "s", **TEXTS, **fields}])


def similar(cosine: float | None, settings: Any = None, **fields: Any) -> Any:
    stage = SemanticSimilarity(**(settings or {}))
    return stage.run(samples(), similarity(cosine, **fields)).row(0, named=True)


@pytest.mark.parametrize(
    ("cosine", "settings", "score"),
    [
        (0.8, {}, 0.8),
        (-0.5, {}, -0.5),
        (-0.5, {"range": "clipped"}, 0.0),
        (0.8, {"threshold": 0.8}, 1.0),
        (0.7, {"threshold": 0.8}, 0.0),
        (-0.1, {"threshold": 0.0}, 0.0),
        (0.0, {"threshold": 0.0}, 1.0),
        (-0.1, {"threshold": 0.0, "range": "clipped"}, 1.0),
    ],
)
def test_semantic_similarity(cosine: float, settings: Any, score: float) -> None:
    row = similar(cosine, settings)
    assert (row["metric"], row["score"], row["status"]) == ("semantic_similarity", score, "scored")
    assert json.loads(row["details"])["cosine"] == cosine


def test_an_undefined_similarity_and_a_failed_one() -> None:
    undefined = similar(None, status="undefined", reason="the response is empty")
    assert undefined["status"] == "undefined"
    assert undefined["reason"] == "similarity undefined: the response is empty"
    failed = similar(None, status="failed", reason="no embedding")
    assert (failed["status"], failed["reason"]) == ("failed", "similarity failed: no embedding")
    bare = similar(None, status="failed")
    assert (bare["status"], bare["reason"]) == ("failed", "similarity failed")


def test_a_sample_without_a_similarity_fails() -> None:
    (row,) = SemanticSimilarity().run(samples(), build(Similarity, [])).to_dicts()
    assert (row["status"], row["reason"]) == ("failed", "no similarity was measured")


def test_an_empty_text_by_policy() -> None:
    stage = SemanticSimilarity(empty=EmptyPolicy(response=0))
    (row,) = stage.run(samples(response=""), similarity(None, status="undefined")).to_dicts()
    assert (row["score"], row["reason"]) == (0.0, "the response is empty (policy: 0)")


def test_similarities_of_other_texts_are_refused() -> None:
    with pytest.raises(TableError, match="similarities of response and reference, found others"):
        SemanticSimilarity().run(samples(), similarity(0.5, left="user_input"))


@pytest.fixture(name="correctness")
def _correctness(judge: Any) -> Any:
    def score(response: list[str], reference: list[str], cosine: Any, settings: Any = None) -> Any:
        response_claims, in_reference = judge("response", "reference", {"s": response})
        reference_claims, in_response = judge("reference", "response", {"s": reference})
        status = {"status": "undefined", "reason": "why"} if cosine is None else {}
        table = AnswerCorrectness(**(settings or {})).run(
            samples(),
            response_claims,
            reference_claims,
            in_reference,
            in_response,
            similarity(cosine, **status),
        )
        return table.row(0, named=True)

    return score


NO_CLAIMS = "no claims in the response or the reference"


@pytest.mark.parametrize(
    ("response", "reference", "cosine", "settings", "score", "reason"),
    [
        ([YES, NO], [YES, NO], 0.6, {}, 0.75 * 0.5 + 0.25 * 0.6, None),
        ([YES, NO], [YES, NO], -1.0, {"weights": (1, 3)}, -0.625, None),
        ([YES, NO], [YES, NO], 0.6, {"weights": (1, 0)}, 0.5, None),
        ([YES, NO], [YES, NO], 0.6, {"weights": (0, 2)}, 0.6, None),
        ([YES], [NO], 0.5, {"weights": (1, 0), "beta": 2.0}, 5 / 9, None),
        ([YES, NO], [YES, NO], 0.6, {"threshold": 0.525}, 1.0, None),
        ([YES, NO], [YES, NO], 0.6, {"threshold": 0.526}, 0.0, None),
        ([YES], [YES, NO], 0.0, {"weights": (1, 0)}, 2 / 3, None),
        # TP 2 and FN 2 make a recall of 1/2; the response entails 1 of 3 reference claims.
        ([YES, YES], [YES, NO, NO], 0.0, {"weights": (1, 0)}, 2 / 3, None),
        ([YES, YES], [YES, NO, NO], 0.0, {"weights": (1, 0), "recall_of": "reference"}, 0.5, None),
        ([NO], [YES], 0.4, {"recall_of": "reference"}, 0.1, None),
        ([], [NO], 0.4, {}, 0.1, None),
        ([YES], [], 0.4, {}, 0.1, None),
        ([], [], 0.4, {}, None, NO_CLAIMS),
        ([], [], 0.4, {"weights": (0, 1)}, 0.4, None),
        ([YES], [YES], None, {}, None, "similarity undefined: why"),
        ([], [], None, {}, None, NO_CLAIMS),
        ([YES], [YES], None, {"weights": (1, 0)}, 1.0, None),
        ([[]], [YES], 0.4, {}, None, "1 of 1 claims of the response have no verdict"),
    ],
)
def test_answer_correctness(
    correctness: Any,
    response: Any,
    reference: Any,
    cosine: Any,
    settings: Any,
    score: Any,
    reason: Any,
) -> None:
    row = correctness(response, reference, cosine, settings)
    assert row["score"] == (score if score is None else pytest.approx(score, abs=1e-15))
    assert (row["metric"], row["reason"]) == ("answer_correctness", reason)


def test_details_contain_the_parts(correctness: Any) -> None:
    details = json.loads(correctness([YES, NO], [YES, NO], 0.6, {"threshold": 0.9})["details"])
    assert (details["tp"], details["fp"], details["fn"]) == (1, 1, 1)
    assert (details["f_beta"], details["similarity"]) == (0.5, 0.6)
    assert details["weighted_mean"] == pytest.approx(0.525)


def test_a_failed_similarity_fails_the_score(judge: Any) -> None:
    claims, in_reference = judge("response", "reference", {"s": [YES]})
    others, in_response = judge("reference", "response", {"s": [YES]})
    failed = similarity(None, status="failed", reason="no embedding")
    tables = (claims, others, in_reference, in_response, failed)
    (row,) = AnswerCorrectness().run(samples(), *tables).to_dicts()
    assert (row["status"], row["reason"]) == ("failed", "similarity failed: no embedding")


def test_a_part_of_weight_0_needs_no_inputs() -> None:
    stage = AnswerCorrectness(weights=(0, 1))
    assert stage.ignores() == set(stage.inputs) - {"samples", "similarity"}
    assert stage.run(samples(), similarity=similarity(0.3))["score"].to_list() == [0.3]
    assert AnswerCorrectness(weights=(1, 0)).ignores() == {"similarity"}
    empty: Any = samples().clear()
    with pytest.raises(ValueError, match="answer_correctness with these settings needs similarity"):
        AnswerCorrectness().run(samples(), empty, empty, empty, empty)


@pytest.mark.parametrize(
    "settings",
    [
        {"weights": (0, 0)},
        {"weights": (-1, 2)},
        {"weights": (1,)},
        {"weights": (1, float("nan"))},
        {"beta": -1},
        {"beta": float("inf")},
        {"threshold": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(settings: Any) -> None:
    with pytest.raises(ValidationError):
        AnswerCorrectness(**settings)


@pytest.mark.parametrize(
    ("cosine", "settings", "score", "reason"),
    [
        (0.3, {"threshold": 0.0}, 0.3, None),
        (0.3, {"threshold": 0.3}, 1.0, None),
        (None, {"threshold": 0.3}, 0.0, None),
        (None, {}, None, "{} gives NaN: similarity undefined: a vector is zero"),
        (None, {"threshold": 0.0}, None, "{} gives NaN: similarity undefined: a vector is zero"),
    ],
)
@pytest.mark.parametrize("compat", ["ragas-0.4", "ragas-0.4-legacy"])
def test_semantic_similarity_in_compat(
    compat: str, cosine: Any, settings: Any, score: Any, reason: str | None
) -> None:
    answer = {} if cosine is not None else {"status": "undefined", "reason": "a vector is zero"}
    row = similar(cosine, {"compat": compat, **settings}, **answer)
    assert (row["score"], row["reason"]) == (score, reason and reason.format(compat))


def test_text_that_was_not_embedded_is_undefined_in_compat() -> None:
    stage = SemanticSimilarity(compat="ragas-0.4", threshold=0.5)
    nothing = similarity(None, status="undefined", reason="the response is empty")
    (row,) = stage.run(samples(response=""), nothing).to_dicts()
    assert (row["status"], row["reason"]) == (
        "undefined",
        "ragas-0.4 embeds empty text as well: similarity undefined: the response is empty",
    )


@pytest.mark.parametrize(
    ("compat", "response", "reference", "cosine", "score"),
    [
        ("ragas-0.4", [], [NO], 0.4, 0.85),
        ("ragas-0.4-legacy", [], [NO], 0.4, 0.1),
        ("ragas-0.4", [], [], 0.4, 0.85),
        ("ragas-0.4-legacy", [], [], 0.4, 0.85),
        ("ragas-0.4", [YES], [YES], None, 0.75),
        ("ragas-0.4-legacy", [YES], [YES], None, None),
    ],
)
def test_answer_correctness_in_compat(
    correctness: Any, compat: str, response: Any, reference: Any, cosine: Any, score: Any
) -> None:
    row = correctness(response, reference, cosine, {"compat": compat})
    assert row["score"] == (score if score is None else pytest.approx(score, abs=1e-15))
    assert (row["part"], row["whole"]) == (None, None)


@pytest.mark.parametrize(
    ("stage", "settings", "message"),
    [
        (AnswerCorrectness, {"threshold": 0.5}, "threshold cannot be combined with compat"),
        (AnswerCorrectness, {"recall_of": "reference"}, "recall_of cannot be combined with"),
        (AnswerCorrectness, {"beta": 2}, "write 2.0: ragas-0.4 takes no whole number"),
        (SemanticSimilarity, {"range": "clipped"}, "range cannot be combined with compat"),
    ],
)
def test_settings_unknown_to_ragas_are_refused(stage: Any, settings: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        stage.model_validate({"compat": "ragas-0.4", **settings})
