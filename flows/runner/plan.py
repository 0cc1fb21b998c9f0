"""The plan of a run: which steps it would reuse or make, without doing it."""

import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.rerun import Rerun, StepSelection, select_steps
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.runner.corrections import CorrectedTable, corrected_digest
from claimflow.flows.runner.incremental import SAMPLES, can_reuse_rows, unchanged_samples
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.tools import Toolbox
from claimflow.flows.store.artifacts import Artifact, find_artifact
from claimflow.flows.store.batches import Batches
from claimflow.flows.store.edits import Edit, Edits
from claimflow.flows.store.fingerprint import samples_fingerprint, step_fingerprint, step_recipe
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.runs import Coverage, newest_run_of
from claimflow.flows.store.store import Store


class PlannedStep(NamedTuple):
    """What a run would do with a step: reuse its table, make it, or not known yet.

    A step waits for the steps in `waits_for` if it depends on the content of their tables whether
    its own can be reused. `artifact` is the table that would be reused. Of a table that would be
    made, `reused_samples` counts the samples whose rows would be copied from an earlier table.
    `fresh` says that models would be asked again, for all replies that are older than `fresh_since`
    (None: than the run). `edits` would be applied to the table of the step, which is `below` if it
    is in the store.
    """

    step: str
    stage: str
    action: Literal["reuse", "make", "wait"]
    waits_for: tuple[str, ...] = ()
    artifact: Artifact | None = None
    reused_samples: int = 0
    fresh: bool = False
    fresh_since: datetime | None = None
    edits: tuple[Edit, ...] = ()
    below: Artifact | None = None


def plan(
    prepared: Prepared, store: Store, *, choice: StepSelection | None = None
) -> list[PlannedStep]:
    """What a run of the selected steps (default: all) would do, in the order of its steps."""
    choice = choice or select_steps(prepared.pipeline, Rerun())
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    edits = Edits(store, prepared.pipeline.name, lambda: prepared.samples.shards(SHARD))
    digests = {SAMPLES: prepared.samples.digest}
    planned = []
    for step in choice.steps:
        one = _plan_step(prepared, store, toolbox, step, choice, digests)
        one, digest = _plan_edits(prepared, store, step, one, edits.of(step))
        if digest is not None:
            digests[step.name] = digest
        planned.append(one)
    return planned


def plan_samples(prepared: Prepared, store: Store) -> PlannedStep:
    """What a run would do with the table of the samples, its first step."""
    found = _find(store, samples_fingerprint(prepared.samples.digest))
    return PlannedStep(SAMPLES, SAMPLES, "reuse" if found else "make", artifact=found)


def _plan_edits(
    prepared: Prepared, store: Store, step: Step, one: PlannedStep, edits: Sequence[Edit]
) -> tuple[PlannedStep, str | None]:
    """The plan of a step after corrections by hand, and the digest of its table if known."""
    below = one.artifact
    if below is None or not edits:
        return one._replace(edits=tuple(edits)), below and below.digest
    corrected = CorrectedTable(step.stage.makes, below, edits)
    found = _find(store, corrected.fingerprint)
    if found is not None:
        return one._replace(artifact=found), found.digest
    digest = corrected_digest(store, corrected, lambda: prepared.samples.shards(SHARD))
    waiting = one._replace(action="make", artifact=None, edits=tuple(edits), below=below)
    return waiting, digest


def _plan_step(
    prepared: Prepared,
    store: Store,
    toolbox: Toolbox,
    step: Step,
    choice: StepSelection,
    digests: dict[str, str],
) -> PlannedStep:
    name, stage = step.name, step.stage
    if name in choice.again:
        fresh = name in choice.fresh
        since = choice.fresh_since if fresh else None
        return PlannedStep(name, stage.use, "make", fresh=fresh, fresh_since=since)
    unknown = tuple(need for need in step.needs if need not in digests)
    if unknown:
        return PlannedStep(name, stage.use, "wait", waits_for=unknown)
    tools = toolbox.identities(step)
    found = _find(store, step_fingerprint(stage, step.inputs, digests, tools))
    if found is not None:
        return PlannedStep(name, stage.use, "reuse", artifact=found)
    reused_samples = 0
    if can_reuse_rows(stage) and store.path.is_file():
        recipe = step_recipe(stage, tools)
        reused_samples = unchanged_samples(
            store, stage, recipe, prepared.samples.shards(SHARD)
        ).height
    return PlannedStep(name, stage.use, "make", reused_samples=reused_samples)


