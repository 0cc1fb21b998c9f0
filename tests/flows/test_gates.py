"""Gates: which side of the line, what cannot be told, what is on record, and the exit codes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.pipeline.gates import Gate
from claimflow.flows.quality.gates import Outcome, evaluate_gates, recorded_outcomes
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.runs import add_tag
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import put_run, scores

NAMES = [f"s{i}" for i in range(20)]
MIXED = {name: (0.5 if i % 2 else 0.75) for i, name in enumerate(NAMES)}
"""Mean 0.625, interval about 0.57 to 0.68."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "s.duckdb")


def judged(store: Store, values: Mapping[str, Any], **gate: Any) -> list[Outcome]:
    run = put_run(store, {"f": scores("faithfulness", values)})
    return evaluate_gates(store, run, {"faithfulness": Gate(**gate)})


def less(values: Mapping[str, float], by: float) -> dict[str, float]:
    """Lower by about that much, with some variation."""
    return {n: v - by * (1.5 if i % 4 < 2 else 0.5) for i, (n, v) in enumerate(values.items())}


@pytest.mark.parametrize(
    ("gate", "outcome"),
    [
        ({"min": 0.5}, "pass"),
        ({"min": 0.6}, "inconclusive"),
        ({"min": 0.8}, "fail"),
        ({"max": 0.8}, "pass"),
        ({"max": 0.6}, "inconclusive"),
        ({"max": 0.5}, "fail"),
    ],
)
def test_the_interval_of_the_mean_decides(
    store: Store, gate: dict[str, float], outcome: str
) -> None:
    [found] = judged(store, MIXED, **gate)
    assert found.outcome == outcome
    cut = "the limit is within the interval; " if outcome == "inconclusive" else ""
    assert found.reason == f"{cut}20 of 20 samples scored"
    assert (found.value, found.line) == (0.625, next(iter(gate.values())))


@pytest.mark.parametrize(("by", "outcome"), [(0.2, "pass"), (0.1, "inconclusive"), (0.02, "fail")])
@pytest.mark.parametrize("metric", ["faithfulness", "noise_sensitivity"])
def test_worse_depends_on_the_direction_of_the_metric(
    store: Store, metric: str, by: float, outcome: str
) -> None:
    worse = -0.1 if metric == "noise_sensitivity" else 0.1
    a = put_run(store, {"f": scores(metric, MIXED)})
    b = put_run(store, {"f": scores(metric, less(MIXED, worse))})
    add_tag(store, a, "main")
    [found] = evaluate_gates(store, b, {metric: Gate(no_worse_than="main", by=by)})
    assert (found.outcome, found.baseline) == (outcome, a)
    assert found.rule == f"no worse than main by {by:g}"
    assert found.value == pytest.approx(-worse)
    assert found.line == (by if worse < 0 else -by)


def test_a_value_at_the_threshold_passes(store: Store) -> None:
    a = put_run(store, {"f": scores("faithfulness", MIXED)})
    add_tag(store, a, "main")
    lower = {name: value - 0.02 for name, value in MIXED.items()}
    [found] = judged(store, lower, no_worse_than="main", by=0.02)
    assert found.outcome == "pass"
    [found] = judged(store, dict.fromkeys(NAMES, 0.5), min=0.5)
    assert (found.low, found.outcome) == (0.5, "pass")


@pytest.mark.parametrize(
    ("values", "gate", "reason"),
    [
        ({"s0": 0.9}, {"min": 0.5}, "1 of 1 samples scored"),
        ({"s0": 0.9, "s1": "failed"}, {"min": 0.5}, "1 of 2 samples scored"),
        ({"s0": "failed"}, {"max": 0.5}, "0 of 1 samples scored"),
        ({}, {"min": 0.5}, "the run has no such scores"),
        ({}, {"no_worse_than": "main", "by": 0}, "the run has no such scores"),
        (
            {"s0": 1},
            {"no_worse_than": "mian", "by": 0},
            "there is no run 'mian': did you mean 'main'?",
        ),
        (
            {"s0": 1},
            {"no_worse_than": "production", "by": 0},
            "there is no run 'production': name one by claimflow tag RUN production",
        ),
        ({"x": 1}, {"no_worse_than": "main", "by": 0}, "no sample is scored here and in run RUN"),
        ({"s0": 1}, {"no_worse_than": "main", "by": 0}, "1 of 1 samples scored in both"),
        ({"s0": 1}, {"no_worse_than": "other", "by": 0}, "run RUN has no such scores"),
    ],
)
def test_what_cannot_be_computed_is_inconclusive_with_a_reason(
    store: Store, values: dict[str, Any], gate: dict[str, Any], reason: str
) -> None:
    main_run = put_run(store, {"f": scores("faithfulness", MIXED)})
    other = put_run(store, {"f": scores("chrf", MIXED)})
    add_tag(store, main_run, "main")
    add_tag(store, other, "other")
    [found] = judged(store, values, **gate)
    printed = found.reason.replace(main_run, "RUN").replace(other, "RUN")
    assert (found.outcome, printed, found.low) == ("inconclusive", reason, None)


