"""`claimflow.evaluate` and its results, as scripts and notebooks call them."""

import copy
import gc
import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.store.results import all_runs
from claimflow.flows.store.store import Store
from claimflow.testing import assert_scores
from tests.endpoint.server import Endpoint, serve
from tests.flows.judged import Judged, sample

ANSWERS: list[dict[str, Any]] = [
    {
        "sample_id": name,
        "user_input": "Where is the tower?",
        "response": f"The tower stands in {place}. It opened in 1889.",
        "retrieved_contexts": ["The tower stands in Paris. The tower opened in 1889."],
    }
    for name, place in (("b", "Paris"), ("a", "Rome"))
]
WITH_REFERENCE = [{**one, "reference": "The tower stands in Paris."} for one in ANSWERS]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def result() -> claimflow.Result:
    return claimflow.evaluate(WITH_REFERENCE, metrics=["faithfulness", "rouge_l_f1"])


def test_a_result_has_the_tables_of_its_run(result: claimflow.Result) -> None:
    assert result.samples["sample_id"].to_list() == ["b", "a"]
    faithfulness = result.scores.filter(metric="faithfulness")
    assert faithfulness["sample_id"].to_list() == ["b", "a"]
    assert faithfulness["score"].to_list() == result.table["faithfulness"].to_list()
    assert result.table.columns[:3] == ["sample_id", "user_input", "response"]
    assert set(result.claims["of"]) == {"response"}
    assert set(result.verdicts["claim_id"]) == set(result.claims["claim_id"])
    assert result.summary.filter(metric="faithfulness")["n"].to_list() == [2]
    assert (result.failures.height, result.calls.height, result.gates.height) == (0, 0, 0)
    assert (result.cost_usd, result.passed, result.partial, result.failed) == (
        0.0,
        True,
        None,
        None,
    )


def test_a_metric_alone_is_that_of_the_step_with_its_name() -> None:
    result = claimflow.evaluate(
        WITH_REFERENCE,
        metrics=["context_precision", "faithfulness"],
        gates={"faithfulness": {"min": 0.01}},
    )
    both = [result[f"{step}.faithfulness"] for step in ("faithfulness", "rag_checker")]
    assert both[0].mean != both[1].mean
    assert result["faithfulness"] == both[0]
    assert result.gates["value"].to_list() == [both[0].mean]
    assert_scores(result, at_least={"faithfulness": both[0].mean})
    with pytest.raises(AssertionError, match=r"faithfulness: mean .* is below"):
        assert_scores(result, at_least={"faithfulness": both[0].mean + 0.01})


def test_a_repeated_run_is_compared_with_what_the_first_one_was(tmp_path: Path) -> None:
    def run(response: str) -> list[tuple[str, str | None]]:
        answers = [
            {"sample_id": str(n), "response": f"{response} {n}", "reference": f"The tower {n}"}
            for n in range(4)
        ]
        result = claimflow.evaluate(
            answers,
            metrics=["rouge_l_f1"],
            store=tmp_path / "s.duckdb",
            gates={"rouge_l_f1": {"no_worse_than": "previous", "by": 0.02}},
        )
        runs.append(result.run_id)
        return [(result.gates["outcome"][0], result.gates["baseline"][0])]

    runs: list[str] = []
    assert run("The tower") == [("inconclusive", None)]
    assert run("The tower") == [("pass", runs[0])]
    assert run("A house") == [("fail", runs[1])]
    assert run("A house") == [("fail", runs[1])]
    assert run("The house") == [("pass", runs[3])]


def test_a_metric_may_read_the_scores_of_another_one() -> None:
    @claimflow.metric
    def half(sample: claimflow.Sample, faithfulness: list[claimflow.Score]) -> float | None:
        score = faithfulness[0].score
        return None if score is None else score / 2

    result = claimflow.evaluate(ANSWERS, metrics=[half, "faithfulness"])
    assert result["half"].mean == pytest.approx(result["faithfulness"].mean / 2)
    with pytest.raises(claimflow.InputError, match="name faithfulness among the metrics, too"):
        claimflow.evaluate(ANSWERS, metrics=[half])


def test_a_metric_whose_parameter_names_no_step_is_told_the_steps_of_its_kind() -> None:
    @claimflow.metric
    def count(sample: claimflow.Sample, claims: list[claimflow.Claim]) -> float:
        return len(claims)

    hint = "or name it response_claims or reference_claims"
    with pytest.raises(claimflow.InputError, match=hint):
        claimflow.evaluate(ANSWERS, metrics=[count])


