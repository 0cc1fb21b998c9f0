"""Deterministic faithfulness and correctness from tables of sentence matches."""

import json
from typing import Any

import pytest

from stages.nothing import EmptyPolicy
from stages.rows import Sample, SentenceMatch
from stages.score_lexical import MEASURES, DeterministicCorrectness, DeterministicFaithfulness
from stages.tables import TableError, build

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
def test_nothing_to_support(
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
        "bleu_correctness": 0.3,
    }
    by_metric = dict(zip(table["metric"], map(json.loads, table["details"]), strict=True))
    triples = [{"source": 0, **first}, {"source": 1, **second}]
    for triple in triples:
        triple.pop("bleu")
    assert by_metric["rouge_l_recall"]["by_reference"] == triples
    bleus = [{"source": 0, "bleu": 0.1}, {"source": 1, "bleu": 0.3}]
    assert by_metric["bleu_correctness"]["by_reference"] == bleus


@pytest.mark.parametrize("fields", [{"response": " "}, {"reference": ""}])
def test_an_empty_side_leaves_nothing_to_compare(fields: Any) -> None:
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