def test_previous_is_the_run_before_of_the_same_pipeline(store: Store) -> None:
    gate = {"faithfulness": Gate(no_worse_than="previous", by=0.02)}
    tables = {"f": scores("faithfulness", MIXED)}
    first = put_run(store, tables, pipeline="nightly")
    put_run(store, tables, pipeline="another")
    [found] = evaluate_gates(store, put_run(store, tables, pipeline="nightly"), gate)
    assert (found.baseline, found.outcome) == (first, "pass")
    [found] = evaluate_gates(store, first, gate)
    assert (found.outcome, found.reason) == (
        "inconclusive",
        "no whole run of the same pipeline is older",
    )


def test_a_gate_names_its_step_where_several_make_the_metric(store: Store) -> None:
    tables = {
        "good": scores("faithfulness", MIXED),
        "bad": scores("faithfulness", less(MIXED, 0.4)),
    }
    add_tag(store, put_run(store, tables), "main")
    run = put_run(store, tables)
    gates = {f"{name}.faithfulness": Gate(min=0.5, no_worse_than="main", by=0) for name in tables}
    assert [(one.metric, one.outcome, one.value) for one in evaluate_gates(store, run, gates)] == [
        ("good.faithfulness", "pass", 0.625),
        ("good.faithfulness", "pass", 0.0),
        ("bad.faithfulness", "fail", pytest.approx(0.225)),
        ("bad.faithfulness", "pass", 0.0),
    ]


def test_outcomes_are_recorded_until_the_gates_are_evaluated_again(store: Store) -> None:
    run = put_run(store, {"f": scores("faithfulness", MIXED)})
    evaluate_gates(store, run, {"faithfulness": Gate(min=0.9, max=0.95)})
    second = evaluate_gates(store, run, {"faithfulness": Gate(min=0.5)})
    assert recorded_outcomes(store, run) == second
    assert evaluate_gates(store, run, {}) == []
    assert recorded_outcomes(store, run) == second


def write(small: Path, gates: str) -> None:
    text = small.read_text("utf-8").partition("gates:")[0]
    small.write_text(f"{text}gates:\n  {gates}\n", "utf-8")


def test_gates_decide_the_exit_code_and_cost_no_step(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(small)]) == 0
    write(small, "factual_correctness: {min: 0.01}\n  rouge_faithfulness: {max: 0.01}")
    capsys.readouterr()
    assert main(["run", str(small)]) == 4
    assert ": 3 samples, 0 steps made, 8 reused" in capsys.readouterr().out
    store = Store(small.with_name("small.duckdb"))
    assert main(["show", "--live", "--store", str(store.path)]) == 4
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    printed = "0.500 0.095 to 0.905 pass 2 of 3 samples scored"
    assert f"factual_correctness: min 0.01 {printed}" in lines
    with store.reading() as connection:  # the summaries of that metric have the same numbers
        summary = "SELECT mean, low, high FROM latest.summaries WHERE slice_field IS NULL"
        query = f"{summary} AND metric = 'factual_correctness'"
        gate = "SELECT value, low, high FROM audit.gates WHERE line = 0.01 AND rule ^@ 'min'"
        assert read_table(connection, gate).rows() == read_table(connection, query).rows()


def test_the_command_evaluates_a_recorded_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, store = tmp_path / "p.yaml", Store(tmp_path / "s.duckdb")
    steps = (
        "{c: {use: decompose_claims, of: response}, f: {use: faithfulness, response_claims: c, "
        "response_in_contexts: v}, v: {use: verify_claims, claims: c, against: retrieved_contexts}}"
    )
    config.write_text(f"name: p\nsamples: {{path: s}}\nstore: s.duckdb\nsteps: {steps}\n")
    run = put_run(store, {"f": scores("faithfulness", MIXED)})
    put_run(store, {"f": scores("faithfulness", MIXED)}, pipeline="another")
    assert main(["gate", str(config)]) == 2
    printed = (
        f"claimflow: {config}: has no gates; add gates:, for example faithfulness: {{min: 0.8}}"
    )
    assert capsys.readouterr().err == f"{printed}\n"
    write(config, "faithfulness: {no_worse_than: main, by: 0.02}")
    assert main(["gate", str(config)]) == 5
    add_tag(store, run, "main")
    assert main(["gate", str(config), "--run", "main"]) == 0
    write(config, "faithfulness: {min: 0.9}")
    assert main(["gate", str(config), "--run", run]) == 4
    out = capsys.readouterr().out
    assert out.count(f"run {run}\n") == 3
    lines = [" ".join(line.split()) for line in out.splitlines()]
    rule = "faithfulness: no worse than main by 0.02"
    why = "there is no run 'main': name one by claimflow tag RUN main"
    assert f"{rule} - - inconclusive {why}" in lines
    assert f"{rule} 0.000 0.000 to 0.000 pass 20 of 20 samples scored in both" in lines
