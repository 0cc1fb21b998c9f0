"""claimflow in a project that has packages `flows` and `stages` of its own.

A served run in such a project is in test_schedule.py.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.dask_cluster import dask_cluster
from tests.flows.foreign_packages import add_foreign_packages
from tests.flows.forks import Forks, forking
from tests.flows.prefect_server import Api, environment

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

    def schedule(self, name: str) -> str:
        """Put a pipeline and a schedule `foreign-...` of it into the folder; returns its file."""
        deployment = {"pipeline": self.write(name), "cron": "0 2 1 1 *"}
        text = json.dumps({"deployments": {f"foreign-{name}": deployment}})
        (self.folder / f"{name}.schedules.yaml").write_text(text, "utf-8")
        return f"{name}.schedules.yaml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def world(project: Project, server: str) -> dict[str, str]:
    """The environment of every process of the project."""
    return environment(
        project.folder / "home",
        PYTHONPATH=project.path,
        PREFECT_API_URL=server,
    )


@pytest.fixture(scope="module")
def commands(
    project: Project, world: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Forks]:
    """Starts commands in the project, from a process that was started there too."""
    folder, module = tmp_path_factory.mktemp("commands"), "claimflow.flows.orchestration.flow"
    with forking(folder, module, environment=world, started_in=project.folder) as forks:
        yield forks


def test_the_packages_of_the_project_come_first(project: Project, world: dict[str, str]) -> None:
    for package in ("flows", "stages"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {package}"],
            cwd=project.folder,
            env=world,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"{package} of the project was imported" in done.stderr


def test_a_run_and_its_worker_processes(project: Project, commands: Forks) -> None:
    config = project.write("local", workers="count: 2, shards: 7")
    done = commands.run(project.folder, "run", config, environment={"PREFECT_API_URL": ""})
    assert done.code() == 0, done.err()
    assert "7 samples, 4 steps made, 0 reused" in done.out()


def test_dask_workers(
    project: Project, commands: Forks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with dask_cluster(project.folder, path=project.path, workers=1) as address:
        config = project.write("dask", workers=f"engine: dask, address: '{address}', shards: 2")
        alone = {"PREFECT_API_URL": ""}
        done = commands.run(project.folder, "run", config, environment=alone)
        assert done.code() == 0, done.err()
    assert "7 samples, 4 steps made, 0 reused" in done.out()


def test_deployed_runs_and_a_prefect_worker(
    project: Project, commands: Forks, world: dict[str, str], server: str
) -> None:
    api = Api(server)
    schedules = project.schedule("deployed")
    pool = "foreign"
    done = commands.run(project.folder, "deploy", schedules, "--pool", pool)
    assert done.code() == 0, done.err()
    flow_run = api.trigger("foreign-deployed")
    log = project.folder / "worker.log"
    with log.open("w") as file:
        worker = subprocess.Popen(
            [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool],
            cwd=project.folder,
            env=world | {"PREFECT_WORKER_QUERY_SECONDS": "1"},
            stdout=file,
            stderr=file,
        )
    try:
        assert api.ended(flow_run) == "COMPLETED", log.read_text("utf-8")
    finally:
        worker.kill()
        worker.wait()


def test_expectations_in_a_test_suite_of_the_project(
    project: Project, world: dict[str, str]
) -> None:
    project.write("tested")
    (project.folder / "test_scores.py").write_text(TEST, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_scores.py"],
        cwd=project.folder,
        env=world | {"PREFECT_API_URL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
