"""The plan of a run: what it would make, reuse and ask."""

import threading
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import Rerun, StepSelection, select_steps
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.corrections import CorrectedTable, corrected_digest, find_corrected
from claimflow.flows.runner.incremental import SAMPLES, can_reuse_rows, unchanged_samples
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.store.artifacts import Artifact, find_artifact
from claimflow.flows.store.edits import Edit, Edits
from claimflow.flows.store.fingerprint import step_fingerprint, step_recipe
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store

# What a run would do, found out without doing it.


class PlannedStep(NamedTuple):
    """What would become of a step: its table found, made, or not yet known.

    A step waits for the steps in `waits_for`: whether its table can be reused depends on
    what will be in theirs. `artifact` is the table found. Of a table that is made,
    `taken_over` counts the samples whose rows would be taken over from an earlier one, and
    `fresh` says that models are asked anew; `edits` are to be laid over what the step gives,
    which is `below` where that is on file.
    """

    step: str
    stage: str
    action: Literal["reuse", "make", "wait"]
    waits_for: tuple[str, ...] = ()
    artifact: Artifact | None = None
    taken_over: int = 0
    fresh: bool = False
    edits: tuple[Edit, ...] = ()
    below: Artifact | None = None


def plan(
    prepared: Prepared, store: Store, *, choice: StepSelection | None = None
) -> list[PlannedStep]:
    """What a run of the chosen steps, or of all, would do, step by step in its order."""
    choice = choice or select_steps(prepared.pipeline, Rerun())
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    edits = Edits(store, prepared.pipeline.name, lambda: prepared.samples.shards(SHARD))
    digests = {SAMPLES: prepared.samples.digest}
    planned = []
    for step in choice.steps:
        one = _planned(prepared, store, toolbox, step, choice, digests)
        one, digest = _edited(prepared, store, step, one, edits.of(step))
        if digest is not None:
            digests[step.name] = digest
        planned.append(one)
    return planned


def _edited(
    prepared: Prepared, store: Store, step: Step, one: PlannedStep, edits: Sequence[Edit]
) -> tuple[PlannedStep, str | None]:
    """What becomes of a step that people have corrected, and the digest of its table."""
    below = one.artifact
    if below is None or not edits:
        return one._replace(edits=tuple(edits)), below and below.digest
    overlay = CorrectedTable(step.stage.makes, below, edits)
    found = find_corrected(store, overlay)
    if found is not None:
        return one._replace(artifact=found), found.digest
    digest = corrected_digest(store, overlay, lambda: prepared.samples.shards(SHARD))
    waiting = one._replace(action="make", artifact=None, edits=tuple(edits), below=below)
    return waiting, digest


def _planned(
    prepared: Prepared,
    store: Store,
    toolbox: Toolbox,
    step: Step,
    choice: StepSelection,
    digests: dict[str, str],
) -> PlannedStep:
    name, stage = step.name, step.stage
    if name in choice.again:
        return PlannedStep(name, stage.use, "make", fresh=name in choice.fresh)
    unknown = tuple(need for need in step.needs if need not in digests)
    if unknown:
        return PlannedStep(name, stage.use, "wait", waits_for=unknown)
    tools = toolbox.identities(step)
    found = _find(store, step_fingerprint(stage, step.inputs, digests, tools))
    if found is not None:
        return PlannedStep(name, stage.use, "reuse", artifact=found)
    taken_over = 0
    if can_reuse_rows(stage, tools) and store.path.is_file():
        recipe = step_recipe(stage, tools)
        taken_over = unchanged_samples(store, stage, recipe, prepared.samples.shards(SHARD)).height
    return PlannedStep(name, stage.use, "make", taken_over=taken_over)


def _find(store: Store, fingerprint: str) -> Artifact | None:
    if not store.path.is_file():
        return None
    with store.reading() as connection:
        return find_artifact(connection, fingerprint)


# The steps of a run, chosen by what is on file.


_FAILED: Final = """
SELECT run_id, list(step) FILTER (failures > 0) AS failed
FROM audit.runs LEFT JOIN audit.run_steps USING (run_id)
LEFT JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
WHERE pipeline = $pipeline AND status = 'done'
GROUP BY run_id ORDER BY min(started_at) DESC LIMIT 1
"""


def choose(prepared: Prepared, store: Store, rerun: Rerun) -> StepSelection:
    """The steps that `rerun` comes to on `store`.

    Raises `InputError` where a step that the run takes as it is would have to be made.
    """
    pipeline = prepared.pipeline
    run_id, failed = _failed(store, pipeline.name) if rerun.failed else ("", [])
    # A step that was renamed since is nobody's.
    failed = [step.name for step in pipeline.steps if step.name in failed]
    if rerun.failed and not failed:
        return StepSelection((), clean=run_id)
    choice = select_steps(pipeline, rerun, failed)
    option = rerun.scope()
    if option is None:
        return choice
    missing = [
        step.step
        for step in plan(prepared, store, choice=choice)
        if step.step in choice.found and step.action == "make" and step.below is None
    ]
    hint = f"make it in a run without {option}"
    if missing:
        raise InputError(
            [
                Fault(option, f"needs {name!r}, which is not on file as it is now", hint)
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
