"""Task runs around steps: tried again where the store was busy, and for nothing else."""

import json
import subprocess
import sys
from pathlib import Path

from tests.flows.prefect_server import environment

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
