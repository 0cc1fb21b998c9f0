"""Metrics and stages of other packages in whole runs, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from claimflow.flows.store.store import Store

GUIDE = (Path(__file__).parents[2] / "stages/guides/stages.md").read_text("utf-8")
PIPELINE = GUIDE.partition("```yaml\nname: density")[2].partition("```")[0]
METRIC, STAGE = (
    GUIDE.partition(f"## A {kind} of your own")[2].partition("```python\n")[2].partition("```")[0]
    for kind in ("metric", "stage")
)
POINTS = (
    GUIDE.partition('entry-points."claimflow.stages"]\n')[2].partition("```")[0].replace('"', "")
)

ANSWERS = [
    {"sample_id": "a", "response": "It is high.", "retrieved_contexts": ["It is high."]},
    {"sample_id": "b", "response": "It is red. It was blue.", "retrieved_contexts": ["So."]},
]


class Project:
    """A folder with answers, a pipeline and modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("answers.jsonl", "\n".join(json.dumps(row) for row in ANSWERS))
        self.environment: dict[str, str] = {}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def steps(self, uses: Mapping[str, str], *, more: str = "") -> None:
        """Write a pipeline whose steps are named stages, with claims and a summary."""
        steps = "\n".join(f'  {name}: {{use: "{use}"}}' for name, use in uses.items())
        self.write(
            "p.yaml",
            "name: p\nsamples: {path: answers.jsonl}\nstore: p.duckdb\nfail_when: never\nsteps:\n"
            f"  response_claims: {{use: decompose_claims, of: response}}\n{steps}\n"
            f"  summary: {{use: summarize_scores}}\n{more}",
        )

    def install(self, package: str, points: str, files: Mapping[str, str]) -> None:
        """Put a package with entry points on the path of the commands."""
        site = f"site_{package}"
        self.write(f"{site}/{package}-1.0.dist-info/METADATA", f"Name: {package}\nVersion: 1.0\n")
        self.write(
            f"{site}/{package}-1.0.dist-info/entry_points.txt", f"[claimflow.stages]\n{points}"
        )
        for name, text in files.items():
            self.write(f"{site}/{name}", text)
        before = self.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        self.environment["PYTHONPATH"] = f"{self.folder / site}{os.pathsep}{before}"

    def claimflow(self, *arguments: str, code: int = 0) -> str:
        """What a command prints; it must end with the exit code and without a stack trace."""
        done = subprocess.run(
            [sys.executable, "-m", "claimflow", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=os.environ | {"COLUMNS": "100"} | self.environment,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, output
        assert "Traceback" not in output
        return output

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with Store(self.folder / "p.duckdb").reading() as connection:
            return connection.execute(query).fetchall()

    def scores(self, metric: str) -> set[tuple[Any, ...]]:
        query = f"SELECT score, status, reason FROM latest.scores WHERE metric = '{metric}'"
        return set(self.rows(query))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_metric_of_the_guide(project: Project) -> None:
    project.write("my_metrics.py", METRIC)
    project.write("d.yaml", f"name: density{PIPELINE}".replace("density.duckdb", "p.duckdb"))
    assert "claim_density: max 0.5" in project.claimflow("run", "d.yaml")
    assert project.scores("claim_density") == {(1 / 3, "scored", None)}


def test_an_installed_package_is_treated_like_a_built_in(project: Project) -> None:
    lower = METRIC.replace("claimflow.metric", "claimflow.metric(lower_is_better=True)")
    project.install("acme", POINTS, {"my_metrics.py": f"{lower}\n\n{STAGE}"})
    uses = {"claim_density": "claim_density", "short_response": "short_response"}
    project.steps(uses, more="gates: {claim_density: {max: 0.2}}\n")
    listed = project.claimflow("stages")
    assert "scores: claim_density" in listed
    assert "scores: short_response" in listed
    assert "at most `words` words" in project.claimflow("stages", "short_response")
    assert '"const": "short_response"' in project.claimflow("schema")
    assert "claim_density" in project.claimflow("plan", "p.yaml")
    assert "fail" in project.claimflow("run", "p.yaml", code=4)
    assert project.scores("short_response") == {(1.0, "scored", None)}
    assert "claim_density" in project.claimflow("explain", "a", "--store", "p.duckdb")
    changed = lower.replace("/ len(words)", "/ 2")
    project.write("site_acme/my_metrics.py", f"{changed}\n\n{STAGE}")
    project.claimflow("run", "p.yaml", code=4)
    # The store is read without the package.
    project.environment.clear()
    report = project.claimflow("report", "--format", "markdown", "--store", "p.duckdb")
    assert "`claim_density: max 0.2`" in report
    assert "made differently: `claim_density: source`" in report
    assert "claim_density ↓" in report


FAILING = """
import sys
import claimflow
import polars as pl
from claimflow import Sample
from claimflow.stages.tables import Claims, Samples, Scores

@claimflow.metric
def result(sample: Sample) -> float:
    {body}

class Made(claimflow.Stage):
    metrics = ("made",)

    def run(self, samples: Samples) -> Scores:
        {table}

class Text(claimflow.Stage):
    def run(self, samples: Samples) -> Claims:
        raise OSError("no claims")
"""
GOOD = "return samples.select('sample_id', metric=pl.lit('made'), score=pl.lit(1.0), "
GOOD += "status=pl.lit('scored'))"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no such word')", "ValueError: no such word (mine.py:10)"),
        ("return float('nan')", "returned nan, which is no finite number"),
        ("return 'high'", "returned str 'high', not a number"),
        ("sys.exit(3)", "SystemExit: 3 (mine.py:10)"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_metric_is_failed_rows(
    project: Project, body: str, reason: str, workers: int
) -> None:
    project.write("mine.py", FAILING.format(body=body, table=GOOD))
    uses = {"result": "mine:result", "made": "mine:Made"}
    project.steps(uses, more=f"workers: {{count: {workers}}}\n")
    project.claimflow("run", "p.yaml", code=1)
    assert project.scores("result") == {(None, "failed", reason)}
    assert project.scores("made") == {(1.0, "scored", None)}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("raise KeyError('x')", "KeyError: 'x' (mine.py:16)"),
        ("return None", "run returned NoneType, not a table"),
        ("return samples", "TableError"),
        (GOOD.replace("'sample_id'", "sample_id=pl.lit('zz')"), "unknown samples, such as 'zz'"),
        (GOOD.replace("'made'", "'other'"), "'other', which is not in metrics of the class"),
        (GOOD.replace("1.0", "float('nan')"), "TableError"),
        (GOOD.replace("samples.", "samples.head(0)."), "the stage made no score of this sample"),
        ("sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_failing_stage_is_failed_rows(project: Project, table: str, reason: str) -> None:
    project.write("mine.py", FAILING.format(body="return 1.0", table=table))
    project.steps({"made": "mine:Made", "result": "mine:result"})
    project.claimflow("run", "p.yaml", code=1)
    ((score, status, why),) = project.scores("made")
    assert (score, status) == (None, "failed")
    assert reason in why
    assert project.scores("result") == {(1.0, "scored", None)}


def test_a_stage_of_claims_that_raises_is_failed_claims(project: Project) -> None:
    project.write("mine.py", FAILING.format(body="return 1.0", table=GOOD))
    project.steps({"texts": "mine:Text", "made": "mine:Made"})
    project.claimflow("run", "p.yaml", code=1)
    query = "SELECT sample_id, claim, status, reason FROM latest.claims WHERE step = 'texts'"
    reason = "OSError: no claims (mine.py:20)"
    assert sorted(project.rows(query)) == [(name, None, "failed", reason) for name in "ab"]


def test_keys_are_taken_out_of_exceptions(project: Project) -> None:
    project.environment["ACME_API_KEY"] = "a-very-secret-value"
    body = "import os; raise ValueError(os.environ['ACME_API_KEY'])"
    project.write("mine.py", FAILING.format(body=body, table=body))
    project.steps({"result": "mine:result", "made": "mine:Made"})
    assert "secret-value" not in project.claimflow("run", "p.yaml", code=1)
    reasons = [next(iter(project.scores(name)))[2] for name in ("result", "made")]
    assert reasons == ["ValueError: *** (mine.py:10)", "ValueError: *** (mine.py:16)"]


def test_an_edit_of_the_source_makes_it_again_and_a_comment_does_not(project: Project) -> None:
    code = "from helper import FACTOR\n" + METRIC.replace("len(response_claims)", "FACTOR")
    project.write("helper.py", "FACTOR = 1\n")
    project.write("my_metrics.py", code)
    project.steps({"claim_density": "my_metrics:claim_density"})
    assert "4 steps made, 0 reused" in project.claimflow("run", "p.yaml")
    project.write("my_metrics.py", f"# A comment.\n{code.replace('Claims by', 'Claims per')}")
    assert "0 steps made, 4 reused" in project.claimflow("run", "p.yaml")
    project.write("helper.py", "FACTOR = 1\n\ndef unused():\n    return 2\n")
    assert "0 steps made, 4 reused" in project.claimflow("run", "p.yaml")
    project.write("my_metrics.py", code.replace("FACTOR / len", "2 * FACTOR / len"))
    assert "2 steps made, 2 reused" in project.claimflow("run", "p.yaml")
    project.write("helper.py", "FACTOR = 3\n")  # The value that it uses is another one.
    assert "2 steps made, 2 reused" in project.claimflow("run", "p.yaml")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("mine:reslut", "p.yaml:7 steps.one.use: the module mine"),
        ("nowhere:metric", "p.yaml:7 steps.one.use: there is no module 'nowhere'"),
        ("broken:metric", "the module broken cannot be imported: SyntaxError"),
        (
            "raising:metric",
            "the module raising cannot be imported: RuntimeError: no (raising.py:1)",
        ),
        ("mine:pl", "not a stage; write a subclass of claimflow.Stage"),
        ("twice", "2 packages have an entry point 'twice': other:a, other:b"),
        ("lost", "lost_module:a cannot be imported: ModuleNotFoundError"),
    ],
)
def test_code_that_cannot_be_used_is_one_line(project: Project, use: str, message: str) -> None:
    project.write("mine.py", FAILING.format(body="return 1.0", table=GOOD))
    project.write("broken.py", "def f(:\n")
    project.write("raising.py", "raise RuntimeError('no')\n")
    project.install("one", "twice = other:a\nlost = lost_module:a\n", {})
    project.install("two", "twice = other:b\n", {})
    project.steps({"one": use})
    assert message in project.claimflow("run", "p.yaml", code=2)
    assert not (project.folder / "p.duckdb").exists()


def test_broken_packages_are_lines_of_the_list(project: Project) -> None:
    project.install("one", "lost = lost_module:a\n", {})
    listed = project.claimflow("stages")
    assert "faithfulness" in listed
    assert "lost: lost_module:a cannot be imported" in listed
    document = json.loads(project.claimflow("stages", "--format", "json"))
    by_name = {one["use"]: one for one in document}
    assert by_name["lost"]["error"].startswith("lost_module:a cannot be imported")
    votes = {one["name"]: one for one in by_name["verify_claims"]["settings"]}["votes"]
    assert (votes["type"], votes["default"], votes["required"]) == ("integer", 1, False)
    assert "did you mean 'faithfulness'?" in project.claimflow("stages", "faithfulnes", code=2)


ENDLESS = """
import sys
from datetime import timedelta
from claimflow.flows.runner import run
run.GRACE = timedelta(seconds=1)
from claimflow.flows.cli.main import main
sys.exit(main(["run", "p.yaml", "--timeout", "2s"]))
"""


def test_a_metric_that_never_returns_ends_the_process_after_the_time_limit(
    project: Project,
) -> None:
    endless = FAILING.format(body="import time; time.sleep(3600)", table=GOOD)
    project.write("mine.py", endless)
    project.steps({"endless": "mine:result"})
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 8
    assert done.stderr.splitlines()[-1] == (
        "claimflow: failed: the run took longer than its timeout of 0:00:02 and did not stop in "
        "0:00:01 more; finished work is kept; run again to continue"
    )
    project.write("mine.py", FAILING.format(body="return 1.0", table=GOOD))
    project.claimflow("run", "p.yaml")
    ends = project.rows("SELECT status FROM audit.runs ORDER BY started_at")
    assert ends == [("killed",), ("done",)]


def test_a_module_that_is_not_there_is_one_mistake(project: Project) -> None:
    """The summary may have read its scores."""
    project.steps({"density": "no_such:density"})
    told = project.claimflow("check", "p.yaml", code=2)
    assert "there is no module 'no_such'" in told
    assert "summary" not in told