def test_a_mean_has_an_interval_and_counts(result: claimflow.Result) -> None:
    mean = result["faithfulness"]
    assert mean == result.mean("faithfulness.faithfulness")
    assert mean.mean == pytest.approx(result.table["faithfulness"].mean())
    assert (mean.scored, mean.samples) == (2, 2)
    assert str(mean).startswith("faithfulness 0.")
    assert str(mean).endswith(", 2 of 2")
    with pytest.raises(claimflow.InputError, match="did you mean 'faithfulness'"):
        result["faithfulnes"]


def test_sql_sees_one_run(result: claimflow.Result) -> None:
    other = claimflow.evaluate(ANSWERS[:1], metrics=["faithfulness"])
    assert other.store == result.store
    for view in ("samples", "latest.samples"):
        [(count,)] = other.sql(f"SELECT count(*) FROM {view}").rows()
        assert count == 1
    joined = result.sql(
        "SELECT DISTINCT metric FROM scores JOIN audit.run_steps USING (run_id, step) "
        "WHERE sample_id = ?",
        ["a"],
    )
    assert "faithfulness" in joined["metric"]
    with pytest.raises(claimflow.InputError, match="is not a SELECT"):
        result.sql("DROP TABLE scores")


def test_metrics_that_the_fields_do_not_allow_are_left_out() -> None:
    result = claimflow.evaluate(ANSWERS[:1])
    assert set(result.summary["metric"]) >= {"faithfulness", "rouge_faithfulness"}
    assert result.left_out["factual_correctness"] == "no sample has reference"
    assert "left out: context_recall, no sample has reference" in repr(result)


def test_a_store_that_is_named_again_has_what_it_had(tmp_path: Path, endpoint: Endpoint) -> None:
    judge = {"model": "hosted_vllm/fake", "api_base": endpoint.api_base, "timeout": 10}
    path = tmp_path / "s.duckdb"

    def evaluate(names: str) -> claimflow.Result:
        answers = [sample(name) for name in names]
        return claimflow.evaluate(answers, metrics=["factual_correctness"], judge=judge, store=path)

    first = evaluate("ab")
    hits = endpoint.hits
    assert first.calls.height == hits == 3
    again = evaluate("ab")
    assert (endpoint.hits, again.calls.height) == (hits, 0)
    assert again.scores.equals(first.scores)
    evaluate("abc")
    assert endpoint.hits == hits + 2
    assert again.diff(first).metrics["finding"].to_list() == ["same"]


