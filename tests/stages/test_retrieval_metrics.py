"""RAGChecker's metrics and noise sensitivity: definitions, edges, invariants."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.compat.ragchecker import RATIOS
from claimflow.stages.rows import Sample
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.scores.retrieval_metrics import NoiseSensitivity, RagChecker
from claimflow.stages.tables import TableError, build

few = settings(
    # Each is of twenty samples or more, which one run of the stage scores.
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

YES, NO, CONTRARY = "entailed", "neutral", "contradicted"
METRICS = {*RATIOS, "f1"}
OF_RESPONSE = ("faithfulness", "hallucination", "self_knowledge")
NOISE = ("noise_sensitivity_in_relevant", "noise_sensitivity_in_irrelevant")

# Three response claims (right, wrong, wrong), two reference claims, three passages.
EXAMPLE: dict[str, list[Any]] = {
    "response_in_reference": [YES, CONTRARY, NO],
    "reference_in_response": [YES, NO],
    "response_in_passages": [[NO, NO, NO], [YES, NO, CONTRARY], [NO, CONTRARY, YES]],
    "reference_in_passages": [[YES, NO, NO], [YES, NO, CONTRARY]],
}


def tables(judge: Any, example: Any, **fields: Any) -> list[Any]:
    return tables_of(judge, {"s": (example, fields)})


def tables_of(judge: Any, cases: Mapping[str, tuple[Any, Any]]) -> list[Any]:
    """Tables of several samples, each by an example and by fields that are not the usual ones."""
    texts = {"response": "a response", "reference": "a reference"}
    samples = []
    for name, (example, fields) in cases.items():
        passages = [*example["response_in_passages"], *example["reference_in_passages"], []]
        contexts = ["x"] * max(map(len, passages))
        samples.append({"sample_id": name, **texts, "retrieved_contexts": contexts, **fields})
    directions = [
        ("response", "reference", "response_in_reference"),
        ("reference", "response", "reference_in_response"),
        ("response", "retrieved_contexts", "response_in_passages"),
        ("reference", "retrieved_contexts", "reference_in_passages"),
    ]
    judged = [
        judge(of, against, {name: example[labels] for name, (example, _) in cases.items()})
        for of, against, labels in directions
    ]
    claims = [judged[0][0], judged[1][0]]
    return [build(Sample, samples), *claims, *(verdicts for _, verdicts in judged)]


@pytest.fixture(name="check")
def _check(judge: Any) -> Any:
    def rows(example: Any = None, chosen: Any = None, **fields: Any) -> dict[str, Any]:
        given = tables(judge, {**EXAMPLE, **(example or {})}, **fields)
        table = RagChecker(**(chosen or {})).run(*given)
        return {row["metric"]: row for row in table.to_dicts()}

    return rows


def test_the_eleven_metrics(check: Any) -> None:
    rows = check()
    assert {metric: row["score"] for metric, row in rows.items()} == {
        "precision": 1 / 3,
        "recall": 1 / 2,
        "f1": 0.4,
        "claim_recall": 1.0,
        "context_precision": 1 / 3,
        "context_utilization": 1 / 2,
        "noise_sensitivity_in_relevant": 1 / 3,
        "noise_sensitivity_in_irrelevant": 1 / 3,
        "hallucination": 0.0,
        "self_knowledge": 1 / 3,
        "faithfulness": 2 / 3,
    }
    for metric, row in rows.items():
        assert (row["status"], row["reason"]) == ("scored", None)
        ratio = None if metric == "f1" else row["part"] / row["whole"]
        assert ratio == (None if metric == "f1" else row["score"])
    assert (rows["f1"]["part"], rows["f1"]["whole"]) == (None, None)


def test_details_of_each_metric(check: Any) -> None:
    rows = check({"response_in_passages": [[NO] * 3, [CONTRARY, NO, NO], [NO, CONTRARY, YES]]})
    policy = {"empty": None, "worth": None}
    backed = {"claims": 3, "entailed": 1, "contradicted": 1, "neutral": 1}
    assert {metric: json.loads(row["details"]) for metric, row in rows.items()} == {
        "precision": {"claims": 3, "entailed": 1, "contradicted": 1, "neutral": 1} | policy,
        "recall": {"claims": 2, "entailed": 1, "contradicted": 0, "neutral": 1} | policy,
        "f1": {"precision": 1 / 3, "recall": 0.5} | policy,
        "claim_recall": {"claims": 2, "entailed": 2, "contradicted": 0, "neutral": 0} | policy,
        "context_precision": {"passages": 3, "relevant": 1} | policy,
        "context_utilization": {"found": 2, "recalled": 1} | policy,
        "noise_sensitivity_in_relevant": {"claims": 3, "wrong": 2, "wrong_in_relevant": 0} | policy,
        "noise_sensitivity_in_irrelevant": {"claims": 3, "wrong": 2, "wrong_in_irrelevant": 1}
        | policy,
        "hallucination": {"claims": 3, "wrong": 2, "wrong_unbacked": 1, "wrong_contradicted": 1}
        | policy,
        "self_knowledge": {"claims": 3, "right_unbacked": 1} | policy,
        "faithfulness": backed | policy,
    }


def test_without_passages_nothing_is_backed(check: Any) -> None:
    none: dict[str, list[Any]] = {
        "response_in_passages": [[], [], []],
        "reference_in_passages": [[], []],
    }
    rows = check(none, retrieved_contexts=[])
    found = {metric: row["score"] for metric, row in rows.items()}
    assert (found["faithfulness"], found["claim_recall"]) == (0.0, 0.0)
    assert (found["hallucination"], found["self_knowledge"]) == (2 / 3, 1 / 3)
    assert [found[metric] for metric in NOISE] == [0.0, 0.0]
    note = "there are no contexts (policy: formula)"
    reasons = {metric: row["reason"] for metric, row in rows.items() if row["score"] is None}
    assert reasons == {
        "context_precision": f"no passages were retrieved; {note}",
        "context_utilization": f"no claim of the reference is in a passage; {note}",
    }
    assert (rows["precision"]["reason"], rows["faithfulness"]["reason"]) == (None, note)
    theirs = check(none, {"compat": "ragchecker-0.1"}, retrieved_contexts=[])
    assert {theirs[metric]["score"] for metric in OF_RESPONSE} == {0.0}


def test_blank_passages_count_and_need_no_verdict(check: Any) -> None:
    only_first = {
        "response_in_passages": [[NO], [YES], [NO]],
        "reference_in_passages": [[YES], [YES]],
    }
    rows = check(only_first, retrieved_contexts=["x", " ", ""])
    assert rows["context_precision"]["score"] == 1 / 3
    assert rows["noise_sensitivity_in_relevant"]["score"] == 1 / 3


@pytest.mark.parametrize(
    ("side", "undefined", "reason"),
    [
        (
            "response",
            {"precision", "faithfulness", "hallucination", "self_knowledge", *NOISE},
            "no claims in the response",
        ),
        (
            "reference",
            {"recall", "claim_recall", "context_precision", "context_utilization", *NOISE},
            "no claims in the reference",
        ),
    ],
)
def test_a_side_without_claims(check: Any, side: str, undefined: Any, reason: str) -> None:
    rows = check({name: [] for name in EXAMPLE if name.startswith(side)})
    assert {m for m, row in rows.items() if row["status"] == "undefined"} == undefined
    assert {rows[metric]["reason"] for metric in undefined} == {reason}
    assert rows["f1"]["score"] == 0.0


def test_claims_on_neither_side(check: Any) -> None:
    rows = check({name: [] for name in EXAMPLE}, retrieved_contexts=["x"])
    assert {row["status"] for row in rows.values()} == {"undefined"}
    assert rows["f1"]["reason"] == "no claims in the response or the reference"
    assert rows["context_precision"]["reason"] == "no claims in the reference"


@pytest.mark.parametrize(
    ("direction", "failed", "reason"),
    [
        (
            "response_in_passages",
            {"faithfulness", "hallucination", "self_knowledge", *NOISE},
            "1 of 3 claims of the response have no verdict",
        ),
        (
            "reference_in_passages",
            {"claim_recall", "context_precision", "context_utilization", *NOISE},
            "1 of 2 claims of the reference have no verdict",
        ),
    ],
)
def test_a_missing_verdict_fails_the_metrics_that_need_it(
    check: Any, direction: str, failed: Any, reason: str
) -> None:
    rows = check({direction: [[YES, NO], *EXAMPLE[direction][1:]]})
    assert {metric for metric, row in rows.items() if row["status"] == "failed"} == failed
    assert {rows[metric]["reason"] for metric in failed} == {reason}
    (counted,) = {json.loads(rows[m]["details"]).get("wrong") for m in failed & {*NOISE}}
    assert counted is None


@pytest.mark.parametrize(
    ("field", "undefined"),
    [
        ("reference", METRICS - {"faithfulness"}),
        ("response", METRICS - {"claim_recall", "context_precision"}),
        ("retrieved_contexts", METRICS - {"precision", "recall", "f1"}),
    ],
)
def test_a_missing_field_leaves_the_metrics_that_do_not_need_it(
    check: Any, field: str, undefined: Any
) -> None:
    texts = {"retrieved_contexts": "in_passages"}
    rows = check({name: [] for name in EXAMPLE if texts.get(field, field) in name}, **{field: None})
    missing = {metric for metric, row in rows.items() if row["reason"] == f"missing: {field}"}
    assert missing == undefined


def test_only_formula_and_undefined_are_allowed() -> None:
    with pytest.raises(ValidationError) as caught:
        RagChecker(empty=EmptyPolicy(refusal=0))
    assert (
        "empty.refusal is 0, which is the best of some of these metrics and the worst of "
        "others: write formula or undefined"
    ) in str(caught.value)


def test_a_declared_value_applies_to_the_metrics_of_its_case(check: Any) -> None:
    chosen = {"empty": EmptyPolicy(refusal="undefined")}
    rows = check(None, chosen, response="I don't know.")
    scored = {metric for metric, row in rows.items() if row["status"] == "scored"}
    assert scored == {"claim_recall", "context_precision"}
    assert rows["f1"]["reason"] == "the response is a refusal (policy: undefined)"


def test_a_policy_with_compat_is_refused() -> None:
    with pytest.raises(ValidationError, match="empty cannot be combined with compat"):
        RagChecker(compat="ragchecker-0.1", empty=EmptyPolicy(response="undefined"))


def test_verdicts_on_all_contexts_joined_are_refused(judge: Any) -> None:
    given = tables(judge, {**EXAMPLE, "reference_in_passages": []})
    _, given[6] = judge("reference", "retrieved_contexts", {"s": [YES, NO]})
    message = r"expected verdicts by passage \(premises: each\), found some on all joined"
    with pytest.raises(TableError, match=message):
        RagChecker().run(*given)


def test_noise_sensitivity_needs_one_direction_less(judge: Any) -> None:
    given = tables(judge, EXAMPLE)
    del given[4]
    assert "reference_in_response" not in NoiseSensitivity.inputs
    for mode in ("relevant", "irrelevant"):
        (row,) = NoiseSensitivity(mode=mode).run(*given).to_dicts()
        assert (row["metric"], row["score"]) == ("noise_sensitivity", 1 / 3)
        assert (row["part"], row["whole"]) == (1.0, 3.0)
    (row,) = (
        NoiseSensitivity(empty=EmptyPolicy(refusal=1))
        .run(given[0].with_columns(response=pl.lit("I don't know.")), *given[1:])
        .to_dicts()
    )
    assert (row["score"], row["part"]) == (1.0, None)


label = st.sampled_from([YES, NO, CONTRARY])


@st.composite
def examples(draw: Any) -> Any:
    response, reference, passages = (draw(st.integers(0, 4)) for _ in range(3))
    several = st.lists(label, min_size=passages, max_size=passages)

    def each(count: int, of: Any) -> Any:
        return draw(st.lists(of, min_size=count, max_size=count))

    return {
        "response_in_reference": each(response, label),
        "reference_in_response": each(reference, label),
        "response_in_passages": each(response, several),
        "reference_in_passages": each(reference, several),
    }


several = st.lists(examples(), min_size=20, max_size=40)


def scores(judge: Any, given: Sequence[Any], *, compat: Any = None) -> list[Any]:
    """The score of each metric, for each of the examples."""
    cases = {
        f"{number:02}": (example, {"retrieved_contexts": ["x"] * passages_in(example)})
        for number, example in enumerate(given)
    }
    table = RagChecker(compat=compat).run(*tables_of(judge, cases))
    found: dict[str, dict[str, Any]] = {name: {} for name in cases}
    for row in table.iter_rows(named=True):
        found[row["sample_id"]][row["metric"]] = row["score"]
    return list(found.values())


def passages_in(example: Any) -> int:
    lists = [*example["response_in_passages"], *example["reference_in_passages"]]
    return len(lists[0]) if lists else 2


@few
@given(examples=several)
def test_the_shares_of_the_response_add_up(judge: Any, examples: Any) -> None:
    for example, found in zip(examples, scores(judge, examples), strict=True):
        assert found.keys() == METRICS
        assert all(score is None or 0.0 <= score <= 1.0 for score in found.values())
        if example["response_in_reference"]:
            assert sum(found[metric] for metric in OF_RESPONSE) == pytest.approx(1.0)
            if example["reference_in_response"]:
                wrong = found["hallucination"] + sum(found[metric] for metric in NOISE)
                assert wrong == pytest.approx(1 - found["precision"])


def moved(example: Any, seed: Any) -> Any:
    """The same with its claims and its passages in another order."""
    passages = passages_in(example)
    by_passage = seed.sample(range(passages), passages)
    order = {
        side: seed.sample(range(count), count)
        for side in ("response", "reference")
        for count in [len(example[f"{side}_in_passages"])]
    }
    found = {
        name: [labels[n] for n in order[name[: name.index("_")]]]
        for name, labels in example.items()
    }
    for name in ("response_in_passages", "reference_in_passages"):
        found[name] = [[labels[n] for n in by_passage] for labels in found[name]]
    return found


@few
@given(examples=several, seed=st.randoms(use_true_random=False))
def test_the_order_of_claims_and_passages_does_not_matter(
    judge: Any, examples: Any, seed: Any
) -> None:
    others = [moved(example, seed) for example in examples]
    assert scores(judge, others) == scores(judge, examples)


@few
@given(examples=several, more=st.lists(label, min_size=4, max_size=4))
def test_another_passage_never_lowers_claim_recall_or_faithfulness(
    judge: Any, examples: Any, more: Any
) -> None:
    widened = [dict(example) for example in examples]
    for wide in widened:
        for name in ("response_in_passages", "reference_in_passages"):
            wide[name] = [[*labels, extra] for labels, extra in zip(wide[name], more, strict=False)]
    usual = scores(judge, examples)
    for before, after in zip(usual, scores(judge, widened), strict=True):
        for metric in ("claim_recall", "faithfulness"):
            assert (before[metric] is None) == (after[metric] is None)
            assert before[metric] is None or after[metric] >= before[metric]


@few
@given(examples=several)
def test_compat_differs_where_ours_is_undefined_or_there_are_no_passages(
    judge: Any, examples: Any
) -> None:
    usual = scores(judge, examples)
    compat = scores(judge, examples, compat="ragchecker-0.1")
    for example, ours, theirs in zip(examples, usual, compat, strict=True):
        for metric, score in theirs.items():
            if metric in OF_RESPONSE and not passages_in(example):
                assert score == 0.0
            else:
                assert score == (0.0 if ours[metric] is None else ours[metric])


def test_texts_that_all_agree_score_1(judge: Any) -> None:
    every = [YES, YES]
    alike = {name: every if "passages" not in name else [every, every] for name in EXAMPLE}
    (found,) = scores(judge, [alike])
    best = METRICS - {"hallucination", "self_knowledge", *NOISE}
    assert {metric for metric, score in found.items() if score == 1.0} == best
    assert {found[metric] for metric in METRICS - best} == {0.0}
