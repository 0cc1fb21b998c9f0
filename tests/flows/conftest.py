"""A small pipeline that every test of the engine can run in a second."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.store import Store

PIPELINE = """
name: small
samples: {path: samples.jsonl}
store: small.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  reference_claims: {use: decompose_claims, of: reference}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  context_matches: {use: lexical_match, against: retrieved_contexts}
  precision: {use: factual_correctness, mode: precision}
  deterministic_faithfulness: {use: deterministic_faithfulness}
  summary: {use: summarize_scores, slices: [topic]}
"""

SAMPLES = """\
{"sample_id": "tower", "topic": "Paris", "response": "The Eiffel Tower is located in Paris.", \
"reference": "The Eiffel Tower is located in Paris. It has a height of 1000ft.", \
"retrieved_contexts": ["The Eiffel Tower stands in Paris."]}
{"sample_id": "birth", "topic": "Einstein", "response": "Einstein was born in 1879.", \
"reference": "Einstein was born in 1905.", "retrieved_contexts": []}
{"sample_id": "silence", "topic": "Paris", "response": "", "reference": "Paris is large.", \
"retrieved_contexts": ["Paris is large."]}
"""


@pytest.fixture(scope="session")
def write_small() -> Callable[[Path], Path]:
    """Writes a pipeline over three samples into a folder; returns its path."""

    def write(folder: Path) -> Path:
        (folder / "samples.jsonl").write_text(SAMPLES, "utf-8")
        path = folder / "small.yaml"
        path.write_text(PIPELINE, "utf-8")
        return path

    return write


@pytest.fixture
def small(tmp_path: Path, write_small: Callable[[Path], Path]) -> Path:
    """The path of a pipeline over three samples."""
    return write_small(tmp_path)


@pytest.fixture(scope="module")
def small_store(
    tmp_path_factory: pytest.TempPathFactory, write_small: Callable[[Path], Path]
) -> Store:
    """The store of the small pipeline, run once."""
    folder = tmp_path_factory.mktemp("finished")
    write_small(folder)
    with chdir(folder):
        assert main(["run", "small.yaml"]) == 0
    return Store(folder / "small.duckdb")
