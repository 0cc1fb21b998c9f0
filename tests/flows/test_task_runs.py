"""Task runs around steps: tried again where the store was busy, and for nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.flows.prefect_server import ask, environment

BUSY = """
import json, sys
from collections import Counter
from pathlib import Path

from claimflow.flows.orchestration.flow import evaluate
from prefect import flow
from claimflow.flows.errors import JudgeError
from claimflow.flows.api import run_pipeline
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.store import Store
from claimflow.flows.orchestration.artifacts import artifact_key
from claimflow.flows.orchestration.task_runs import TaskRunObserver
from tests.flows.locked_store import LockedStore

config = Path(sys.argv[1])
prepared = prepare(config)
store = Store(config.with_name("small.duckdb"), wait=0.3)
tries = Counter()

@flow
def night(refused):
    class Refusing(TaskRunObserver):
        def make_step(self, step, inputs, make):
            def try_to_make(step, inputs):
                tries[step] += 1
                if step == refused:
                    raise JudgeError("no such model")
                if step == "precision" and tries[step] == 1:
                    with LockedStore(store.path):
                        return make(step, inputs)
                return make(step, inputs)
            return super().make_step(step, inputs, try_to_make)
    run_pipeline(prepared, store, observer=Refusing(store, delay=0.2))

night("")
busy = dict(tries)
try:
    night("summary")
except JudgeError as error:
    print(json.dumps({
        "busy": busy["precision"],
        "refused": tries["summary"] - busy["summary"],
        "error": str(error),
        "key": artifact_key("N\u00e4chtlich / A_b", "summary"),
        "parameters": {
            name: field.get("description")
            for name, field in evaluate.parameters.properties.items()
        },
    }))
"""


def test_only_a_busy_store_is_tried_again(server: str, small: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY, str(small)],
        env=environment(tmp_path / "home", PREFECT_API_URL=server),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout)
    assert (message["busy"], message["refused"], message["error"]) == (2, 1, "no such model")
    assert message["key"] == "n-chtlich-a-b-summary", "lowercase letters, digits and dashes"
    assert "Retry 1/2 will start" in done.stderr
    assert message["parameters"]["only"] == "Just these steps; what they need must be on file."
    assert None not in message["parameters"].values()


PROGRESS = """
import json, sys
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run
from claimflow.flows.api import run_pipeline
from claimflow.flows.orchestration import artifacts
from claimflow.flows.orchestration.task_runs import TaskRunObserver
from claimflow.flows.runner.prepare import prepare
from claimflow.flows.store.store import Store

prepared = prepare(Path(sys.argv[1]))
posted = []
update, create = artifacts.update_progress_artifact, artifacts.create_progress_artifact

def updating(artifact, share, description):
    posted.append(share)
    return update(artifact, share, description=description)

def broken(*args, **options):
    posted.append(None)
    raise RuntimeError("the server is away")

@flow
def night(every):
    store = Store(Path(sys.argv[1]).with_name(f"{flow_run.id}.duckdb"))
    result = run_pipeline(prepared, store, observer=TaskRunObserver(store, progress_every=every))
    return str(flow_run.id), result.run_id

artifacts.update_progress_artifact = updating
often = night(0.0)
updates = list(posted)
seldom = night(3600.0)
artifacts.create_progress_artifact = broken
lost = night(0.0)
print(json.dumps({
    "often": often, "seldom": seldom, "lost": lost, "updates": updates,
    "after": posted[len(updates):],
}))
"""


def test_the_progress_of_a_step_is_one_artifact(server: str, small: Path, tmp_path: Path) -> None:
    samples = "".join(
        json.dumps({"id": str(number), "response": "Rome is old.", "retrieved_contexts": ["Rome."]})
        + "\n"
        for number in range(4_100)
    )
    small.with_name("many.jsonl").write_text(samples, "utf-8")
    small.write_text(
        "name: Many\nsamples: {path: many.jsonl}\nstore: many.duckdb\nread_copy: false\n"
        "workers: {count: 1}\n"
        "steps: {my_matches: {use: lexical_match, against: retrieved_contexts}}\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRESS, str(small)],
        env=environment(tmp_path / "home", PREFECT_API_URL=server),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout)
    flow_run, run_id = message["often"]
    found = {one["key"]: one for one in _artifacts(server, flow_run)}
    assert set(found) == {"many-samples-progress", "many-my-matches-progress"}
    one = found["many-my-matches-progress"]
    assert one["type"] == "progress"
    assert float(one["data"]) == 100
    assert one["description"] == f"`my_matches` of `Many`, run `{run_id}`: 3 of 3 parts stored"
    assert one["task_run_id"], "it belongs to the task run of the step"
    # Two of each table; the first part makes the artifact.
    assert sorted(round(share) for share in message["updates"]) == [67, 67, 100, 100]
    assert _artifacts(server, message["seldom"][0]) == [], "the steps took no hour"
    assert message["after"] == [None], "after an error Prefect is not asked again"
    assert "the progress of steps could not be posted: RuntimeError" in done.stderr


def _artifacts(server: str, flow_run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(
        f"{server}/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [flow_run]}}}
    )
    return found