def test_a_pipeline_gives_the_result_of_the_command(tmp_path: Path, endpoint: Endpoint) -> None:
    judged = Judged(tmp_path, endpoint)
    judged.write("ab")
    own = claimflow.evaluate(pipeline=judged.path)
    assert own.store == judged.store.path
    assert judged.command() == 0
    made = all_runs(judged.store).select("pipeline", "made")
    assert made.rows() == [("p", 0), ("p", 4)]
    gates = {"factual_correctness": {"min": 0.9}}
    other = claimflow.evaluate([sample("c")], pipeline=judged.path, gates=gates)
    assert other.samples["sample_id"].to_list() == ["c"]
    assert other.gates["metric"].to_list() == ["factual_correctness"]
    assert not other.passed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "answers: are missing; give answers, or a pipeline with samples"),
        ({"answers": ANSWERS, "metrics": ["faithfulnes"]}, "did you mean 'faithfulness'"),
        ({"answers": ANSWERS, "metrics": []}, "metrics: is empty"),
        ({"answers": [], "metrics": ["faithfulness"]}, "answers: no samples"),
        ({"answers": [{"response": "a"}]}, "no metric can be computed: no sample has reference"),
        ({"answers": 7}, "answers: is of type int"),
        ({"answers": ANSWERS, "metrics": ["rouge_l_f1"]}, "no sample has 'reference'"),
        ({"answers": ANSWERS, "judge": {"modle": "a"}}, "judge.modle: "),
        ({"answers": ANSWERS, "gates": {"faith": {"min": 1}}}, "gates.faith: "),
        ({"answers": ANSWERS, "limit": 0}, "limit: 0 is no number of samples"),
        ({"answers": ANSWERS, "limit": 10**5000}, "limit: more than a trillion is no number of"),
        ({"answers": ANSWERS, "limit": "3"}, "limit: is of type str; give a number of samples"),
        ({"answers": ANSWERS, "progress": "x"}, "progress: is of type str; give True, False or"),
        ({"answers": ANSWERS, "progress": 5}, "progress: is of type int; give True, False or"),
        ({"answers": ANSWERS, "skip_unusable": "yes"}, "skip_unusable: is of type str; give True"),
        ({"answers": ANSWERS, "contexts_separator": b"x"}, "contexts_separator: is of type bytes"),
        ({"answers": ANSWERS, "name": b"x"}, "name: is of type bytes; give the name of"),
        ({"answers": ANSWERS, "name": "\ud800"}, "name: holds half a character"),
        ({"answers": ANSWERS, "baseline": ""}, "there is no run ''"),
        ({"answers": ANSWERS, "store": "a\0b", "name": 5}, "\nstore: holds a character that no"),
        ({"answers": ANSWERS, "store": "x\ud800.duckdb"}, "store: holds a character that no file"),
        ({"answers": ANSWERS, "store": "a" * 300}, "store: cannot be used (File name too long)"),
        (
            {"answers": ANSWERS, "judge": {"provider": object()}},
            "judge.provider: is of type object",
        ),
        (
            {"answers": ANSWERS, "gates": {"rouge_faithfulness": {"min": float("nan")}}},
            "gates.rouge_faithfulness.min: is nan; write a finite number",
        ),
        ({"answers": ANSWERS, "judge": 5}, "judge: is of type int; give the name of a model"),
        ({"answers": ANSWERS, "store": 5, "metrics": 7}, "store: is of type int; give the path"),
        ({"answers": ANSWERS, "rename": ["a"]}, "rename: is of type list"),
        ({"answers": ANSWERS, "rename": {1: 2}}, "rename.1: is no pair of texts"),
        ({"answers": ANSWERS, "pipeline": []}, "pipeline: is of type list"),
        ({"answers": ANSWERS, "budget_usd": float("nan")}, "budget_usd: nan is not above 0"),
        ({"answers": ANSWERS, "baseline": "main"}, "there is no run 'main'"),
        ({"pipeline": "none.yaml"}, "none.yaml: cannot be read"),
        ({"pipeline": {"name": "p"}, "metrics": ["rouge_l_f1"]}, "metrics: cannot be beside"),
    ],
)
def test_mistakes_are_input_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(claimflow.InputError) as error:
        claimflow.evaluate(**arguments)
    assert message in str(error.value)


def test_a_mistake_is_placed_in_the_argument_or_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        """name: p
samples:
  path: none.jsonl
  rename: {a: nothing}
judge: {model: a, timeout: -1}
steps:
  response_claims: {use: decompose_claims, of: response}
  response_in_contexts: {use: verify_claims, claims: response_claims, against: retrieved_contexts}
  faithfulness: {use: faithfulness}
""",
        "utf-8",
    )
    file = tmp_path / "p.yaml"

    def places(answers: Any = None, **arguments: Any) -> list[str]:
        with pytest.raises(claimflow.InputError) as error:
            claimflow.evaluate(answers, pipeline=file, **arguments)
        return [fault.place for fault in error.value.faults]

    assert sorted(places(gates={"faith": {"min": 1}})) == [
        f"{file}:4 samples.rename.a",
        f"{file}:5 judge.timeout",
        "gates.faith",
    ]
    assert sorted(places(judge={"model": "a", "rpm": 0}, rename={"b": "nothing"})) == [
        "answers.rename.b",
        "judge.rpm",
    ]
    text = file.read_text("utf-8").replace(", timeout: -1", "").replace("a: nothing", "")
    file.write_text(text, "utf-8")
    assert places([{"response": "A."}]) == ["answers"]


