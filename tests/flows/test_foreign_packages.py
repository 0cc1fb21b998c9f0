"""claimflow in a project that has packages `flows` and `stages` of its own.

Prefect runs in such a project are in test_schedule.py (served) and tests/test_readme.py (deployed,
with a Prefect worker).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.dask_cluster import dask_cluster
from tests.flows.foreign_packages import add_foreign_packages

PIPELINE = """
name: {name}
samples: {{path: samples.jsonl}}
store: {name}.duckdb
read_copy: false
workers: {{{workers}}}
steps:
  response_claims: {{use: decompose_claims, of: response}}
  response_in_reference: {{use: verify_claims, claims: response_claims, against: reference}}
  precision: {{use: factual_correctness, mode: precision}}
"""

SAMPLE = (
    '{{"sample_id": "{0}", "response": "Tower {0} is in Paris.", '
    '"reference": "Tower {0} is in Paris."}}\n'
)

TEST = """
from claimflow.testing import assert_scores

def test_scores():
    assert_scores(pipeline="tested.yaml", at_least={"factual_correctness": 0.9})
"""


class Project:
    """A folder whose `flows` and `stages` are not ours and cannot be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = add_foreign_packages(folder)
        lines = [SAMPLE.format(number) for number in range(7)]
        (folder / "samples.jsonl").write_text("".join(lines), "utf-8")

    def write(self, name: str, workers: str = "count: 1") -> str:
        """Put a pipeline into the folder; returns the name of its file."""
        text = PIPELINE.format(name=name, workers=workers)
        (self.folder / f"{name}.yaml").write_text(text, "utf-8")
        return f"{name}.yaml"

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the folder."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": self.path},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("package", ["flows", "stages"])
def test_the_packages_of_the_project_come_first(project: Project, package: str) -> None:
    done = project.python("-c", f"import {package}")
    assert f"{package} of the project was imported" in done.stderr


def test_a_run_and_its_worker_processes(project: Project) -> None:
    config = project.write("local", workers="count: 2, shards: 7")
    done = project.python("-m", "claimflow", "run", config)
    assert done.returncode == 0, done.stderr
    assert "7 samples, 4 steps made, 0 reused" in done.stdout


def test_dask_workers(project: Project) -> None:
    with dask_cluster(project.folder, path=project.path, workers=1) as address:
        config = project.write("dask", workers=f"engine: dask, address: '{address}', shards: 2")
        done = project.python("-m", "claimflow", "run", config)
        assert done.returncode == 0, done.stderr
    assert "7 samples, 4 steps made, 0 reused" in done.stdout


def test_expectations_in_a_test_suite_of_the_project(project: Project) -> None:
    project.write("tested")
    (project.folder / "test_scores.py").write_text(TEST, "utf-8")
    done = project.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_scores.py")
    assert done.returncode == 0, done.stdout