def _find(store: Store, fingerprint: str) -> Artifact | None:
    if not store.path.is_file():
        return None
    with store.reading() as connection:
        return find_artifact(connection, fingerprint)


# A run of some steps says nothing of the others, and a run of some samples nothing of the rest.
_FAILED: Final = """
WITH tables AS (
  SELECT run_id, status, started_at, step, failures
  FROM audit.runs JOIN audit.run_steps USING (run_id)
  JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
  WHERE pipeline = $pipeline AND status IN ('done', 'failed')
        AND ($some OR selection IS NULL OR sample_count = samples_available)
)
SELECT arg_max(run_id, started_at), list(step) FILTER (failures > 0)
FROM (
  FROM tables
  WHERE status = 'done' OR run_id IN (SELECT run_id FROM tables WHERE failures > 0)
  QUALIFY row_number() OVER (PARTITION BY step ORDER BY started_at DESC) = 1
) HAVING count(*) > 0
"""


def choose(prepared: Prepared, store: Store, rerun: Rerun) -> StepSelection:
    """The steps that `rerun` selects, given what is in `store`.

    Raises `InputError` if a step that is to be reused is not in the store.
    """
    pipeline = prepared.pipeline
    if prepared.nothing_selected is not None:
        standing = newest_run_of(store, pipeline.name) if store.path.is_file() else None
        return StepSelection((), nothing_to_do=prepared.nothing_selected, looked_at=standing or "")
    run_id, failed = _failed_steps(prepared, store) if rerun.failed else ("", [])
    # Steps that were renamed since are left out.
    failed = [step.name for step in pipeline.steps if step.name in failed]
    if rerun.failed and not failed:
        told = f"nothing failed in run {run_id}: nothing to do"
        return StepSelection((), nothing_to_do=told, looked_at=run_id)
    choice = select_steps(pipeline, rerun, failed)
    if rerun.fresh:
        # It goes on with what a run asked anew whose batches are open.
        choice = choice._replace(fresh_since=Batches(store).fresh_since(pipeline.name))
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
                Fault(
                    option,
                    f"needs {name!r}, whose table is not in the store in its current state",
                    hint,
                )
                for name in missing
            ]
        )
    return choice


def coverage(prepared: Prepared, choice: StepSelection, rerun: Rerun) -> Coverage:
    """How many of the samples and steps of the pipeline a run of `choice` has."""
    samples, steps = prepared.samples, prepared.pipeline.steps
    left_out = [samples.selection]
    left_out += [rerun.selection()] if len(choice.steps) < len(steps) else []
    return Coverage(
        samples.count,
        samples.available,
        # The samples are a step of the run.
        1 + len(choice.steps),
        1 + len(steps),
        " ".join(filter(None, left_out)) or None,
    )


def _failed_steps(prepared: Prepared, store: Store) -> tuple[str, list[str]]:
    """The newest run of a pipeline that is done or has failed rows, and the steps with failed rows.

    A run may have failed because of its failed rows. Of each step the newest table of such a run
    counts. Where the samples are all that there are, runs of some of them are left out.
    """
    pipeline, samples = prepared.pipeline.name, prepared.samples
    some = samples.selection is not None
    found = []
    if store.path.is_file():
        with store.reading() as connection:
            found = connection.execute(_FAILED, {"pipeline": pipeline, "some": some}).fetchall()
    if not found:
        what = f"{store.path} has no run of {pipeline} that finished"
        what += "" if some else " with all samples"
        raise InputError([Fault("--failed", what, "run without --failed")])
    run_id, failed = found[0]
    return run_id, failed or []