def test_what_may_be_a_mistake_is_a_warning_of_the_result(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [{**one, "refrence": "x"} for one in ANSWERS]
    found = claimflow.evaluate(answers, metrics=["faithfulness"], slices=["topic"])
    written, sliced = found.warnings
    assert written.startswith("answers: no sample has 'reference', and the column 'refrence'")
    assert "no sample has the field 'topic'" in sliced
    assert written in str(found)
    assert "column &#39;refrence&#39; becomes metadata" in found._repr_html_()
    assert (caplog.messages, *capfd.readouterr()) == ([], "", "")


def test_a_temporary_store_goes_with_its_last_result(tmp_path: Path) -> None:
    gc.collect()
    first = claimflow.evaluate(ANSWERS[:1], metrics=["rouge_faithfulness"])
    second = claimflow.evaluate(ANSWERS[:1], metrics=["rouge_faithfulness"])
    scores = first.scores
    path = first.store
    del first
    gc.collect()
    assert path.is_file()
    assert second.sql("SELECT count(*) AS n FROM samples")["n"].to_list() == [1]
    if second.store == path:
        del second
        gc.collect()
    assert isinstance(scores, pl.DataFrame)


def test_a_stored_run_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with pytest.raises(claimflow.InputError, match="there is no store here"):
        claimflow.connect(path)
    first = claimflow.evaluate(ANSWERS, metrics=["rouge_faithfulness"], store=path)
    claimflow.evaluate(ANSWERS, metrics=["rouge_faithfulness"], store=path, limit=1)
    stored = claimflow.connect(path)
    assert stored.runs.height == 2
    assert stored.result().run_id == first.run_id
    assert stored.result().scores.equals(first.scores.sort("metric", "sample_id").sort("sample_id"))
    assert stored.sql("SELECT count(DISTINCT run_id) AS n FROM scores")["n"].to_list() == [2]
    partial = stored.result(stored.runs["run_id"][0])
    assert partial.partial == "1 of 2 samples"
    assert stored.compare(first.run_id, partial.run_id).a == first.run_id


def test_a_store_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    kept = claimflow.evaluate(ANSWERS, metrics=["rouge_faithfulness"], store=path)
    for file in tmp_path.iterdir():
        file.unlink()
    again = claimflow.evaluate(ANSWERS, metrics=["rouge_faithfulness"], store=path)
    assert all_runs(Store(path))["run_id"].to_list() == [again.run_id] != [kept.run_id]


def test_a_report_and_a_plot_are_written(result: claimflow.Result, tmp_path: Path) -> None:
    texts = {
        suffix: result.report(tmp_path / f"r{suffix}").read_text("utf-8")
        for suffix in (".html", ".md", ".json", ".xml")
    }
    assert all(result.run_id in text for text in texts.values())
    assert "<svg" in result.plot("faithfulness")._repr_mimebundle_()["image/svg+xml"]
    assert result.plot("faithfulness").save(tmp_path / "p.png").stat().st_size > 1_000
    with pytest.raises(claimflow.InputError, match=r"has the unknown ending '\.pdf'"):
        result.report(tmp_path / "r.pdf")
    with pytest.raises(claimflow.InputError, match="is neither SVG, PNG nor JSON"):
        result.plot("faithfulness").save(tmp_path / "p.gif")


def test_differences_are_plotted_as_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    metrics = ["rouge_faithfulness", "token_overlap_faithfulness"]
    first = claimflow.evaluate(ANSWERS, metrics=metrics, store=path)
    second = claimflow.evaluate(ANSWERS[:1], metrics=metrics, store=path)

    def of_command(*options: str) -> Any:
        file = tmp_path / "x.json"
        named = ["--run", second.run_id, "--against", first.run_id, "--store", str(path)]
        assert main(["plot", *options, *named, "-o", str(file)]) == 0
        return json.loads(file.read_text("utf-8"))

    assert second.plot(against=first).spec == of_command() == second.diff(first).plot().spec
    one = second.plot("rouge_faithfulness", against="previous")
    assert one.spec == of_command("rouge_faithfulness")
    assert one.spec == second.diff(first).plot("rouge_faithfulness").spec
    assert [row["metric"] for row in one.spec["data"]["values"]] == ["rouge_faithfulness"]
    drawn = [row["metric"] for row in second.diff(first).plot(*metrics).spec["data"]["values"]]
    assert set(drawn) == set(metrics)


PATH = "path: is of type int; give the path of the file to write"
NO_NAME = "holds a character that no file name in UTF-8 has; "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one, _: one[5], "metric: is of type int; give the name of a metric"),
        (lambda one, _: one["\ud800"], "metric: holds half a character"),
        (lambda one, _: one.sample(b"a"), "sample_id: is of type bytes; give the id of a sample"),
        (lambda one, _: one.diff(5), "other: is of type int; give a result, or the id or tag of"),
        (lambda one, _: one.diff(one, by=5), "by: is of type int; give the name of a metadata"),
        (lambda one, _: one.diff(""), "there is no run ''"),
        (lambda one, _: one.sql(5), "statement: is of type int; give a SELECT"),
        (lambda one, _: one.plot("faithfulness", kind="x"), "kind: 'x' is no kind of plot; known"),
        (
            lambda one, _: one.plot("faith"),
            "metric: no step makes the metric 'faith'; did you mean 'faithfulness'?",
        ),
        (
            lambda one, _: one.plot("faith", against=one),
            "metric: neither run has scores of 'faith'; did you mean 'faithfulness'?",
        ),
        (lambda one, _: one.plot(), "metric: is missing; name a metric, or another run by against"),
        (
            lambda one, _: one.plot("faithfulness", kind="trend", against=one),
            "kind: applies to one run only; leave it out, or against",
        ),
        (lambda one, _: one.plot(against=5), "against: is of type int; give a result, or the id"),
        (lambda one, _: one.diff(one).plot(5), "metric: is of type int; give the name of a metric"),
        (
            lambda one, _: claimflow.connect(one.store).compare(one.run_id, metrics=["faith"]),
            "metrics: neither run has scores of 'faith'; did you mean 'faithfulness'?",
        ),
        (lambda one, _: one.report(5), PATH),
        (lambda one, _: one.report("a\0.html"), f"path: {NO_NAME}"),
        (lambda one, _: one.report("x.html", against=""), "there is no run ''"),
        (lambda one, to: one.report(to / "none" / "x.html"), "x.html: cannot be written (No such"),
        (lambda one, _: one.plot("faithfulness").save(5), PATH),
        (
            lambda one, to: one.plot("faithfulness").save(to / "none" / "x.svg"),
            "x.svg: cannot be written (No such file or directory); name a file in a folder that",
        ),
        (lambda *_: claimflow.connect(5), "store: is of type int; give the path"),
        (lambda *_: claimflow.connect(None), "store: is of type NoneType"),
        (lambda *_: claimflow.connect("a\0b"), f"store: {NO_NAME}"),
        (lambda *_: claimflow.connect("\ud800"), f"store: {NO_NAME}"),
        (lambda *_: claimflow.connect("/"), "store: is the root of all folders"),
        (lambda one, _: claimflow.connect(one.store).result(5), "run: is of type int"),
        (lambda one, _: claimflow.connect(one.store).compare(metrics=5), "metrics: is of type int"),
    ],
)
def test_mistakes_in_a_call_of_a_result_are_input_errors(
    call: Callable[[Any, Path], Any], message: str, result: claimflow.Result, tmp_path: Path
) -> None:
    with pytest.raises(claimflow.InputError) as error:
        call(result, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize("take", [pickle.dumps, copy.deepcopy])
def test_a_result_says_how_to_pass_it_on(
    take: Callable[[Any], Any], result: claimflow.Result
) -> None:
    with pytest.raises(TypeError, match=r"claimflow\.connect\(store\)\.result\(run_id\)"):
        take(result)
    assert copy.copy(result).run_id == result.run_id


def test_an_id_that_is_a_number_is_found() -> None:
    answers = [{**ANSWERS[0], "sample_id": number} for number in (7, 8)]
    found = claimflow.evaluate(answers, metrics=["rouge_faithfulness"])
    assert found.sample(7).sample_id == "7"


def test_a_sample_shows_what_led_to_its_scores(result: claimflow.Result) -> None:
    trace = result.sample("a")
    assert "The tower stands in Rome." in repr(trace)
    assert "response_in_contexts" in repr(trace)
    assert [claim["of"] for claim in trace.rows["claims"]] == ["response"] * 2
    with pytest.raises(claimflow.InputError, match="has no sample 'z'"):
        result.sample("z")


def test_a_baseline_is_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    metrics = ["faithfulness"]
    first = claimflow.evaluate(ANSWERS, metrics=metrics, store=path)
    worse = [{**one, "response": "The tower stands in Rome."} for one in ANSWERS]
    second = claimflow.evaluate(worse, metrics=metrics, store=path, baseline=first)
    diff = second.diff()
    assert (diff.a, diff.b) == (first.run_id, second.run_id)
    [row] = diff.metrics.to_dicts()
    assert row["difference"] == pytest.approx(row["b"] - row["a"])
    assert f"change from {first.run_id}" in second._repr_html_()
    assert "made differently" not in repr(diff)
    assert diff.samples["state"].to_list() == ["changed", "changed"]
    elsewhere = claimflow.evaluate(ANSWERS, metrics=metrics)
    with pytest.raises(claimflow.InputError, match="the other run is in another store"):
        second.diff(elsewhere)
    with pytest.raises(claimflow.InputError, match="baseline: is in another store"):
        claimflow.evaluate(ANSWERS, metrics=metrics, baseline=first)


def test_contexts_in_one_text_are_split() -> None:
    answers = [{"response": "A.", "contexts": "B. || C."}]
    found = claimflow.evaluate(
        answers, metrics=["deterministic_faithfulness"], contexts_separator=" || "
    )
    assert found.samples["retrieved_contexts"].to_list() == [["B.", "C."]]
    steps = {"m": {"use": "lexical_match", "against": "retrieved_contexts"}}
    pipeline = {"name": "p", "samples": {"path": "a.jsonl"}, "steps": steps}
    found = claimflow.evaluate(answers, pipeline=pipeline, contexts_separator=" || ")
    assert found.samples["retrieved_contexts"].to_list() == [["B.", "C."]]


def test_answers_that_cannot_be_used_can_be_left_out() -> None:
    answers = [*WITH_REFERENCE, {"response": 5}]
    with pytest.raises(claimflow.InputError, match=r"answers\[2\]: 'response' is a number"):
        claimflow.evaluate(answers, metrics=["rouge_l_f1"])
    found = claimflow.evaluate(answers, metrics=["rouge_l_f1"], skip_unusable=True)
    assert found.scores["sample_id"].unique().sort().to_list() == ["a", "b"]
    (recorded,) = found.sql(
        f"SELECT sample_count, samples_available, selection FROM audit.runs "
        f"WHERE run_id = '{found.run_id}'"
    ).rows()
    assert recorded == (2, 3, "--skip-unusable")


LIMIT = 5
"""A test changes it."""


@claimflow.metric
def longer(sample: claimflow.Sample) -> float:
    return float(len(sample.response or "") > LIMIT)


def metric_of(value: float, name: str | None = None) -> Any:
    @claimflow.metric(name=name)
    def constant(sample: claimflow.Sample) -> float:
        return value

    return constant


def means(*metrics: Any) -> dict[str, float | None]:
    found = claimflow.evaluate(ANSWERS, metrics=metrics)
    return {row["metric"]: row["mean"] for row in found.summary.to_dicts()}


def test_a_metric_given_as_an_object_is_that_object(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [metric_of(0.1), metric_of(0.9)]
    assert [means(one) for one in kept] == [{"constant": 0.1}, {"constant": 0.9}]
    assert means(metric_of(0.2, "low"), metric_of(0.8, "high")) == {"low": 0.2, "high": 0.8}
    with pytest.raises(claimflow.InputError, match="two metrics are named constant; give it"):
        means(*kept)
    again = claimflow.metric(name="as_text", version=2)(longer.function)
    assert means(again, {"use": longer}) == {"as_text": 1.0, "longer": 1.0}
    monkeypatch.setattr(f"{__name__}.LIMIT", 500)
    assert means(longer) == {"longer": 0.0}


@pytest.mark.parametrize("name", ["summary", "response_claims"])
def test_a_metric_is_named_otherwise_than_other_steps(name: str) -> None:
    with pytest.raises(claimflow.InputError, match=f"another step is named {name}; give it"):
        means(metric_of(1.0, name))


def test_gates_are_a_part_of_the_text_of_a_result() -> None:
    found = claimflow.evaluate(ANSWERS, metrics=[longer], gates={"longer": {"max": 0.5}})
    assert found.gates["outcome"].to_list() == ["inconclusive"]
    assert re.search(r"longer: max 0\.5 +1\.000 ", str(found))


def test_pandas_needs_no_pyarrow(result: claimflow.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    frame = result.to_pandas()
    assert list(frame.columns) == result.table.columns
    assert frame["faithfulness"].tolist() == result.table["faithfulness"].to_list()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(claimflow.InputError, match="pandas is not installed; run: pip install"):
        result.to_pandas()


def test_a_rubric_without_a_judge_is_a_mistake_in_the_arguments() -> None:
    with pytest.raises(claimflow.InputError) as error:
        claimflow.evaluate(ANSWERS, metrics=[{"use": "rubric", "criterion": "It is polite."}])
    assert str(error.value).startswith("metrics.rubric: is not valid; only a language model judges")


def test_a_forked_process_is_told_to_spawn() -> None:
    claimflow.evaluate(ANSWERS[:1], metrics=["rouge_faithfulness"])
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            claimflow.evaluate(ANSWERS[:1], metrics=["rouge_faithfulness"])
        except claimflow.InputError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        assert 'get_context("spawn")' in told.read()
    os.wait()
