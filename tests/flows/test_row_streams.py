"""Steps that get rows of another step while it is being made, where a language model is asked."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from claimflow.flows.errors import StoreFullError
from claimflow.flows.pipeline.rerun import Rerun, select_steps
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner import estimate, part_maker, slices, table_builder
from claimflow.flows.runner.chains import receivers
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.artifacts import ArtifactWriter
from tests.endpoint import faults
from tests.endpoint.fault import Fault
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import DECOMPOSE, EMBEDDED, SCORE, VERIFY, Judged

STREAMED = {"response_claims": DECOMPOSE, "response_in_reference": VERIFY, "precision": SCORE}

BOTH_SIDES = STREAMED | {
    "reference_claims": DECOMPOSE | {"of": "reference"},
    "reference_in_response": VERIFY | {"claims": "reference_claims", "against": "response"},
    "response_in_contexts": VERIFY | {"against": "retrieved_contexts"},
}

DIGESTS = """
SELECT step, digest::VARCHAR, failures FROM audit.run_steps
JOIN (SELECT artifact_id, digest, failures FROM audit.artifacts) USING (artifact_id)
WHERE run_id = (SELECT max(run_id) FROM audit.runs) ORDER BY step
"""


def sample(number: int, **more: Any) -> dict[str, Any]:
    return {
        "sample_id": f"s{number}",
        "response": f"Tower {number} stands in Paris. It opened in 1890.",
        "reference": f"Case {number}. Tower {number} stands in Paris, and it opened in 1889.",
        "retrieved_contexts": [f"Tower {number} stands in Paris."],
    } | more


SAMPLES = [sample(number) for number in range(9)] + [sample(9, response=""), sample(10)]


SLICES, PARTS = (5, 2), (2, 2)

both = pytest.mark.parametrize(
    "small_parts", [SLICES, PARTS], ids=["slices", "parts"], indirect=True
)


@pytest.fixture(autouse=True)
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of five samples, cut into slices of two or more; with `PARTS` parts of two."""
    part, fewest = getattr(request, "param", SLICES)
    monkeypatch.setattr(table_builder, "SHARD", part)
    monkeypatch.setattr(estimate, "SHARD", part)
    monkeypatch.setattr(slices, "_FEWEST", fewest)


def steps_of(judged: Judged) -> Mapping[str, Step]:
    return {step.name: step for step in prepare(judged.path).pipeline.steps}


def is_verdict(body: Any) -> bool:
    """Whether a request is about verdicts."""
    return "verdict" in json.dumps(body["response_format"])


class UntilVerdicts:
    """Fails requests for the claims of one sample until a verdict on another one is asked for."""

    def __init__(self, sample: int) -> None:
        self._text = f"Tower {sample} stands"
        self._asked = False
        self.failed = 0

    def __call__(self, number: int, body: Any, key: str) -> Fault | None:
        if is_verdict(body):
            self._asked = True
        elif not self._asked and self._text in json.dumps(body):
            self.failed += 1
            return faults.status(503)
        return None


@both
@pytest.mark.parametrize("sharing", [False, True], ids=["one step", "steps that share calls"])
def test_verdicts_begin_before_all_claims_are_made(tmp_path: Path, sharing: bool) -> None:
    rule = UntilVerdicts(10)
    with serve(fault=rule) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BOTH_SIDES if sharing else STREAMED, max_concurrency=2)
        judged.run()
        assert judged.ask("SELECT count(*) FROM latest.claims WHERE status = 'failed'") == [(0,)]


@both
@pytest.mark.parametrize("count", [1, 2], ids=["one process", "workers"])
def test_verdicts_begin_while_rules_make_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(ArtifactWriter, "add", hold_claims(lambda: endpoint.hits > 0))
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        steps = STREAMED | {"response_claims": EMBEDDED}
        judged.write(SAMPLES, steps=steps, more={"workers": {"count": count}})
        judged.run()


def hold_claims(until: Callable[[], bool]) -> Callable[..., None]:
    """`ArtifactWriter.add`, which stores no claims until something has happened."""
    add = ArtifactWriter.add

    def held(self: ArtifactWriter, first: int, *parts: Any) -> None:
        if parts and "claim" in parts[0].columns:
            end = time.monotonic() + 30
            while not until():
                assert time.monotonic() < end, "nothing was asked before the claims were stored"
                time.sleep(0.01)
        add(self, first, *parts)

    return held


