"""`@metric`: a function on one sample becomes a stage."""

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from claimflow.stages.metric import Metric, MetricResult, metric
from claimflow.stages.registry import find_stage
from claimflow.stages.rows import Claim, Sample, Score, Verdict, content_key
from claimflow.stages.tables import build


@metric
def density(sample: Sample, response_claims: list[Claim]) -> float | None:
    """Claims by word."""
    words = (sample.response or "").split()
    return len(response_claims) / len(words) if words else None


@metric(lower_is_better=True, metric_range=(0, 1), version=2, name="not_entailed")
def not_entailed_share(
    response_in_contexts: list[Verdict], *, weight: float = 1.0, kind: Literal["a", "b"] = "a"
) -> float:
    return weight * sum(one.verdict != "entailed" for one in response_in_contexts)


def of(result: Callable[[Sample], Any], **options: Any) -> dict[str, Any]:
    """The row of a metric that returns `result` of a sample."""

    def function(sample: Sample) -> Any:
        return result(sample)

    stage = metric(**options)(function).stage()
    samples = build(Sample, [{"sample_id": "a", "response": "Two words."}])
    return stage.make({"samples": samples}, {}).row(0, named=True)


SAMPLES = build(Sample, [{"sample_id": name, "response": "Two words."} for name in "ab"])
CLAIMS = build(
    Claim,
    [
        {
            "claim_id": content_key("test", name),
            "sample_id": name[0],
            "of": "response",
            "claim": name,
        }
        for name in ("a1", "a2", "b1")
    ],
)


def verdicts(**of: str | None) -> pl.DataFrame:
    rows = [
        {
            "claim_id": content_key("test", name),
            "against": "retrieved_contexts",
            "verdict": verdict,
            "status": "judged" if verdict else "failed",
            "failure": None if verdict else "timeout",
        }
        for name, verdict in of.items()
    ]
    return build(Verdict, rows)


def test_a_metric_is_still_the_function() -> None:
    assert isinstance(density, Metric)
    assert density.__name__ == "density"
    assert density.__doc__ == "Claims by word."
    assert density(Sample(sample_id="a", response="Two words."), []) == 0.0


def test_the_rows_of_each_sample_are_given() -> None:
    table = density.stage().make({"samples": SAMPLES, "response_claims": CLAIMS}, {})
    assert dict(table.select("sample_id", "score").iter_rows()) == {"a": 1.0, "b": 0.5}
    assert set(table["metric"]) == {"density"}


def test_verdicts_reach_the_sample_of_their_claim() -> None:
    made = verdicts(a1="entailed", a2="neutral", b1="entailed")
    tables = {"samples": SAMPLES, "response_claims": CLAIMS, "response_in_contexts": made}
    table = not_entailed_share.stage(weight=0.5).make(tables, {})
    assert dict(table.select("sample_id", "score").iter_rows()) == {"a": 0.5, "b": 0.0}


def test_verdicts_on_other_claims_are_refused() -> None:
    tables = {
        "samples": SAMPLES,
        "response_claims": CLAIMS.head(1),
        "response_in_contexts": verdicts(b1="neutral"),
    }
    with pytest.raises(ValueError, match="response_in_contexts has verdicts on claims that are"):
        not_entailed_share.stage().make(tables, {})


def test_a_failed_row_of_an_input_fails_its_sample_alone() -> None:
    made = verdicts(a1="entailed", a2=None, b1="entailed")
    tables = {"samples": SAMPLES, "response_claims": CLAIMS, "response_in_contexts": made}
    table = not_entailed_share.stage().make(tables, {})
    assert table.select("status", "reason").rows() == [
        ("failed", "1 of 2 rows of response_in_contexts failed: timeout"),
        ("scored", None),
    ]


def test_the_class_attributes_are_those_of_the_decorator() -> None:
    stage = not_entailed_share.stage
    assert stage.metrics == ("not_entailed",)
    assert (stage.version, stage.metric_range) == (2, (0, 1))
    assert stage.lower_is_better == {"not_entailed"}
    assert stage.use == f"{__name__}:not_entailed_share"
    assert stage.expects == {"response_in_contexts": {"claims": "response_claims"}}
    assert density.stage.expects == {"response_claims": {"of": "response"}}
    assert density.stage.version == 1


