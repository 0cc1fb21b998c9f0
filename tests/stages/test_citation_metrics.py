"""Recall and precision of citations by the definitions of ALCE, and misattribution.

The cases are worked by hand from section 3 of Gao et al. 2023, https://arxiv.org/abs/2305.14627:
recall is 1 for a statement whose cited passages entail it together; a citation is imprecise if they
do not, or if it alone does not support the statement and the others still do.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from claimflow.stages.rows import Citation, Claim, Sample, Verdict, content_key
from claimflow.stages.scores.citation_metrics import CitationScores
from claimflow.stages.scores.empty_cases import EmptyPolicy
from claimflow.stages.tables import TableError, build

YES, NO = "entailed", "neutral"
METRICS = ("recall", "precision", "misattribution")


class Case(NamedTuple):
    """A claim: the passages that it cites (None: to none), and the labels of its premises.

    `without` are the labels of the cited passages but one, by the one that is left out.
    """

    cites: Sequence[int | None]
    together: str | None
    alone: Sequence[str]
    without: Mapping[int, str] = {}


def tables(
    samples: Mapping[str, Sequence[Case]], fields: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, pl.DataFrame]:
    rows: dict[type[Any], list[dict[str, Any]]] = {Sample: [], Claim: [], Citation: []}
    each: list[dict[str, Any]] = []
    cited: list[dict[str, Any]] = []
    for name, cases in samples.items():
        count = max((len(case.alone) for case in cases), default=3)
        texts = {"response": "a response", "retrieved_contexts": ["x"] * count}
        rows[Sample].append({"sample_id": name, **texts, **(fields or {}).get(name, {})})
        for number, case in enumerate(cases):
            key = {"claim_id": content_key("claim", name, number)}
            claim = {"sample_id": name, "of": "response", "claim": f"claim {number}"}
            rows[Claim].append(key | claim)
            rows[Citation] += [
                {**key, "sample_id": name, "marker": f"[{n}]", "passage": passage, "start": 0}
                | {"end": 1}
                for n, passage in enumerate(case.cites)
            ]
            verdict = {**key, "against": "retrieved_contexts"}
            each += [
                {**verdict, "passage": passage, "verdict": label}
                for passage, label in enumerate(case.alone)
            ]
            if case.together:
                cited.append({**verdict, "verdict": case.together})
            cited += [
                {**verdict, "passage": passage, "verdict": label}
                for passage, label in case.without.items()
            ]
    return {
        "samples": build(Sample, rows[Sample]),
        "response_claims": build(Claim, rows[Claim]),
        "response_citations": build(Citation, rows[Citation]),
        "response_in_passages": build(Verdict, each),
        "response_in_cited": build(Verdict, cited),
    }


def scores(given: Mapping[str, pl.DataFrame], **chosen: Any) -> dict[str, dict[str, Any]]:
    """The scores of the sample `s` by metric."""
    rows = CitationScores(**chosen).make(given, {}).filter(sample_id="s").to_dicts()
    return {row["metric"].removeprefix("citation_"): row for row in rows}


def values(*cases: Case) -> tuple[float | None, ...]:
    found = scores(tables({"s": cases}))
    return tuple(found[metric]["score"] for metric in METRICS)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        # One citation that supports its claim, and one that does not.
        ([Case([0], YES, [YES, NO])], (1, 1, 0)),
        ([Case([0], NO, [NO, NO])], (0, 0, 0)),
        # The second of two adds nothing: the first alone suffices.
        ([Case([0, 1], YES, [YES, NO])], (1, 1 / 2, 0)),
        # Neither alone suffices, both together do: both are needed.
        ([Case([0, 1], YES, [NO, NO])], (1, 1, 0)),
        # Each alone suffices: neither is irrelevant, although either could go.
        ([Case([0, 1], YES, [YES, YES])], (1, 1, 0)),
        # Of three the first two are needed, the third is not.
        ([Case([0, 1, 2], YES, [NO, NO, NO], {0: NO, 1: NO, 2: YES})], (1, 2 / 3, 0)),
        # Of three one alone suffices: the others are not needed.
        ([Case([0, 1, 2], YES, [YES, NO, NO], {0: NO, 1: YES, 2: YES})], (1, 1 / 3, 0)),
        # Of three all are needed.
        ([Case([0, 1, 2], YES, [NO, NO, NO], {0: NO, 1: NO, 2: NO})], (1, 1, 0)),
        # A claim that the passages do not entail together has no precise citation.
        ([Case([0, 1], NO, [YES, NO])], (0, 0, 0)),
        # A claim without citations counts in recall alone.
        ([Case([0], YES, [YES, NO]), Case([], None, [YES, YES])], (1 / 2, 1, 0)),
        # The cited passage does not entail the claim, and another one does.
        ([Case([1], NO, [YES, NO])], (0, 0, 1)),
        ([Case([1], NO, [NO, NO]), Case([1], NO, [YES, NO])], (0, 0, 1 / 2)),
        # A marker that points to nothing: an imprecise citation beside a precise one.
        ([Case([0, None], YES, [YES, NO])], (1, 1 / 2, 0)),
        ([Case([None], NO, [YES, NO])], (0, 0, 1)),
        # A passage that contradicts a claim does not entail it.
        ([Case([0], "contradicted", ["contradicted", YES])], (0, 0, 1)),
    ],
)
def test_cases_by_hand(cases: list[Case], expected: tuple[float, ...]) -> None:
    assert values(*cases) == expected


def test_ratios_and_details() -> None:
    found = scores(
        tables(
            {
                "s": [
                    Case([0, 1, None], YES, [YES, NO]),
                    Case([1], NO, [YES, NO]),
                    Case([], None, [YES, NO]),
                ]
            }
        )
    )
    details = {metric: json.loads(row["details"]) for metric, row in found.items()}
    policy = {"empty": None, "worth": None}
    assert details == {
        "recall": {"cited_claims": 2, "claims": 3, "supported": 1} | policy,
        "precision": {"citations": 4, "precise": 1, "to_no_passage": 1} | policy,
        "misattribution": {"cited_claims": 2, "misattributed": 1, "unsupported": 1} | policy,
    }
    for row in found.values():
        assert row["score"] == row["part"] / row["whole"]


@pytest.mark.parametrize(
    ("cases", "fields", "expected"),
    [
        ([], {}, ["no claims in the response"] * 3),
        ([Case([], None, [YES])], {}, [None, *["no citations in the response"] * 2]),
        (
            [Case([None], NO, [])],
            {"retrieved_contexts": []},
            ["no passages were retrieved; there are no contexts (policy: formula)"] * 3,
        ),
        ([], {"retrieved_contexts": None}, ["missing: retrieved_contexts"] * 3),
        (
            [],
            {"response": " "},
            ["no claims in the response; the response is empty (policy: formula)"] * 3,
        ),
    ],
)
def test_undefined(cases: list[Case], fields: dict[str, Any], expected: list[str | None]) -> None:
    found = scores(tables({"s": cases}, {"s": fields}))
    assert [found[metric]["reason"] for metric in METRICS] == expected
    status = ["undefined" if reason else "scored" for reason in expected]
    assert [found[metric]["status"] for metric in METRICS] == status


THREE = Case([0, 1, 2], YES, [NO, NO, NO], {0: NO, 1: NO, 2: YES})


def failed(
    change: Callable[[dict[str, pl.DataFrame]], dict[str, pl.DataFrame]],
) -> list[str | None]:
    """The reasons of the failed scores of a sample, after a change of its tables."""
    given = tables({"s": [THREE, Case([], None, [NO] * 3)], "other": [THREE]})
    found = scores(given | change(given))
    statuses = {row["status"] for row in found.values() if row["reason"]}
    assert statuses <= {"failed"}
    return [found[metric]["reason"] for metric in METRICS]


def test_a_missing_verdict_fails_the_metrics_that_need_it() -> None:
    first, no_citation = (content_key("claim", "s", number) for number in (0, 1))
    lacking = "1 of 2 claims of the response have no verdict"

    def without(name: str, passage: int | None, claim: str = first) -> Any:
        gone = (pl.col("claim_id") == claim) & pl.col("passage").eq_missing(passage)
        return lambda given: {name: given[name].filter(~gone)}

    assert failed(without("response_in_cited", None)) == [lacking] * 3
    assert failed(without("response_in_cited", 1)) == [None, lacking, None]
    assert failed(without("response_in_passages", 1)) == [None, lacking, lacking]
    # No metric needs the verdicts on a claim without citations.
    assert failed(without("response_in_passages", 1, no_citation)) == [None] * 3

    def unread(given: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        lost = (pl.col("claim_id") == first) & pl.col("passage").is_null()
        broken = {"verdict": None, "status": "failed", "failure": "timeout"}
        table = given["response_in_cited"]
        return {
            "response_in_cited": table.with_columns(
                pl.when(lost).then(pl.lit(value)).otherwise(name).alias(name)
                for name, value in broken.items()
            )
        }

    assert failed(unread) == [f"{lacking} (timeout)"] * 3

    def undecomposed(given: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        row = {"claim_id": content_key("none"), "sample_id": "s", "of": "response", "claim": None}
        more = build(Claim, [row | {"status": "failed"}])
        return {"response_claims": pl.concat([given["response_claims"], more])}

    assert failed(undecomposed) == ["the response could not be decomposed into claims"] * 3


def test_blank_contexts_need_no_verdict() -> None:
    case = Case([0], YES, [YES])
    assert values(case) == (1, 1, 0)
    found = scores(tables({"s": [case]}, {"s": {"retrieved_contexts": ["x", " "]}}))
    assert [found[metric]["score"] for metric in METRICS] == [1, 1, 0]


def test_tables_of_other_premises_are_refused() -> None:
    given = tables({"s": [THREE]})
    with pytest.raises(TableError, match="premises: each"):
        scores(given | {"response_in_passages": given["response_in_cited"]})
    with pytest.raises(TableError, match="a verdict on passage 1 of a sample with 1 contexts"):
        scores(tables({"s": [THREE]}, {"s": {"retrieved_contexts": ["x"]}}))


def test_an_empty_case_can_be_undefined_and_no_number() -> None:
    chosen = {"empty": EmptyPolicy(refusal="undefined")}
    given = tables({"s": [Case([0], YES, [YES])]}, {"s": {"response": "I don't know."}})
    assert {row["status"] for row in scores(given, **chosen).values()} == {"undefined"}
    with pytest.raises(ValidationError, match="best of some of these metrics"):
        CitationScores(empty=EmptyPolicy(contexts=0))


# The same by the loop of ALCE's eval.py, on claims in place of sentences.


def by_loop(cases: Sequence[Case]) -> tuple[float | None, ...]:
    supported = precise = citations = cited = misattributed = 0
    for case in cases:
        if not case.cites:
            continue
        passages = [one for one in case.cites if one is not None]
        cited += 1
        citations += len(case.cites)
        supported += case.together == YES
        others = [label for n, label in enumerate(case.alone) if n not in passages]
        misattributed += case.together != YES and YES in others
        for one in passages if case.together == YES else []:
            rest = [other for other in passages if other != one]
            if case.alone[one] == YES or not rest:
                precise += 1
            elif len(rest) == 1:
                precise += case.alone[rest[0]] != YES
            else:
                precise += case.without[one] != YES
    return (
        supported / len(cases) if cases else None,
        precise / citations if citations else None,
        misattributed / cited if cited else None,
    )


labels = st.sampled_from([YES, NO, "contradicted"])


@st.composite
def claims(draw: st.DrawFn) -> Case:
    alone = draw(st.lists(labels, min_size=4, max_size=4))
    passages = draw(st.lists(st.integers(0, 3), unique=True, max_size=4))
    together = draw(labels) if passages else NO
    if len(passages) == 1:
        together = alone[passages[0]]
    without = {one: draw(labels) for one in passages} if len(passages) > 2 else {}
    lost: list[int | None] = [None] * draw(st.integers(0, 1))
    cites = [*passages, *lost]
    return Case(cites, together if cites else None, alone, without)


@settings(max_examples=30)
@given(samples=st.lists(st.lists(claims(), max_size=4), max_size=5), seed=st.integers(0, 9))
@example(samples=[], seed=0)
def test_the_scores_are_those_of_the_loop_in_any_order(samples: Any, seed: int) -> None:
    contexts = {str(n): {"retrieved_contexts": ["x"] * 4} for n in range(len(samples))}
    given = tables({str(n): cases for n, cases in enumerate(samples)}, contexts)
    for name, table in given.items():
        given[name] = table.sample(fraction=1, shuffle=True, seed=seed)
    made = CitationScores().make(given, {})
    assert made.height == 3 * len(samples)
    found = {(row["sample_id"], row["metric"]): row for row in made.to_dicts()}
    for number, cases in enumerate(samples):
        for metric, expected in zip(METRICS, by_loop(cases), strict=True):
            row = found[str(number), f"citation_{metric}"]
            assert (row["score"], row["status"] == "scored") == (expected, expected is not None)
            assert row["score"] is None or 0 <= row["score"] <= 1
            assert row["score"] is not None or row["reason"]
