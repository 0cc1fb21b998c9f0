"""Runs of some samples or some steps: marked where they are shown, and left out of comparisons."""

import json
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from claimflow.flows.api import run_pipeline
from claimflow.flows.cli.main import main
from claimflow.flows.cli.schedule import announce_other_stores
from claimflow.flows.pipeline.rerun import Rerun
from claimflow.flows.pipeline.schedules import read_schedules
from claimflow.flows.quality.gates import recorded_outcomes
from claimflow.flows.report.run_document import RunDocument, past_means
from claimflow.flows.runner.plan import coverage, select_steps
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.runs import Coverage, find_run, newest_run
from claimflow.flows.store.store import Store
from claimflow.flows.testing import assert_scores

GATES = "gates: {factual_correctness: {min: 0.9}}\n"
SOME = "1 of 3 samples"


@pytest.fixture
def gated(small: Path) -> Iterator[Path]:
    """The small pipeline with a gate, in the current folder; its mean is 0.5."""
    small.write_text(small.read_text("utf-8") + GATES, "utf-8")
    with chdir(small.parent):
        yield small


def run(path: Path, *, limit: int | None = None, only: tuple[str, ...] = ()) -> str:
    rerun = Rerun(only=only)
    return run_pipeline(prepare(path, limit=limit, rerun=rerun), rerun=rerun).run_id


