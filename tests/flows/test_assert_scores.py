"""`assert_scores`, as test suites of users call it."""

import re
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.result import Result
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store
from claimflow.flows.testing import assert_scores
from tests.flows.recorded_runs import put_run, samples, scores


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A run of four samples, of which one failed and one has an id that would steer a terminal."""
    store = Store(tmp_path_factory.mktemp("testing") / "s.duckdb")
    names = ["a", "b", "c", "d\x1b[31m"]
    rising = dict(zip(names, (0.25, 0.5, "failed", 0.75), strict=True))
    put_run(
        store,
        {
            "samples": samples(names),
            "faithfulness": scores("faithfulness", rising),
            "noise": scores("noise", dict.fromkeys(names, 0.5)),
            "empty": scores("empty", dict.fromkeys(names, "undefined")),
        },
    )
    return store


def test_a_run_that_meets_its_expectations_returns_its_id(store: Store) -> None:
    run_id = assert_scores(
        store=store.path,
        run="latest",
        at_least={"faithfulness": 0.5, "faithfulness.faithfulness": 0.4},
        at_most={"noise": 0.5},
        failed_rows=1,
    )
    assert run_id == chosen_run(store, "latest")


def test_every_missed_expectation_is_listed(store: Store) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_scores(
            store=store.path,
            at_least={"faithfulness": 0.9, "noise": 0.5, "empty": 0.0},
            at_most={"noise": 0.25},
        )
    run_id = chosen_run(store, None)
    assert str(failed.value).splitlines() == [
        f"run {run_id} of {store.path}",
        "faithfulness: mean 0.500 is below 0.9 (95 % interval 0.250 to 0.750; "
        "3 of 4 samples scored)",
        "  lowest: a 0.250",
        "  lowest: b 0.500",
        "  lowest: d␛[31m 0.750",
        "empty: has no mean (0 of 4 samples scored), expected one",
        "noise: mean 0.500 is above 0.25 (95 % interval 0.500 to 0.500; 4 of 4 samples scored)",
        *(f"  highest: {name} 0.500" for name in ("a", "b", "c", "d␛[31m")),
        "1 row failed, at most 0 allowed: faithfulness 1",
    ]


def test_an_unknown_metric_is_an_input_error(store: Store) -> None:
    with pytest.raises(InputError) as wrong:
        assert_scores(store=store.path, at_least={"faithfulnes": 0.5})
    assert str(wrong.value) == (
        "at_least: no step makes the metric 'faithfulnes'; did you mean 'faithfulness'?"
    )


def test_bounds_that_are_no_numbers(store: Store) -> None:
    wrong: dict[str, Any] = {"faithfulness": "a", "noise": float("nan")}
    with pytest.raises(InputError) as caught:
        assert_scores(store=store.path, at_least=wrong, at_most={"noise": True}, failed_rows=-1)
    assert str(caught.value).splitlines() == [
        "at_least.faithfulness: 'a' is not a finite number; write a number",
        "at_least.noise: nan is not a finite number; write a number",
        "at_most.noise: True is not a finite number; write a number",
        "assert_scores.failed_rows: -1 is out of range; write 0 or more",
    ]


def test_pytest_shows_no_frame_of_claimflow(store: Store) -> None:
    with pytest.raises(InputError) as caught:
        assert_scores(store=store.path, at_least={"faithfulnes": 0.5})
    assert [entry.name for entry in caught.traceback] == [
        "test_pytest_shows_no_frame_of_claimflow",
        "assert_scores",
    ]
    assert caught.traceback[-1].ishidden(caught)


def test_it_takes_a_pipeline_or_a_store(store: Store, small: Path) -> None:
    with pytest.raises(InputError, match="assert_scores: has no pipeline; name one, or the store"):
        assert_scores()
    with pytest.raises(InputError, match="assert_scores: has no pipeline"):
        assert_scores(store=store.path, limit=1)
    with pytest.raises(InputError, match="assert_scores: has a pipeline and a run; name the"):
        assert_scores(pipeline=small, run="latest")


def test_a_pipeline_is_run_and_its_gates_count(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates = "gates: {factual_correctness: {min: 0.99}, token_overlap_faithfulness: {min: 0.4}}\n"
    small.write_text(small.read_text("utf-8") + gates, "utf-8")
    with pytest.raises(AssertionError) as failed:
        assert_scores(pipeline=str(small), at_least={"factual_correctness": 0.4})
    _, line = str(failed.value).splitlines()
    assert line == (
        "gate failed: factual_correctness: min 0.99: 0.500 (0.095 to 0.905), 2 of 3 samples scored"
    )
    lower = small.read_text("utf-8").replace("0.99", "0.5")
    small.write_text(lower, "utf-8")
    run_id = assert_scores(pipeline=small, at_least={"precision.factual_correctness": 0.5})
    with Store(small.parent / "small.duckdb").reading() as connection:
        made = "SELECT count(*) FROM audit.run_steps WHERE run_id = $run AND NOT reused"
        assert connection.execute(made, {"run": run_id}).fetchall() == [(0,)]
    assert capsys.readouterr().out == ""


def test_the_documented_example_works(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "flows/guides/report.md"
    section = page.read_text("utf-8").partition("\n## In your own tests\n")[2]
    example, printed = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)[:2]
    small.rename(small.parent / "nightly.yaml")
    monkeypatch.chdir(small.parent)
    names: dict[str, Any] = {}
    exec(example, names)
    with pytest.raises(AssertionError) as failed:
        names["test_our_answers"]()
    assert str(failed.value).splitlines()[1:] == printed.splitlines()[1:]


def test_a_result_meets_expectations_or_not(store: Store) -> None:
    result = Result(store, chosen_run(store, "latest"))
    assert assert_scores(result, at_least={"faithfulness": 0.5}, failed_rows=1) == result.run_id
    with pytest.raises(AssertionError, match=r"faithfulness: mean 0.500 is below 0.9"):
        assert_scores(result, at_least={"faithfulness": 0.9}, failed_rows=1)
    with pytest.raises(InputError, match="has a result and a run to find"):
        assert_scores(result, run="latest")
