"""The run document, and the samples of a report."""

from pathlib import Path

import pytest

from claimflow.flows.quality.comparison import compare
from claimflow.flows.report.html import sample_entries
from claimflow.flows.report.run_document import RunDocument, StepMetric, scored_values
from claimflow.flows.report.samples import changed_samples, ranked_samples, traced_samples
from claimflow.flows.store.results import sample_count
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key
from tests.flows.recorded_runs import put_run
from tests.flows.report_runs import EVIL, LONG, put_runs, samples_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, str, str]:
    return put_runs(tmp_path_factory.mktemp("runs"))


def test_a_document_has_the_run_and_those_before(runs: tuple[Store, str, str]) -> None:
    store, a, b = runs
    found = RunDocument(store, b)
    assert (found.head.run_id, found.head.pipeline, found.head.status) == (b, "<b>p</b>", "done")
    assert found.head.tags == []
    assert sample_count(found.steps) == 5
    past = found.past[StepMetric("precision", "precision")]
    assert [(one.run_id, one.mean) for one in past] == [(a, 0.625), (b, 0.5)]
    assert found.calls[0]["calls"] == 3
    assert [(row["step"], row["failure"], row["failed"]) for row in found.failures] == [
        ("in_reference", "timeout", 1),
        ("precision", None, 1),
    ]
    # The second run is not in the past of the first.
    assert [
        one.run_id for one in RunDocument(store, a).past[StepMetric("precision", "precision")]
    ] == [a]


def test_only_scored_samples_have_values(runs: tuple[Store, str, str]) -> None:
    store, _, b = runs
    assert scored_values(store, b, StepMetric("precision", "precision")) == [0.0, 0.25, 1.0]


def test_the_lowest_come_first_and_failures_count_as_0(
    runs: tuple[Store, str, str],
) -> None:
    store, a, _ = runs
    assert ranked_samples(store, a, 10).rows() == [
        (EVIL, 0.0),
        ("long", 0.25),
        ("tower", 0.5),
        ("برج", 1.0),
        ("silent", None),
    ]
    assert ranked_samples(store, a, 2)["sample_id"].to_list() == [EVIL, "long"]


def test_given_samples_come_first(runs: tuple[Store, str, str]) -> None:
    store, a, _ = runs
    ranked = ranked_samples(store, a, 3, before=["silent", "unknown", "tower"])
    assert ranked["sample_id"].to_list() == ["silent", "tower", EVIL]


def test_metrics_for_which_lower_is_better_are_inverted(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run = put_run(store, samples_of("noise_sensitivity", {"good": 0.1, "bad": 0.9}))
    assert ranked_samples(store, run, 10)["sample_id"].to_list() == ["bad", "good"]


def test_changed_samples_are_ordered_by_flips_then_by_score_changes(
    runs: tuple[Store, str, str],
) -> None:
    store, a, b = runs
    assert changed_samples(compare(store, a, b)) == ["tower"]
    assert changed_samples(compare(store, a, a)) == []


def test_samples_are_traced_in_the_given_order(runs: tuple[Store, str, str]) -> None:
    store, _, b = runs
    found = list(traced_samples(store, b, ["long", "unknown", "tower"]))
    assert [one["sample_id"] for one in found] == ["long", "tower"]
    assert found[0]["response"] == LONG
    tower = found[1]
    assert tower["metadata"] == {"topic": "Paris", "level": 3}
    assert [claim["claim"] for claim in tower["claims"]] == [
        "The tower stands in Paris.",
        "Der Turm wächst größer.",
    ]
    assert [(v["step"], v["verdict"], v["passage"]) for v in tower["claims"][0]["verdicts"]] == [
        ("in_reference", "contradicted", None),
        ("in_contexts", "contradicted", 1),
    ]
    [score] = tower["scores"]
    assert (score["score"], score["details"]["entailed"]) == (0.0, 1)
    # That of a vote which was not the first to say so is there too.
    assert {call["call_id"]: call["reply"] for call in tower["calls"]} == {
        content_key("call", "decompose"): '{"claims": []}',
        content_key("call", "verify"): EVIL,
        content_key("call", "vote"): "Yes.",
    }
    assert tower["sentences"][0]["rouge_l_f1"] == 0.5


def test_many_samples_are_read_in_batches(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    names = [f"sample {number}" for number in range(250)]
    run = put_run(store, samples_of("precision", dict.fromkeys(names, 0.5)))
    found = list(traced_samples(store, run, names[::-1]))
    assert [one["sample_id"] for one in found] == names[::-1]


def test_an_entry_of_a_comparison_has_the_differing_parts(runs: tuple[Store, str, str]) -> None:
    store, a, b = runs
    names = [("long", 0.25), ("tower", 0.0)]
    same, other = sample_entries(store, b, names, compare(store, a, b))
    assert "changes" not in same
    assert "before" not in same
    assert other["mean"] == 0.0
    [claim] = other["changes"]["claims"]
    assert (claim["a"], claim["b"], claim["cause"]) == ("entailed", "contradicted", "chance")
    [score] = other["changes"]["scores"]
    assert (score["score_a"], score["score_b"]) == (0.5, 0.0)
    # The texts are the same, and so are the calls.
    assert set(other["before"]) == {"claims", "scores", "calls"}
    assert other["before"]["calls"] == []
    assert other["before"]["claims"][0]["verdicts"][0]["verdict"] == "entailed"


def test_a_system_message_is_written_once(runs: tuple[Store, str, str]) -> None:
    store, _, b = runs
    one, other = sample_entries(store, b, [("tower", 0.0), ("long", 0.25)])
    assert [call["system"] for call in one["calls"]] == ["You judge.", 0, 0]
    assert [call["system"] for call in other["calls"]] == [0, 0]


def test_a_sample_that_only_the_second_run_has_is_new(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    a = put_run(store, samples_of("precision", {"old": 0.5}))
    b = put_run(store, samples_of("precision", {"old": 0.5, "new": 0.5}))
    comparison = compare(store, a, b)
    assert changed_samples(comparison) == ["new"]
    new, old = sample_entries(store, b, [("new", 0.5), ("old", 0.5)], comparison)
    assert new["changes"]["state"] == "new"
    assert "before" not in new
    assert "changes" not in old
