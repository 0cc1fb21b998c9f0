"""Faithfulness and context recall."""

import json
from typing import Any

import pytest

from claimflow.stages.rows import Sample
from claimflow.stages.scores.claim_metrics import ContextRecall, Faithfulness
from claimflow.stages.tables import build

YES, NO, CONTRARY = "entailed", "neutral", "contradicted"

NO_CONTEXTS = "there are no contexts (policy: formula)"
CONTEXTS = {"response": "r", "reference": "x", "retrieved_contexts": ["c", "d"]}


@pytest.mark.parametrize(
    ("stage", "of"), [(Faithfulness, "response"), (ContextRecall, "reference")]
)
@pytest.mark.parametrize(
    ("labels", "fields", "score", "status", "reason"),
    [
        ([YES, YES, CONTRARY, NO], {}, 0.5, "scored", None),
        ([[YES, CONTRARY], [NO, CONTRARY]], {}, 0.5, "scored", None),
        ([], {}, None, "undefined", "no claims in the {of}"),
        ([[], []], {"retrieved_contexts": []}, 0.0, "scored", NO_CONTEXTS),
        ([NO], {"retrieved_contexts": None}, None, "undefined", "missing: retrieved_contexts"),
        ([YES, [NO]], {}, None, "failed", "1 of 2 claims of the {of} have no verdict"),
    ],
)
def test_share_of_claims_in_the_contexts(
    judge: Any, stage: Any, of: str, labels: Any, fields: Any, score: Any, status: str, reason: Any
) -> None:
    samples = build(Sample, [{"sample_id": "s", **CONTEXTS, **fields}])
    row = stage().run(samples, *judge(of, "retrieved_contexts", {"s": labels})).row(0, named=True)
    assert (row["score"], row["status"]) == (score, status)
    assert row["reason"] == (reason and reason.format(of=of))
    assert row["metric"] == stage.use


def test_details_of_faithfulness_count_contradictions(judge: Any) -> None:
    samples = build(Sample, [{"sample_id": "s", **CONTEXTS}])
    labels = {"s": [YES, CONTRARY, NO, NO]}
    table = Faithfulness().run(samples, *judge("response", "retrieved_contexts", labels))
    details = json.loads(table["details"][0])
    counted = {name: details[name] for name in ("claims", "entailed", "contradicted", "neutral")}
    assert counted == {"claims": 4, "entailed": 1, "contradicted": 1, "neutral": 2}


@pytest.mark.parametrize(
    ("stage", "of"), [(Faithfulness, "response"), (ContextRecall, "reference")]
)
@pytest.mark.parametrize(
    ("labels", "fields", "compat", "reason"),
    [
        (
            [YES],
            {"retrieved_contexts": []},
            "ragas-0.4",
            "raises ValueError: there are no contexts",
        ),
        ([YES], {"user_input": ""}, "ragas-0.4", "raises ValueError: the question is empty"),
        ([YES], {"user_input": ""}, "ragas-0.4-legacy", None),
        ([YES], {"retrieved_contexts": [""]}, "ragas-0.4", None),
        ([], {}, "ragas-0.4", "gives NaN: no claims in the {of}"),
        ([], {}, "ragas-0.4-legacy", "gives NaN: no claims in the {of}"),
    ],
)
def test_samples_that_ragas_does_not_score(
    judge: Any, stage: Any, of: str, labels: Any, fields: Any, compat: str, reason: str | None
) -> None:
    samples = build(Sample, [{"sample_id": "s", "user_input": "q", **CONTEXTS, **fields}])
    tables = judge(of, "retrieved_contexts", {"s": labels})
    row = stage(compat=compat).run(samples, *tables).row(0, named=True)
    says = reason and f"{compat} {reason}".format(of=of)
    assert (row["score"], row["reason"]) == (None if reason else 1.0, says)


def test_a_share_is_the_ratio_of_its_counts(judge: Any) -> None:
    samples = build(Sample, [{"sample_id": "s", **CONTEXTS}])
    tables = judge("response", "retrieved_contexts", {"s": [YES, NO, NO]})
    row = Faithfulness().run(samples, *tables).row(0, named=True)
    assert (row["part"], row["whole"], row["score"]) == (1.0, 3.0, 1 / 3)