def test_settings_have_the_types_of_the_parameters() -> None:
    assert not_entailed_share.stage().model_dump() == {"weight": 1.0, "kind": "a"}
    with pytest.raises(ValidationError):
        not_entailed_share.stage(weight="much")
    with pytest.raises(ValidationError):
        not_entailed_share.stage(kind="c")


def test_a_stage_of_a_metric_can_be_sent_to_another_process() -> None:
    stage = not_entailed_share.stage(weight=0.25)
    assert pickle.loads(pickle.dumps(stage)) == stage
    assert find_stage(f"{__name__}:not_entailed_share") is not_entailed_share.stage


@pytest.mark.parametrize(
    ("result", "score", "status", "reason"),
    [
        (0.5, 0.5, "scored", None),
        (True, 1.0, "scored", None),
        (3, 3.0, "scored", None),
        (MetricResult(0.5, "why"), 0.5, "scored", "why"),
        (None, None, "undefined", "the metric returned None"),
        (MetricResult(None, "no words"), None, "undefined", "no words"),
        (math.nan, None, "failed", "returned nan, which is no finite number"),
        (math.inf, None, "failed", "returned inf, which is no finite number"),
        ("0.5", None, "failed", "returned str '0.5', not a number"),
        (MetricResult(1.0, details={"a": {1}}), None, "failed", "its details are no JSON object"),
    ],
)
def test_results(result: Any, score: float | None, status: str, reason: str | None) -> None:
    row = of(lambda _: result)
    assert (row["score"], row["status"]) == (score, status)
    assert row["reason"] == reason or row["reason"].startswith(str(reason))


def test_details_are_stored_as_json() -> None:
    assert (
        of(lambda _: MetricResult(0.5, details={"b": 1, "a": [2]}))["details"] == '{"a":[2],"b":1}'
    )


def test_a_score_outside_of_the_range_has_failed() -> None:
    row = of(lambda _: 1.5, metric_range=(0, 1))
    assert (row["status"], row["reason"]) == ("failed", "returned 1.5, which is outside of 0 to 1")


def test_an_exception_is_a_failed_row_that_names_file_and_line() -> None:
    def fail(_: Sample) -> float:
        raise KeyError("topic")

    row = of(fail)
    line = fail.__code__.co_firstlineno + 1
    assert row["status"] == "failed"
    assert row["reason"] == f"KeyError: 'topic' (test_metric.py:{line})"


def test_sys_exit_in_a_metric_is_a_failed_row() -> None:
    def leave(_: Sample) -> float:
        raise SystemExit(3)

    assert of(leave)["reason"].startswith("SystemExit: 3 (test_metric.py:")


def test_a_missing_field_is_none_or_undefined_where_it_is_required() -> None:
    assert of(lambda sample: float(sample.reference is None))["score"] == 1.0
    row = of(lambda sample: 1.0, required_fields=("reference",))
    assert (row["status"], row["reason"]) == ("undefined", "missing: reference")


def test_metadata_fields() -> None:
    sample = Sample(sample_id="a", metadata='{"topic": "tax"}')
    assert sample.metadata_fields == {"topic": "tax"}


def test_every_row_keeps_its_metric_name() -> None:
    stage = metric(name="other")(density.function).stage
    table = stage().make({"samples": SAMPLES, "response_claims": CLAIMS}, {})
    assert set(table["metric"]) == {"other"}
    assert table.columns == list(Score.model_fields)


