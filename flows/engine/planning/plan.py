"""What a run would do, found out without doing it."""

import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple

from claimflow.flows.engine.config.rerun import Choice, Rerun, chosen
from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.prepare import SHARD, Prepared
from claimflow.flows.engine.steps.overlay import Overlay, found_overlay, overlay_digest
from claimflow.flows.engine.steps.unchanged import SAMPLES, can_take_over, unchanged
from claimflow.flows.engine.storage.artifacts import Artifact, find
from claimflow.flows.engine.storage.edits import Edit, Edits
from claimflow.flows.engine.storage.fingerprint import step_fingerprint, step_recipe
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.tools.toolbox import Toolbox


class Planned(NamedTuple):
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


def plan(prepared: Prepared, store: Store, *, choice: Choice | None = None) -> list[Planned]:
    """What a run of the chosen steps, or of all, would do, step by step in its order."""
    choice = choice or chosen(prepared.pipeline, Rerun())
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
    prepared: Prepared, store: Store, step: Step, one: Planned, edits: Sequence[Edit]
) -> tuple[Planned, str | None]:
    """What becomes of a step that people have corrected, and the digest of its table."""
    below = one.artifact
    if below is None or not edits:
        return one._replace(edits=tuple(edits)), below and below.digest
    overlay = Overlay(step.stage.makes, below, edits)
    found = found_overlay(store, overlay)
    if found is not None:
        return one._replace(artifact=found), found.digest
    digest = overlay_digest(store, overlay, lambda: prepared.samples.shards(SHARD))
    waiting = one._replace(action="make", artifact=None, edits=tuple(edits), below=below)
    return waiting, digest


def _planned(
    prepared: Prepared,
    store: Store,
    toolbox: Toolbox,
    step: Step,
    choice: Choice,
    digests: dict[str, str],
) -> Planned:
    name, stage = step.name, step.stage
    if name in choice.again:
        return Planned(name, stage.use, "make", fresh=name in choice.fresh)
    unknown = tuple(need for need in step.needs if need not in digests)
    if unknown:
        return Planned(name, stage.use, "wait", waits_for=unknown)
    tools = toolbox.identities(step)
    found = _find(store, step_fingerprint(stage, step.inputs, digests, tools))
    if found is not None:
        return Planned(name, stage.use, "reuse", artifact=found)
    taken_over = 0
    if can_take_over(stage, tools) and store.path.is_file():
        recipe = step_recipe(stage, tools)
        taken_over = unchanged(store, stage, recipe, prepared.samples.shards(SHARD)).height
    return Planned(name, stage.use, "make", taken_over=taken_over)


def _find(store: Store, fingerprint: str) -> Artifact | None:
    if not store.path.is_file():
        return None
    with store.reading() as connection:
        return find(connection, fingerprint)
