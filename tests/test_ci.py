"""The workflow of continuous integration, and the script that it runs."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
JOBS = WORKFLOW["jobs"]
COMMANDS = {
    name: [step["run"] for step in job["steps"] if "run" in step] for name, job in JOBS.items()
}


def test_every_python_of_the_classifiers_is_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert JOBS["check"]["strategy"]["matrix"]["python"] == named
    assert COMMANDS["check"] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_each_week_the_newest_releases_are_tested() -> None:
    events = WORKFLOW[True]  # the key `on`, in YAML 1.1
    assert len(events["schedule"]) == 1
    assert re.fullmatch(r"\d+ \d+ \* \* \d", events["schedule"][0]["cron"])
    install, test = COMMANDS["newest"]
    assert "--upgrade --upgrade-strategy eager -e '.[test]'" in install
    assert test == "pytest"
    assert {"push", "pull_request"} <= set(events)
    assert "'schedule'" in JOBS["newest"]["if"]
    assert "'schedule'" not in JOBS["check"]["if"]


def test_jobs_have_few_rights_and_an_end() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is True
    for job in JOBS.values():
        assert "permissions" not in job
        assert 0 < job["timeout-minutes"] <= 120
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert used
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)


def test_the_shell_of_the_workflow_is_valid() -> None:
    scripts = [
        (ROOT / ".ci/run").read_text("utf-8"),
        *(line for lines in COMMANDS.values() for line in lines),
    ]
    for script in scripts:
        checked = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_the_script_takes_the_python_of_the_matrix() -> None:
    """`echo` in its place shows how Python is called; without an environment the script ends."""
    assert JOBS["check"]["steps"][-1]["env"] == {"PYTHON": "python${{ matrix.python }}"}
    done = subprocess.run(
        [ROOT / ".ci/run"],
        env=os.environ | {"PYTHON": "echo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.fullmatch(r"-m venv \S+/venv\n", done.stdout)
    assert done.returncode == 1


def test_the_libraries_of_pages_have_exact_versions_and_their_licences() -> None:
    """What `npm ci` installs is the same everywhere, from whatever registry npm is set to."""
    folder = ROOT / "flows/report/libraries"
    package = json.loads((folder / "package.json").read_text("utf-8"))
    lock = json.loads((folder / "package-lock.json").read_text("utf-8"))["packages"]
    installed = {name.rpartition("node_modules/")[2]: one for name, one in lock.items() if name}
    licences = (folder / "LICENSES").read_text("utf-8")
    for name, version in package["dependencies"].items():
        assert installed[name]["version"] == version
        assert f"\n{name} {version} (" in licences
    assert all("integrity" in one and "resolved" not in one for one in installed.values())
    assert "npm ci" in (ROOT / ".ci/run").read_text("utf-8")
