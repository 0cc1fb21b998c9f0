"""Deterministic faithfulness and correctness from tables of sentence matches."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from claimflow.stages.lexical import LexicalMatch
from claimflow.stages.rows import Sample, SentenceMatch
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.scores.lexical_metrics import (
    MEASURES,
    DeterministicCorrectness,
    DeterministicFaithfulness,
)
from claimflow.stages.tables import TableError, build

TEXTS = {"response": "A. B.", "reference": "C.", "retrieved_contexts": ["D."]}
SPAN = {"sentence": "x", "start": 0, "end": 1}
FAITHFULNESS = ["rouge_faithfulness", "token_overlap_faithfulness", "bleu_faithfulness"]


def samples(**fields: Any) -> Any:
    return build(Sample, [{"sample_id": "s", **TEXTS, **fields}])


def match(against: str, values: float | dict[str, float], **fields: Any) -> Any:
    measures = values if isinstance(values, dict) else dict.fromkeys(MEASURES, values)
    zeros = dict.fromkeys(MEASURES, 0.0)
    return {"sample_id": "s", "against": against, **SPAN, **zeros, **measures, **fields}


def sentences(*values: float | dict[str, float]) -> Any:
    rows = [match("retrieved_contexts", v, position=n) for n, v in enumerate(values)]
    return build(SentenceMatch, rows[::-1])


def references(*values: float | dict[str, float]) -> Any:
    return build(SentenceMatch, [match("reference", v, source=n) for n, v in enumerate(values)])


def measures(rouge: float, overlap: float, bleu: float) -> dict[str, float]:
    return {"rouge_l_precision": rouge, "token_overlap_precision": overlap, "bleu": bleu}


def test_the_documented_example() -> None:
    published = sentences(
        measures(0.8333333333333334, 0.875, 0.6855956729300113),
        measures(0.2, 0.2, 0.05488226210213251),
    )
    table = DeterministicFaithfulness().make(
        {"samples": samples(), "context_matches": published}, {}
    )
    assert dict(zip(table["metric"], table["score"], strict=True)) == {
        "rouge_faithfulness": 0.5,
        "token_overlap_faithfulness": 0.5,
        "bleu_faithfulness": 0.37023896751607194,
    }
    assert json.loads(table["details"][0]) == {
        "by_sentence": [0.8333333333333334, 0.2],
        "sentences": 2,
        "empty": None,
        "worth": None,
    }
    assert json.loads(table["details"][1])["clipped_by_sentence"] == [0.0, 0.0]


def test_a_sentence_at_the_threshold_is_supported() -> None:
    stage = DeterministicFaithfulness(rouge_threshold=0.6, token_overlap_threshold=0.0)
    table = stage.run(samples(), sentences(0.6, 0.5999999999999999, 0.1))
    assert table["score"].to_list() == pytest.approx([1 / 3, 1.0, 1.3 / 3], abs=1e-15)


@pytest.mark.parametrize(
    ("fields", "settings", "score", "status", "reason"),
    [
        (
            {"retrieved_contexts": []},
            {},
            0.0,
            "scored",
            "there are no contexts (policy: formula)",
        ),
        (
            {"response": ""},
            {},
            None,
            "undefined",
            "no sentences in the response; the response is empty (policy: formula)",
        ),
        (
            {"response": "", "retrieved_contexts": []},
            {},
            None,
            "undefined",
            "no sentences in the response; the response is empty (policy: formula)",
        ),
        (
            {"response": "I don't know."},
            {"empty": EmptyPolicy(refusal="undefined")},
            None,
            "undefined",
            "the response is a refusal (policy: undefined)",
        ),
        ({"retrieved_contexts": None}, {}, None, "undefined", "missing: retrieved_contexts"),
    ],
)
def test_responses_and_contexts_without_text(
    fields: Any, settings: Any, score: Any, status: str, reason: str
) -> None:
    table = DeterministicFaithfulness(**settings).run(samples(**fields), sentences())
    assert table["metric"].to_list() == FAITHFULNESS
    assert table["score"].to_list() == [score] * 3
    assert table["status"].to_list() == [status] * 3
    assert table["reason"].to_list() == [reason] * 3


def test_correctness_is_the_maximum_over_references_each_measure_alone() -> None:
    first = {"rouge_l_precision": 1.0, "rouge_l_recall": 0.2, "rouge_l_f1": 1 / 3, "bleu": 0.1}
    second = {"rouge_l_precision": 0.5, "rouge_l_recall": 0.5, "rouge_l_f1": 0.5, "bleu": 0.3}
    table = DeterministicCorrectness().make(
        {"samples": samples(), "reference_matches": references(first, second)}, {}
    )
    assert dict(zip(table["metric"], table["score"], strict=True)) == {
        "rouge_l_precision": 1.0,
        "rouge_l_recall": 0.5,
        "rouge_l_f1": 0.5,
        "token_overlap_precision": 0.0,
        "token_overlap_recall": 0.0,
        "token_overlap_f1": 0.0,
        "clipped_overlap_precision": 0.0,
        "clipped_overlap_recall": 0.0,
        "clipped_overlap_f1": 0.0,
        "bleu_correctness": 0.3,
        "chrf": 0.0,
    }
    by_metric = dict(zip(table["metric"], map(json.loads, table["details"]), strict=True))
    triples = [{"source": 0, **first}, {"source": 1, **second}]
    for triple in triples:
        triple.pop("bleu")
    assert by_metric["rouge_l_recall"]["by_reference"] == triples
    bleus = [{"source": 0, "bleu": 0.1}, {"source": 1, "bleu": 0.3}]
    assert by_metric["bleu_correctness"]["by_reference"] == bleus


@pytest.mark.parametrize("fields", [{"response": " "}, {"reference": ""}])
def test_an_empty_side_is_undefined(fields: Any) -> None:
    for matches in (references(), references(0.0)):
        table = DeterministicCorrectness().run(samples(**fields), matches)
        assert set(table["status"]) == {"undefined"}
        assert table["reason"][0].startswith("no texts to compare; the ")


def test_another_reference_makes_up_for_an_empty_one() -> None:
    several = samples(reference="", other_references=["C."])
    table = DeterministicCorrectness().run(several, references(0.0, 0.4))
    assert set(table["score"]) == {0.4}


def test_matches_of_another_kind_are_refused() -> None:
    whole = "expected matches of whole responses against reference, found 1 others"
    with pytest.raises(TableError, match=whole):
        DeterministicCorrectness().run(samples(), sentences(0.5))
    with pytest.raises(TableError, match="matches of sentences against retrieved_contexts"):
        DeterministicFaithfulness().run(samples(), references(0.5))
    split = build(SentenceMatch, [match("reference", 0.5, source=0, position=0)])
    with pytest.raises(TableError, match=whole):
        DeterministicCorrectness().run(samples(), split)


def test_shares_of_sentences_have_part_and_whole() -> None:
    table = DeterministicFaithfulness().run(samples(), sentences(0.6, 0.4, 0.5))
    assert table["part"].to_list() == [2, 2, 1.5]
    assert table["whole"].to_list() == [3, 3, 3]
    none = DeterministicFaithfulness(rouge_threshold=0.0).run(
        samples(retrieved_contexts=[]), sentences(0.0, 0.0)
    )
    assert none.select("score", "part", "whole").row(0) == (0, 0, 2)
    maxima = DeterministicCorrectness().run(samples(), references(0.5))
    assert maxima.select(pl.col("part", "whole").is_null().all()).row(0) == (True, True)


COMPAT = "continuous-eval-0.3"
METRIC = {"bleu_correctness": "bleu_score"}
GOLDEN = Path(__file__).parents[1] / "golden" / "golden_lexical.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").split("\n") if line]


def as_continuous_eval(stage: Any, cases: Any, **settings: Any) -> dict[str, dict[str, Any]]:
    """Scores of `cases`, sample and then metric, from plain texts on."""
    table = build(
        Sample,
        [
            {
                "sample_id": case["id"],
                "response": case["answer"],
                "reference": case["texts"][0] if case["texts"] else None,
                "other_references": case["texts"][1:],
                "retrieved_contexts": case["texts"],
            }
            for case in cases
        ],
    )
    name, expects = next(iter(stage.expects.items()))
    matches = LexicalMatch(**expects, compat=COMPAT).make({"samples": table}, {})
    scores = stage(compat=COMPAT, **settings).make({"samples": table, name: matches}, {})
    by_sample: dict[str, dict[str, Any]] = {}
    for row in scores.iter_rows(named=True):
        row["details"] = json.loads(row["details"])
        by_sample.setdefault(row["sample_id"], {})[row["metric"]] = row
    return by_sample


@pytest.mark.parametrize(
    ("stage", "outcomes", "scored"),
    [
        (DeterministicFaithfulness, "faithfulness", 327),
        (DeterministicCorrectness, "answer_correctness", 327),
    ],
)
def test_compat_equals_all_golden_scores(stage: Any, outcomes: str, scored: int) -> None:
    found = as_continuous_eval(stage, CASES)
    count = 0
    for case in CASES:
        outcome, rows = case["expected"][outcomes], found[case["id"]]
        if outcome["status"] == "error":
            assert {(row["score"], row["status"]) for row in rows.values()} == {(None, "undefined")}
            continue
        count += 1
        for metric, row in rows.items():
            wanted = outcome["scores"][METRIC.get(metric, metric)]
            assert row["score"] == pytest.approx(wanted, rel=1e-9, abs=1e-12), case["id"]
            assert row["status"] == "scored"
            assert row["part"] is row["whole"] is None
    assert (len(found), count) == (333, scored)


def test_compat_by_sentence_and_by_reference_are_the_golden_ones() -> None:
    faithful = as_continuous_eval(DeterministicFaithfulness, CASES)
    correct = as_continuous_eval(DeterministicCorrectness, CASES)
    by_sentence = ["rouge_p_by_sentence", "token_overlap_p_by_sentence", "bleu_score_by_sentence"]
    for case in CASES:
        outcome = case["expected"]["faithfulness"]
        if outcome["status"] == "ok":
            for row, name in zip(faithful[case["id"]].values(), by_sentence, strict=True):
                wanted = outcome["scores"][name]
                assert row["details"]["by_sentence"] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        if case["expected"]["answer_correctness"]["status"] == "ok":
            row = correct[case["id"]]["rouge_l_f1"]
            made = [reference["rouge_l_f1"] for reference in row["details"]["by_reference"]]
            parts = [part["rouge_l"] for part in case["expected"]["per_text"]]
            wanted = [part["scores"]["rouge_l_f1"] for part in parts]
            assert made == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_compat_shows_the_default_score_beside_it() -> None:
    case = CASES[0]
    table = samples(response=case["answer"], reference=case["texts"][0])
    plain = samples(response=case["answer"], retrieved_contexts=case["texts"])
    rows = as_continuous_eval(DeterministicFaithfulness, CASES[:1], token_overlap_threshold=0.1)
    overlap = rows[case["id"]]["token_overlap_faithfulness"]
    assert overlap["score"] == 0.5
    assert overlap["details"] == {
        "by_sentence": [0.8, 0.0],
        "clipped_by_sentence": [0.875, 0.2],
        "compat": COMPAT,
        "corrected": 1.0,
        "empty": None,
        "sentences": 2,
        "worth": None,
    }
    for stage, before, name in (
        (DeterministicFaithfulness, plain, "context_matches"),
        (DeterministicCorrectness, table, "reference_matches"),
    ):
        matches = LexicalMatch(**stage.expects[name]).make({"samples": before}, {})
        default = stage().run(before, matches)
        corrected = {
            metric: row["details"]["corrected"]
            for metric, row in as_continuous_eval(stage, CASES[:1])[case["id"]].items()
        }
        assert corrected.items() <= dict(default.select("metric", "score").rows()).items()


@pytest.mark.parametrize(
    ("stage", "answer", "texts", "reason", "corrected"),
    [
        (DeterministicFaithfulness, " ", ["x"], "raises ZeroDivisionError: no sentence", None),
        (DeterministicFaithfulness, "x", [], "raises ValueError: Reference is empty", 0.0),
        (DeterministicFaithfulness, "x", ["..."], "raises ValueError: Reference is empty", 0.0),
        (DeterministicFaithfulness, "?!", [""], None, 0.0),
        (DeterministicCorrectness, "x", ["x", ""], "raises ValueError: Reference is empty", 1.0),
        (DeterministicCorrectness, "x", ["."], "raises ValueError: Reference is empty", 0.0),
        (DeterministicCorrectness, "", ["x"], None, None),
    ],
)
def test_errors_of_the_library_are_undefined(
    stage: Any, answer: str, texts: list[str], reason: str | None, corrected: float | None
) -> None:
    case = {"id": "s", "answer": answer, "texts": texts}
    row = next(iter(as_continuous_eval(stage, [case])["s"].values()))
    if reason is None:
        assert (row["score"], row["status"], row["reason"]) == (0.0, "scored", None)
    else:
        assert (row["score"], row["status"]) == (None, "undefined")
        assert row["reason"] == f"{COMPAT} {reason}"
    assert row["details"]["corrected"] == corrected


def test_a_missing_field_is_missing_with_compat_too() -> None:
    row = as_continuous_eval(DeterministicCorrectness, [{"id": "s", "answer": "x", "texts": []}])
    assert {r["reason"] for r in row["s"].values()} == {"missing: reference"}


def test_compat_rows_do_not_touch_the_default_scores() -> None:
    table = samples()
    both, ours = (
        LexicalMatch(against="retrieved_contexts", compat=compat).make({"samples": table}, {})
        for compat in (COMPAT, None)
    )
    assert both.height > ours.height
    scores = [DeterministicFaithfulness().run(table, matches) for matches in (both, ours)]
    assert scores[0].equals(scores[1])


@pytest.mark.parametrize("stage", [DeterministicFaithfulness, DeterministicCorrectness])
def test_compat_and_a_policy_are_refused_together(stage: Any) -> None:
    with pytest.raises(ValidationError, match="empty cannot be combined with compat"):
        stage(compat=COMPAT, empty={"response": 0})


@pytest.mark.parametrize("stage", [DeterministicFaithfulness, DeterministicCorrectness])
def test_compat_expects_matches_of_the_same_compat(stage: Any) -> None:
    (name,) = stage.expects
    assert stage().expected_inputs() == stage.expects
    assert stage(compat=COMPAT).expected_inputs() == {
        name: {**stage.expects[name], "compat": COMPAT}
    }