def tables(folder: Path, endpoint: Endpoint, steps: Mapping[str, Any]) -> Any:
    """Digests and failures of the tables of a run, and how many requests it sent."""
    folder.mkdir()
    judged = Judged(folder, endpoint)
    judged.write(SAMPLES, steps=steps, max_concurrency=2)
    judged.run()
    return judged.ask(DIGESTS), endpoint.hits


@pytest.mark.parametrize("steps", [STREAMED, BOTH_SIDES], ids=["one side", "both sides"])
@pytest.mark.parametrize("broken", [False, True], ids=["replies", "some refused"])
def test_tables_are_the_same_as_when_each_is_stored_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Mapping[str, Any], broken: bool
) -> None:
    refused = faults.where(lambda body: "Tower 3 stands" in json.dumps(body), faults.policy())
    with serve(fault=refused if broken else None) as endpoint:
        streamed = tables(tmp_path / "streamed", endpoint, steps)
        monkeypatch.setattr(part_maker, "receivers", lambda *_: [])
        monkeypatch.setattr(slices, "_FEWEST", 99)
        stored = tables(tmp_path / "stored", endpoint, steps)
    assert streamed == stored
    assert any(failures for *_, failures in stored[0]) == broken


@pytest.mark.parametrize("steps", [STREAMED, BOTH_SIDES], ids=["one side", "both sides"])
def test_a_premise_that_samples_share_is_sent_once_and_a_plan_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Mapping[str, Any]
) -> None:
    monkeypatch.setattr(table_builder, "SHARD", 99)
    monkeypatch.setattr(estimate, "SHARD", 99)
    embedded = {
        name: {k: v for k, v in step.items() if k != "texts_per_call"} | {"judge": "embedded"}
        if step["use"] == "decompose_claims"
        else step
        for name, step in steps.items()
    }
    # Two samples far from each other have a reference in common, and others a context.
    reference = "Tower 0 stands in Paris, and it opened in 1889. Case 0."
    shared = [sample(n) | ({"reference": reference} if n in (0, 9) else {}) for n in range(12)]
    for one in shared[4:7]:
        one["retrieved_contexts"] = [*one["retrieved_contexts"], "Many towers stand in Paris."]
    with serve() as endpoint:
        found = []
        for fewest in (2, 99):
            monkeypatch.setattr(slices, "_FEWEST", fewest)
            folder = tmp_path / str(fewest)
            folder.mkdir()
            judged = Judged(folder, endpoint)
            judged.write(shared, steps=embedded)
            calls = planned_calls(judged)
            judged.run()
            assert endpoint.hits == calls
            found.append((judged.ask(DIGESTS), calls))
    assert found[0] == found[1]


def planned_calls(judged: Judged) -> int:
    prepared = prepare(judged.path)
    steps = plan(prepared, judged.store, choice=select_steps(prepared.pipeline, Rerun()))
    return sum(one.calls for one in estimate.estimate(prepared, judged.store, steps).values())


@pytest.mark.parametrize("count", [7, 12])
def test_a_plan_counts_the_calls_of_each_slice(tmp_path: Path, count: int) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        verify = {k: v for k, v in VERIFY.items() if k != "premises_per_call"}
        steps = {"response_claims": EMBEDDED, "response_in_reference": verify, "precision": SCORE}
        judged.write([sample(number) for number in range(count)], steps=steps)
        calls = planned_calls(judged)
        judged.run()
        assert endpoint.hits == calls
        # Claims that are stored, and verdicts that are to be made anew.
        judged.write([sample(number) for number in range(count)], steps=steps, model="openai/other")
        calls = planned_calls(judged)
        judged.run()
        assert endpoint.hits == calls