def bad_star(*values: float) -> float: ...
def bad_type(sample: Sample, words: dict[str, int]) -> float: ...
def bad_setting(sample: Sample, at: float) -> float: ...
def bad_name(sample: Sample, version: int = 1) -> float: ...
def bad_verdicts(sample: Sample, judged: list[Verdict]) -> float: ...
async def bad_async(sample: Sample) -> float: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (bad_star, r"name every parameter, without \* and /"),
        (bad_type, "the parameter 'words' is neither a Sample, nor a list of rows"),
        (bad_setting, "the parameter 'at' is neither a Sample, nor a list of rows"),
        (bad_name, "the name 'version' is taken"),
        (bad_verdicts, "begin the name of 'judged' with response_ or reference_"),
        (bad_async, "is a coroutine or a generator"),
    ],
)
def test_functions_that_cannot_be_read(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        metric(function)


def test_a_required_field_that_no_sample_can_have() -> None:
    with pytest.raises(TypeError, match="a sample has no field 'respone'"):
        metric(required_fields=("respone",))(density.function)  # type: ignore[arg-type]


NOTEBOOK = """
from claimflow import Claim, Sample, metric
import re
LIMIT = 3
WORDS = {"a": ["tower"]}
FOUND = re.compile("tower")
class Settings:
    share = 1.0
    def scaled(self, score):
        return score * self.share
settings = Settings()
settings.weight = 2
def helper(claims):
    found = FOUND.search(str(WORDS))
    return min(LIMIT, len(claims)) * settings.scaled(settings.weight)
def unused():
    return 1
@metric
def density(sample: Sample, response_claims: list[Claim]) -> float:
    return helper(response_claims)
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("LIMIT = 3", "LIMIT = 4", True),
        ('["tower"]', '["bridge"]', True),
        ('compile("tower")', 'compile("bridge")', True),
        ("share = 1.0", "share = 2.0", True),
        ("score * self", "score + self", True),
        ("weight = 2", "weight = 3", True),
        ("min(LIMIT", "max(LIMIT", True),
        ("return helper(", "return 1 + helper(", True),
        ("return 1\n", "return 2\n", False),
        ("LIMIT = 3", "# a comment\nLIMIT = 3", False),
    ],
)
def test_what_a_metric_of_a_notebook_uses_is_part_of_its_source(
    old: str, new: str, changes: bool
) -> None:
    def source(text: str) -> Any:
        # A module without a file, as that of a notebook.
        names: dict[str, Any] = {"__name__": "a_notebook"}
        exec(text, names)
        return names["density"].stage.source

    first, second = source(NOTEBOOK), source(NOTEBOOK.replace(old, new, 1))
    assert first.complete
    assert (first.digest != second.digest) == changes


def test_values_of_a_notebook_that_cannot_be_compared_are_named() -> None:
    names: dict[str, Any] = {"__name__": "a_notebook"}
    exec(NOTEBOOK.replace('{"a": ["tower"]}', "object()"), names)
    assert names["density"].stage.source.unseen == ("WORDS",)


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Ending(BaseException):
    pass


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ValueError("a \ud800"), "ValueError: a ? (test_metric.py:"),
        (OddError(), "OddError (test_metric.py:"),
        (Ending("at once"), "Ending: at once (test_metric.py:"),
        (10**400, "returned a number that is too large"),
        (MetricResult(0.5, details={1: 2}), "its details have a key that is no text: 1"),  # type: ignore[dict-item]
        (MetricResult(0.5, details=None), "its details are NoneType, not a dict"),  # type: ignore[arg-type]
    ],
)
def test_what_one_sample_does_fails_that_sample_alone(result: Any, reason: str) -> None:
    def function(sample: Sample) -> Any:
        if sample.sample_id != "b":
            return 1.0
        if isinstance(result, BaseException):
            raise result
        return result

    made = metric(function).stage().make({"samples": SAMPLES}, {})
    assert made["status"].to_list() == ["scored", "failed"]
    assert made["reason"][1].startswith(reason)


def test_a_reason_is_text_that_can_be_stored() -> None:
    assert of(lambda _: MetricResult(0.5, "a \ud800"))["reason"] == "a ?"


@pytest.mark.parametrize(
    ("scalar", "score"), [(np.bool_(True), 1.0), (np.float32(0.5), 0.5), (np.array(2), 2.0)]
)
def test_scalars_of_numpy_are_numbers(scalar: Any, score: float) -> None:
    assert of(lambda _: scalar)["score"] == score


@pytest.mark.parametrize(
    ("arguments", "function", "message"),
    [
        ({}, functools.partial(len), "is no function"),
        ({}, 5, "5 is no function"),
        ({"name": 5}, density.function, "name must be a text"),
        ({"required_fields": "response"}, density.function, "required_fields a list"),
    ],
)
def test_mistakes_in_a_decorator(arguments: Any, function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        metric(**arguments)(function)


def test_a_default_must_be_what_its_annotation_says() -> None:
    def wrong(sample: Sample, limit: int = "x") -> float:  # type: ignore[assignment]
        return 1.0

    with pytest.raises(TypeError, match="the default of 'limit' is 'x', which is not what"):
        metric(wrong)
