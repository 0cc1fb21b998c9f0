"""Pipelines from names of metrics, and pipelines given as Python values."""

from pathlib import Path

import pytest
import yaml

from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.compose import compose, metric_names, missing_fields
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.runner.prepare import prepare
from claimflow.stages.scores.claim_metrics import FactualCorrectness

CONFIGS = Path(__file__).parents[2] / "configs"
DEMO = str(CONFIGS / "demo.jsonl")


def pipeline(steps: object, store: Path) -> dict[str, object]:
    return {"name": "composed", "samples": {"path": DEMO}, "store": store, "steps": steps}


def test_the_metrics_of_the_quickstart_give_the_steps_of_the_quickstart(tmp_path: Path) -> None:
    written = load_yaml(CONFIGS / "quickstart.yaml").section("steps")
    metrics = [name for name in written if name in metric_names()]
    assert compose(metrics, slices=["domain"]) == written


def test_with_a_judge_they_give_those_of_the_quickstart_with_a_judge(tmp_path: Path) -> None:
    written = load_yaml(CONFIGS / "llm" / "quickstart.yaml").section("steps")
    steps = compose([n for n in written if n in metric_names()], slices=["domain"], judged=True)
    prompt = {"prompt": "../prompts/decompose.md"}
    for side in ("response_claims", "reference_claims"):
        steps[side] |= prompt
    assert steps == written


def test_a_metric_with_settings_has_no_others() -> None:
    ragas = {"use": "factual_correctness", "compat": "ragas-0.4"}
    assert compose([ragas])["factual_correctness"] == ragas
    alone = compose(["factual_correctness"])["factual_correctness"]
    assert alone == compose([FactualCorrectness])["factual_correctness"]
    assert (alone["beta"], alone["recall_of"], alone["count"]) == (2, "reference", "probabilities")


@pytest.mark.parametrize("metric", metric_names())
def test_each_metric_makes_a_pipeline_that_can_run(metric: str, tmp_path: Path) -> None:
    prepared = prepare(pipeline(compose([metric]), tmp_path / "s.duckdb"), limit=2)
    made = {name for step in prepared.pipeline.steps for name in (*step.stage.metrics, step.name)}
    assert metric in made


def test_the_fields_that_a_metric_lacks() -> None:
    assert missing_fields("faithfulness", ["response", "retrieved_contexts"]) == []
    assert missing_fields("rag_checker", ["response"]) == ["reference", "retrieved_contexts"]


def test_mistakes_in_metrics_are_told_together() -> None:
    mode = {"use": "factual_correctness", "mode": "precision"}
    with pytest.raises(InputError) as error:
        compose(["faithfulnes", "verify_claims", mode, "factual_correctness"])
    assert [str(fault).partition(";")[0] for fault in error.value.faults] == [
        "metrics: there is no metric 'faithfulnes'",
        "metrics: there is no metric 'verify_claims'",
        "metrics: factual_correctness is named with two settings",
    ]
    with pytest.raises(InputError, match="metrics: is empty"):
        compose([])


def test_a_pipeline_from_python_equals_its_file(tmp_path: Path) -> None:
    value = pipeline(compose(["faithfulness"]), tmp_path / "s.duckdb")
    here = prepare(value).pipeline
    file = tmp_path / "pipeline.yaml"
    file.write_text(here.source.text, "utf-8")
    there = prepare(file).pipeline
    assert yaml.safe_load(here.source.text) == there.source.value
    assert (here.steps, here.store) == (there.steps, there.store)


def test_faults_of_a_pipeline_from_python_name_its_keys(tmp_path: Path) -> None:
    steps = {"summary": {"use": "summarise_scores"}}
    with pytest.raises(InputError, match=r"^pipeline.steps.summary.use: unknown stage"):
        prepare(pipeline(steps, tmp_path / "s.duckdb"))
    with pytest.raises(InputError, match=r"pipeline\.steps\.a: is of type object; use text"):
        prepare(pipeline({"a": object()}, tmp_path / "s.duckdb"))
