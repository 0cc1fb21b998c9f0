"""Mistakes in pipeline files and their messages: `tests/bad/NAME.yaml` and `.txt`."""

import inspect
from pathlib import Path

import jsonschema
import pytest

from claimflow.flows.errors import InputError
from claimflow.flows.pipeline.limits import STEPS
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.schema import json_schema, pipeline_model, step_model
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.runner.prepare import prepare
from claimflow.stages.decompose import DecomposeClaims

ROOT = Path(__file__).parents[2]
BAD = sorted((ROOT / "tests/bad").glob("*.yaml"))
SCHEDULES = ROOT / "configs/schedules.yaml"
GOOD = sorted({*(ROOT / "configs").glob("**/*.yaml")} - {SCHEDULES})


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_all_mistakes_of_a_file_are_reported_together(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(InputError) as caught:
        prepare(Path(path.name))
    message = str(caught.value).replace(str(path.parent), "FOLDER")
    assert message + "\n" == path.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_installed_pipelines_are_valid(path: Path) -> None:
    source = load_yaml(path)
    build_pipeline(source)
    jsonschema.validate(source.value, json_schema())


@pytest.mark.parametrize(
    "name", ["unknown_stage", "misspelt_key", "wrong_type", "missing_setting", "names", "top_level"]
)
def test_the_json_schema_finds_the_same_mistakes(name: str) -> None:
    value = load_yaml(ROOT / f"tests/bad/{name}.yaml").value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, json_schema())


def test_steps_are_ordered_and_connected(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        """
name: p
samples: {path: s.jsonl}
store: data/s.duckdb
embedder: {model: encoder}
steps:
  summary: {use: summarize_scores}
  again: {use: faithfulness, response_in_contexts: mine}
  mine: {use: verify_claims, claims: response_claims, against: retrieved_contexts}
  response_claims: {use: decompose_claims, of: response, atomicity: high}
"""
    )
    pipeline = build_pipeline(load_yaml(path))
    assert [(step.name, dict(step.inputs)) for step in pipeline.steps] == [
        ("response_claims", {"samples": "samples"}),
        ("mine", {"samples": "samples", "claims": "response_claims"}),
        (
            "again",
            {
                "samples": "samples",
                "response_claims": "response_claims",
                "response_in_contexts": "mine",
            },
        ),
        ("summary", {"samples": "samples", "scores": ("again",)}),
    ]
    assert pipeline.steps[0].stage == DecomposeClaims(of="response", atomicity="high")
    assert (pipeline.store, pipeline.embedder) == (tmp_path / "data/s.duckdb", tmp_path / "encoder")


def test_inputs_that_the_settings_do_not_need_need_no_step(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        """
name: p
samples: {path: s.jsonl}
store: s.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  precise: {use: factual_correctness, mode: precision}
"""
    )
    *_, step = build_pipeline(load_yaml(path)).steps
    assert step.needs == ("samples", "response_claims", "response_in_reference")


def test_every_path_is_relative_to_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    real = tmp_path / "away" / "p.yaml"
    real.write_text(
        "name: p\nsamples: {path: s.jsonl}\nstore: s.duckdb\n"
        "steps:\n  response_claims: {use: decompose_claims, of: response}\n"
    )
    (tmp_path / "link.yaml").symlink_to(real)
    (tmp_path / "s.jsonl").write_text('{"response": "Paris is old."}\n')
    prepared = prepare(tmp_path / "link.yaml")
    assert prepared.samples.count == 1
    assert prepared.pipeline.store == tmp_path / "s.duckdb"


def test_pydantic_does_not_search_the_source_of_step_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To find none takes a quarter of a second, in every process that reads a pipeline.
    monkeypatch.setattr(inspect, "findsource", None)
    monkeypatch.setattr(inspect, "getmodule", None)
    assert pipeline_model.__wrapped__() is not pipeline_model()
    stage = DecomposeClaims
    assert (
        step_model.__wrapped__(stage).model_fields.keys() == step_model(stage).model_fields.keys()
    )


def test_too_many_steps(tmp_path: Path) -> None:
    step = "{use: decompose_claims, of: response}"
    for count in (STEPS, STEPS + 1):
        (tmp_path / f"{count}.yaml").write_text(
            "name: many\nsamples: {path: s.jsonl}\nstore: s.duckdb\nsteps:\n"
            + "".join(f"  s{n}: {step}\n" for n in range(count))
        )
    assert len(build_pipeline(load_yaml(tmp_path / f"{STEPS}.yaml")).steps) == STEPS
    path = tmp_path / f"{STEPS + 1}.yaml"
    with pytest.raises(InputError) as caught:
        build_pipeline(load_yaml(path))
    assert str(caught.value) == (
        f"{path}:4 steps: 1,001 steps, more than 1,000; write several pipelines"
    )
