"""What is printed when a run ends: failed rows, micro means, the lowest samples."""

import json
import shlex
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.report.samples import ranked_samples
from claimflow.flows.store.artifacts import Artifact
from claimflow.flows.store.results import chosen_run, lowest_samples
from claimflow.flows.store.store import Store
from tests.endpoint import faults
from tests.endpoint.server import serve
from tests.flows.judged import Judged, about
from tests.flows.recorded_runs import Table, put_run, samples, scores

NOISE = """
name: noise
samples: {path: samples.jsonl}
store: small.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  reference_claims: {use: decompose_claims, of: reference}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  response_in_passages:
    {use: verify_claims, claims: response_claims, against: retrieved_contexts, premises: each}
  reference_in_passages:
    {use: verify_claims, claims: reference_claims, against: retrieved_contexts, premises: each}
  noise_sensitivity: {use: noise_sensitivity}
"""


@pytest.mark.parametrize(
    ("others", "line"),
    [
        ([], "4 rows failed"),
        (["prose"], "8 rows failed; run again to ask for 3 of them"),
    ],
)
def test_only_retryable_failures_suggest_another_run(
    others: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = faults.either(
        faults.where(about("declined"), faults.refused()),
        faults.where(about("prose"), faults.prose()),
    )
    with serve(fault=rule) as endpoint:
        judged = Judged(tmp_path, endpoint)
        judged.write(["good", "declined", *others])
        assert judged.command() == 1
    header, *printed = capsys.readouterr().out.strip().splitlines()
    assert line in printed
    assert header.endswith(f", {line.partition(';')[0]}")


def test_a_run_of_scores_without_a_summary_shows_their_means(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = small.read_text("utf-8")
    small.write_text(text[: text.index("  summary:")], "utf-8")
    assert main(["run", str(small)]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "factual_correctness 0.500 - 2 1 0 3" in printed
    assert "scores without intervals: add a step that uses summarize_scores" in printed
    assert not any("no means" in line for line in printed)


def test_claim_metrics_rank_the_lowest_samples(tmp_path: Path) -> None:
    tables: dict[str, Table | Artifact] = {
        "faithfulness": scores("faithfulness", {"a": 0.9, "b": 0.3}),
        "chrf": scores("chrf", {"a": 0.0, "b": 1.0, "c": 0.1}),
    }
    store = Store(tmp_path / "s.duckdb")
    run_id = put_run(store, {"samples": samples(["a", "b", "c"]), **tables})
    found = lowest_samples(store, run_id, 3).select("sample_id", "mean", "by_claims").rows()
    assert found == [("b", 0.3, True), ("a", 0.9, True), ("c", 0.1, False)]
    assert ranked_samples(store, run_id, 3)["sample_id"].to_list() == ["b", "a", "c"]


def test_every_proposed_command_runs(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.parent)
    small.rename("my pipeline.yaml")
    texts = Path("samples.jsonl").read_text("utf-8").replace('"birth"', '"-it\'s birth"')
    Path("samples.jsonl").write_text(texts, "utf-8")
    proposed = []
    for command in (
        ["run", "my pipeline.yaml", "--store", "one.duckdb"],
        ["run", "my pipeline.yaml", "--store", "two.duckdb", "--limit", "2"],
        ["show", "--store", "one.duckdb"],
        ["run", "my pipeline.yaml", "--only", "response_claims", "--store", "one.duckdb"],
    ):
        assert main(command) == 0
        printed = capsys.readouterr().out
        proposed.append(
            [shlex.split(line) for line in printed.partition("next:\n")[2].splitlines()]
        )
        for program, *arguments in proposed[-1]:
            assert program == "claimflow"
            assert main(arguments) == 0, arguments
            assert capsys.readouterr().out
    assert [[command[1] for command in commands] for commands in proposed] == [
        ["sql", "explain", "plan"],
        ["sql", "explain", "plan"],
        ["sql", "explain"],
        ["plan"],
    ]


def test_a_micro_mean_is_shown_if_it_differs_from_the_mean(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = [
        {"response": "The Eiffel Tower is located in Paris.", "retrieved_contexts": []},
        {"response": "Einstein was born in 1879. Rome is old.", "retrieved_contexts": []},
    ]
    reference = "The Eiffel Tower is located in Paris."
    lines = [json.dumps({**sample, "reference": reference}) for sample in samples]
    small.with_name("samples.jsonl").write_text("\n".join(lines), "utf-8")
    edited = small.read_text("utf-8").replace(", slices: [topic]", "")
    small.write_text(edited.replace("of: response}", "of: response, coverage: high}"), "utf-8")
    assert main(["run", str(small)]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "metric mean 95 % interval micro mean scored undefined failed of" in printed
    assert "factual_correctness 0.500 0.095 to 0.905 0.333 2 0 0 2" in printed
    assert "rouge_faithfulness 0.000 0.000 to 0.658 2 0 0 2" in printed


def test_the_lowest_samples_respect_metrics_for_which_lower_is_better(small: Path) -> None:
    reference, wrong = "The Eiffel Tower is located in Paris.", "Einstein was born in 1879."
    samples = [
        {"sample_id": "noisy", "response": wrong, "retrieved_contexts": [f"{reference} {wrong}"]},
        {"sample_id": "good", "response": reference, "retrieved_contexts": [reference]},
    ]
    lines = [json.dumps({**sample, "reference": reference}) for sample in samples]
    small.with_name("samples.jsonl").write_text("\n".join(lines), "utf-8")
    small.write_text(NOISE, "utf-8")
    assert main(["run", str(small)]) == 0
    store = Store(small.with_name("small.duckdb"))
    found = lowest_samples(store, chosen_run(store, None), 2)
    assert found.select("sample_id", "mean").rows() == [("noisy", 0.0), ("good", 1.0)]


def test_a_mean_does_not_depend_on_the_order_of_its_scores(tmp_path: Path) -> None:
    tables: dict[str, Table | Artifact] = {
        name: scores(name, {"a": value}) for name, value in (("x", 0.1), ("y", 0.2), ("z", 0.3))
    }
    means = []
    for number, order in enumerate((tables, dict(reversed(tables.items())))):
        store = Store(tmp_path / f"{number}.duckdb")
        run_id = put_run(store, {"samples": samples(["a"]), **order})
        (mean,) = lowest_samples(store, run_id, 1)["mean"]
        assert ranked_samples(store, run_id, 1)["mean"].to_list() == [mean]
        means.append(mean)
    assert means[0] == means[1] == pytest.approx(0.2)