def test_unusable_samples_are_left_out_and_counted(
    small: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with chdir(small.parent):
        with Path("samples.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"sample_id": "x", "response": 5}\nnot JSON\n{"sample_id": "birth"}\n')
        assert main(["run", "small.yaml"]) == 2
        messages = capsys.readouterr().err.splitlines()
        assert len(messages) == 3
        assert messages[0] == "claimflow: samples.jsonl:4: 'response' is a number; write it as text"
        assert main(["plan", "small.yaml", "--skip-unusable"]) == 0
        assert "partial run (--skip-unusable): latest," in capsys.readouterr().out
        caplog.clear()
        assert main(["run", "small.yaml", "--skip-unusable"]) == 0
        assert caplog.messages == [
            "claimflow: warning: samples.jsonl:4: left out as unusable (and 2 more): "
            "'response' is a number; write it as text"
        ]
        printed = capsys.readouterr().out
        assert ": 3 of 6 samples, 8 steps made" in printed
        assert "partial run (--skip-unusable): latest," in printed
        assert main(["report", "--format", "markdown"]) == 0
        assert "3 of 6 samples" in capsys.readouterr().out
        recorded = ask(small, "SELECT sample_count, samples_available, selection FROM audit.runs")
        assert recorded == [(3, 6, "--skip-unusable")]
        assert main(["plan", "small.yaml", "--skip-unusable", "--limit", "2"]) == 0
        assert "partial run (--limit 2): latest," in capsys.readouterr().out
        Path("ids").write_text("birth\n", "utf-8")
        some = prepare(small, rerun=Rerun(skip_unusable=True, samples="ids")).samples
        assert (some.count, some.available) == (1, 6)
        assert some.selection == "--skip-unusable --samples ids"


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    with Store(path.with_name("small.duckdb")).reading() as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize(
    ("options", "limit", "expected"),
    [
        ({}, None, (3, 3, 8, 8, None)),
        ({}, 3, (3, 3, 8, 8, None)),
        ({}, 2, (2, 3, 8, 8, "--limit 2")),
        ({"samples": "ids"}, None, (1, 3, 8, 8, "--samples ids")),
        ({"skip_unusable": True}, None, (3, 3, 8, 8, None)),
        ({"only": ("precision",)}, None, (3, 3, 4, 8, "--only precision")),
        ({"from_step": "precision"}, 2, (2, 3, 7, 8, "--limit 2 --from precision")),
    ],
)
def test_how_much_of_its_pipeline_a_run_has(
    small: Path,
    options: dict[str, Any],
    limit: int | None,
    expected: tuple[int, int, int, int, str | None],
) -> None:
    rerun = Rerun(**options)
    with chdir(small.parent):
        Path("ids").write_text("birth\n", "utf-8")
        prepared = prepare(small, limit=limit, rerun=rerun)
        found = coverage(prepared, select_steps(prepared.pipeline, rerun), rerun)
    assert found == Coverage(*expected)


def test_what_is_wrong_with_samples_beyond_the_limit_is_no_fault(small: Path) -> None:
    with small.with_name("samples.jsonl").open("a", encoding="utf-8") as file:
        file.write("{no JSON\n")
    samples = prepare(small, limit=2).samples
    assert (samples.count, samples.available, samples.faults) == (2, 4, ())


@pytest.mark.parametrize(("limit", "only"), [(1, ()), (None, ("deterministic_faithfulness",))])
def test_a_partial_run_is_not_the_latest(
    gated: Path, limit: int | None, only: tuple[str, ...]
) -> None:
    store = Store(gated.with_name("small.duckdb"))
    first, second = run(gated), run(gated)
    partial = run(gated, limit=limit, only=only)
    assert newest_run(store) == partial
    assert find_run(store, "latest") == second
    assert find_run(store, "previous") == first
    assert find_run(store, "previous", before=partial) == second
    assert find_run(store, partial) == partial
    assert ask(gated, "SELECT DISTINCT pipeline, run_id FROM latest.scores") == [("small", second)]
    assert ask(gated, "SELECT count(*) FROM latest.scores") == [(12,)]
    for metric in past_means(store, second).values():
        assert {one.run_id for one in metric} == {first, second}
    third = run(gated)
    for metric in past_means(store, third).values():
        assert {one.run_id for one in metric} == {first, second, third}
    # Asked by its id it is shown, in its own trend too.
    if limit:
        for metric in past_means(store, partial).values():
            assert {one.run_id for one in metric} == {first, second, partial}


def test_a_store_with_partial_runs_only_has_no_latest(
    gated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(gated, limit=1)
    run(gated, limit=1)
    store = gated.with_name("small.duckdb")
    assert main(["diff", "--store", str(store)]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: {store}: holds no whole run (done, with all samples and steps), so there is "
        "no latest one; run the pipeline without options, or name a run, as `claimflow runs` "
        "lists it\n"
    )
    assert ask(gated, "SELECT count(*) FROM latest.samples") == [(0,)]


def test_gates_skip_a_run_of_some_samples(gated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(gated), "--limit", "1"]) == 5
    printed = capsys.readouterr().out
    assert "skipped" in printed
    assert f"not checked: {SOME}" in printed
    store = Store(gated.with_name("small.duckdb"))
    partial = str(newest_run(store))
    [found] = recorded_outcomes(store, partial)
    assert (found.outcome, found.reason) == ("skipped", f"not checked: {SOME}")
    # Asked for it by its id, the command checks it.
    assert main(["gate", str(gated), "--run", partial]) == 5
    assert f"run {partial}, partial: {SOME}" in capsys.readouterr().out
    [found] = recorded_outcomes(store, partial)
    assert found.outcome == "inconclusive"
    assert main(["gate", str(gated)]) == 2
    assert "holds no whole run of small" in capsys.readouterr().err


def test_gates_check_the_metrics_of_a_run_of_some_steps(gated: Path) -> None:
    gated.write_text(gated.read_text("utf-8").replace("min: 0.9", "max: 1"), "utf-8")
    run(gated)
    store = Store(gated.with_name("small.duckdb"))
    [found] = recorded_outcomes(store, run(gated, only=("precision",)))
    assert (found.outcome, found.value) == ("pass", 0.5)
    [found] = recorded_outcomes(store, run(gated, only=("context_matches",)))
    assert (found.outcome, found.reason) == ("skipped", "not checked: 3 samples, 2 of 8 steps")


def test_a_baseline_that_is_partial_is_named_so(gated: Path) -> None:
    first = run(gated, limit=1)
    text = gated.read_text("utf-8").replace("min: 0.9", f"no_worse_than: {first}, by: 0.5")
    gated.write_text(text, "utf-8")
    [found] = recorded_outcomes(Store(gated.with_name("small.duckdb")), run(gated))
    assert found.baseline == first
    assert found.reason.endswith(f"; run {first} has {SOME}")


def test_every_format_marks_a_partial_run(gated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(gated)
    partial = run(gated, limit=1)
    line = "partial run (--limit 1): latest, trends and baselines leave it out"
    where = ["--store", "small.duckdb"]

    def printed(*arguments: str) -> str:
        capsys.readouterr()
        main([*arguments, *where])
        return capsys.readouterr().out

    assert f"run {partial}: {SOME}, 8 steps made" in printed("show", partial)
    assert line in printed("show", partial)
    assert SOME in printed("runs")
    assert f"sample tower  (run {partial}, partial: {SOME})" in printed("explain", "tower")
    assert f"small, partial, {SOME}" in printed("diff", "latest", partial)
    assert f"small, partial, {SOME}" in printed("report", "--against", "latest", partial)
    assert line in printed("report", partial)
    assert f"**warning** `{line}`" in printed("report", "--format", "markdown", partial)
    document = json.loads(printed("report", "--format", "json", partial))
    assert (document["run"]["partial"], document["run"]["selection"]) == (SOME, "--limit 1")
    xml = ElementTree.fromstring(printed("report", "--format", "junit", partial))
    [skipped] = xml.findall("testsuite[@name='run']/testcase/skipped")
    assert skipped.get("message") == f"{SOME}; {line}"
    [gate] = xml.findall("testsuite[@name='gates']/testcase/skipped")
    assert f"not checked: {SOME}" in str(gate.get("message"))


def test_a_run_of_some_steps_says_so(gated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "small.yaml", "--only", "precision"]) == 2
    run(gated)
    capsys.readouterr()
    # The file after the steps, as the usage line shows it.
    assert main(["run", "--only", "precision", "small.yaml"]) == 5
    printed = capsys.readouterr().out
    assert ": 3 samples, 4 of 8 steps, 0 steps made, 4 reused" in printed
    assert (
        "scores without intervals: no step of this run uses summarize_scores (--only precision)"
        in printed
    )
    # Queries that are proposed are on this run, which is not the latest.
    partial = newest_run(Store(gated.with_name("small.duckdb")))
    assert f"AND run_id = '{partial}'" in printed
    assert "FROM latest." not in printed


def test_failed_looks_at_every_step_in_its_newest_run_of_all_samples(
    gated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(gated)
    with Store(gated.with_name("small.duckdb")).writing() as connection:
        connection.execute(
            "UPDATE audit.artifacts SET failures = 1 WHERE artifact_id = (SELECT artifact_id "
            f"FROM audit.run_steps WHERE run_id = '{whole}' AND step = 'context_matches')"
        )
    run(gated, limit=1)
    run(gated, only=("precision",))
    capsys.readouterr()
    assert main(["plan", "small.yaml", "--failed"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "samples samples reuse 3 rows" in lines
    assert "context_matches lexical_match make" in lines
    assert "partial run (--failed): latest, trends and baselines leave it out" in lines


def test_a_store_of_several_pipelines(
    gated: Path, write_small: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    other = gated.with_name("other.yaml")
    other.write_text(gated.read_text("utf-8").replace("name: small", "name: other"), "utf-8")
    first, second = run(gated), run(gated)
    newest = run(other)
    both = "SELECT pipeline, run_id FROM latest.scores GROUP BY ALL ORDER BY pipeline"
    assert ask(gated, both) == [("other", newest), ("small", second)]
    store = ["--store", "small.duckdb"]
    capsys.readouterr()
    assert main(["tag", "latest", "main", *store]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"main is run {newest}\n"
    assert printed.err == f"claimflow: run {newest} is of other; for small add --config PIPELINE\n"
    assert main(["diff", "--config", "small.yaml"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(f"A  {first} ")
    for words in (["diff", first], ["diff", first, "latest"]):
        assert main([*words, *store]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        lines = printed.out.splitlines()
        assert [line.split()[:2] for line in lines[:2]] == [["A", first], ["B", second]]
    assert main(["diff", second, "previous", *store]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["B", first]
    run(gated, limit=1)
    assert main(["tag", "latest", "main", "--config", "small.yaml"]) == 0
    partial = newest_run(Store(gated.with_name("small.duckdb")), pipeline="small")
    printed = capsys.readouterr()
    assert printed.out == f"main is run {second}\n"
    assert printed.err == (
        f"claimflow: latest is run {second}; the newer run {partial} is partial: {SOME}\n"
    )


def test_a_test_suite_does_not_take_a_partial_run_for_granted(gated: Path) -> None:
    store = gated.with_name("small.duckdb")
    partial = run(gated, limit=1)
    with pytest.raises(AssertionError, match=f"the run is partial: {SOME}"):
        assert_scores(store=store, at_least={"factual_correctness": 0.4})
    assert assert_scores(store=store, run=partial, at_most={"factual_correctness": 1}) == partial
    assert assert_scores(pipeline=gated, limit=1)
    assert RunDocument(Store(store), partial).head.partial == SOME


def test_trials_push_no_whole_run_out_of_the_store(
    gated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oldest, whole = run(gated), run(gated)
    trials = [run(gated, limit=1) for _ in range(2)]
    capsys.readouterr()
    store = ["--store", "small.duckdb"]
    assert main(["prune", "--keep-runs", "1", *store]) == 0
    assert ask(gated, "SELECT run_id FROM audit.runs ORDER BY started_at") == [
        (one,) for one in (whole, *trials)
    ]
    assert oldest in capsys.readouterr().out


def test_a_run_that_changes_the_store_of_later_commands_says_so(
    gated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = gated.with_name("small.duckdb"), gated.with_name("other.duckdb")
    assert main(["run", "small.yaml", "--limit", "1"]) == 5
    assert "commands without --store" not in capsys.readouterr().err
    assert main(["run", "small.yaml", "--limit", "1", "--store", "other.duckdb"]) == 5
    note = f"claimflow: commands without --store now read {other} instead of {first}\n"
    assert note in capsys.readouterr().err
    assert main(["runs"]) == 0
    assert capsys.readouterr().err == f"store: {other} (last used here)\n"


def test_schedules_that_write_to_another_store_are_announced(
    gated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.yaml").write_text(
        "deployments:\n  night: {pipeline: small.yaml, cron: 0 2 * * *}\n", "utf-8"
    )
    scheduled = read_schedules(Path("s.yaml")).scheduled
    announce_other_stores(scheduled)
    assert capsys.readouterr().err == ""
    assert main(["run", "small.yaml", "--limit", "1", "--store", "other.duckdb"]) == 5
    capsys.readouterr()
    announce_other_stores(scheduled)
    mine, other = gated.with_name("small.duckdb"), gated.with_name("other.duckdb")
    assert capsys.readouterr().err == (
        f"evaluate/night writes to {mine}; commands here without --store read {other}\n"
    )