def test_samples_with_a_common_text_are_in_one_slice() -> None:
    texts = [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z"), ("b", "w"), ("e", None), (None, "d")]
    rows = [
        {"sample_id": str(n), "response": left, "reference": right, "retrieved_contexts": None}
        for n, (left, right) in enumerate(texts)
    ]
    samples = pl.DataFrame(rows, schema_overrides={"retrieved_contexts": pl.List(pl.String)})
    found = [one["sample_id"].to_list() for one in slices.slices(samples, 2)]
    assert found == [["0", "2"], ["1", "4"], ["3", "6"], ["5"]]
    assert [one.height for one in slices.slices(samples, 7)] == [7]
    assert [slices.slice_size(count, 2000) for count in (500, 2_000, 30_000)] == [63, 250, 2000]


def test_a_second_run_asks_and_makes_nothing(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BOTH_SIDES)
        judged.run()
        judged.run()
        assert endpoint.hits == 0
        assert judged.ask("SELECT count(*) FROM audit.artifacts WHERE kind = 'verdicts'") == [(3,)]


def test_a_new_sample_costs_its_own_calls(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=STREAMED)
        judged.run()
        judged.write([*SAMPLES, sample(11)], steps=STREAMED)
        judged.run()
        assert endpoint.hits == 2


def test_rows_are_made_once_where_some_claims_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(stage: Any, *arguments: Any) -> Any:
        made.append(stage.use)
        return make_table(stage, *arguments)

    make_table = part_maker.make_table
    broken = faults.where(lambda body: "Case 3." in json.dumps(body), faults.prose())
    with serve(fault=broken) as endpoint:
        judged = Judged(tmp_path, endpoint)
        steps = STREAMED | {"response_claims": EMBEDDED}
        judged.write(SAMPLES, steps=steps)
        judged.run()
        # Another pipeline stores the samples of the next run of the first one.
        judged.write([*SAMPLES, sample(11)], steps={"response_claims": DECOMPOSE})
        judged.run()
        judged.write([*SAMPLES, sample(11)], steps=steps)
        monkeypatch.setattr(part_maker, "make_table", counted)
        judged.run()
        assert made.count("verify_claims") <= 7
        # The new sample, and the one whose replies are broken, with its repair.
        assert max(endpoint.hits_by_key.values()) == 1


def test_a_table_that_cannot_be_stored_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ArtifactWriter, first: int, *parts: Any) -> None:
        if "claim" in parts[0].columns:
            raise StoreFullError("the disk is full")
        add(self, first, *parts)

    add = ArtifactWriter.add
    monkeypatch.setattr(ArtifactWriter, "add", full)
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=STREAMED)
        with pytest.raises(StoreFullError):
            judged.run()
        # What was answered until then is not asked again.
        asked = endpoint.hits
        monkeypatch.setattr(ArtifactWriter, "add", add)
        judged.run()
        assert endpoint.hits <= 20 - asked


def test_rows_go_to_steps_that_ask_and_need_nothing_else(tmp_path: Path) -> None:
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(SAMPLES, steps=BOTH_SIDES)
        steps = steps_of(judged)

        def names(first: str, edited: str = "") -> list[str]:
            found = receivers(steps[first], steps.values(), lambda step: step.name == edited)
            return [step.name for step in found]

        assert names("response_claims") == ["response_in_reference", "response_in_contexts"]
        assert names("response_in_reference") == []
        # Rows that people corrected are not those that the step makes.
        assert names("response_claims", edited="response_claims") == []

        embedded = BOTH_SIDES | {
            name: step | {"judge": "embedded"}
            for name, step in BOTH_SIDES.items()
            if step["use"] != "factual_correctness"
        }
        judged.write(SAMPLES, steps={n: without_calls(s) for n, s in embedded.items()})
        steps = steps_of(judged)
        assert names("response_claims") == []


def without_calls(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step without the settings of calls."""
    return {k: v for k, v in step.items() if k not in ("texts_per_call", "premises_per_call")}


BEST = """
from collections.abc import Mapping

import polars as pl

from claimflow.stages.base import Stage
from claimflow.stages.tables import Scores


class Best(Stage):
    per_sample = False
    metrics = ("best",)

    def run(self, scores: Mapping[str, Scores]) -> Scores:
        every = pl.concat(scores.values()).group_by("sample_id").agg(pl.col("score").max())
        return every.with_columns(metric=pl.lit("best"), status=pl.lit("scored"))
"""


def test_a_step_may_need_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"best_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(BEST, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with serve() as endpoint:
        judged = Judged(tmp_path, endpoint)
        best = {"use": f"{module}:Best", "scores": ["precision"]}
        judged.write([sample(1), sample(2)], steps=STREAMED | {"best": best})
        judged.run()
        found = judged.ask("SELECT count(*) FROM latest.scores WHERE metric = 'best'")
        assert found == [(2,)]
