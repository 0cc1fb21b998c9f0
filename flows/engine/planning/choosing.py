"""The steps of a run, chosen by what is on file."""

from typing import Final

from claimflow.flows.engine.config.rerun import Choice, Rerun, chosen
from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.planning.plan import plan
from claimflow.flows.engine.prepare import Prepared
from claimflow.flows.engine.storage.store import Store

_FAILED: Final = """
SELECT run_id, list(step) FILTER (failures > 0) AS failed
FROM audit.runs LEFT JOIN audit.run_steps USING (run_id)
LEFT JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
WHERE pipeline = $pipeline AND status = 'done'
GROUP BY run_id ORDER BY min(started_at) DESC LIMIT 1
"""


def choose(prepared: Prepared, store: Store, rerun: Rerun) -> Choice:
    """The steps that `rerun` comes to on `store`.

    Raises `InputError` where a step that the run takes as it is would have to be made.
    """
    pipeline = prepared.pipeline
    run_id, failed = _failed(store, pipeline.name) if rerun.failed else ("", [])
    # A step that was renamed since is nobody's.
    failed = [step.name for step in pipeline.steps if step.name in failed]
    if rerun.failed and not failed:
        return Choice((), clean=run_id)
    choice = chosen(pipeline, rerun, failed)
    option = rerun.scope()
    if option is None:
        return choice
    missing = [
        step.step
        for step in plan(prepared, store, choice=choice)
        if step.step in choice.found and step.action == "make" and step.below is None
    ]
    right = f"make it in a run without {option}"
    if missing:
        raise InputError(
            [
                Fault(option, f"needs {name!r}, which is not on file as it is now", right)
                for name in missing
            ]
        )
    return choice


def _failed(store: Store, pipeline: str) -> tuple[str, list[str]]:
    """The newest run of a pipeline that came to its end, and its steps that have failed rows."""
    found = []
    if store.path.is_file():
        with store.reading() as connection:
            found = connection.execute(_FAILED, {"pipeline": pipeline}).fetchall()
    if not found:
        what = f"{store.path} has no run of {pipeline} that came to its end"
        raise InputError([Fault("--failed", what, "run without --failed")])
    run_id, failed = found[0]
    return run_id, failed or []
