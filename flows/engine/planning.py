"""What a run would do, found out without doing it."""

import threading
from typing import Literal, NamedTuple

from flows.engine.artifacts import Artifact, find
from flows.engine.fingerprint import step_fingerprint
from flows.engine.ledger import Ledger
from flows.engine.llm.session import Session
from flows.engine.prepare import Prepared
from flows.engine.runner import SAMPLES
from flows.engine.store import Store
from flows.engine.toolbox import Toolbox


class Planned(NamedTuple):
    """What would become of a step: its table found, made, or not yet known.

    A step waits for the steps in `waits_for`: whether its table can be reused depends on
    what will be in theirs. `artifact` is the table found.
    """

    step: str
    stage: str
    action: Literal["reuse", "make", "wait"]
    waits_for: tuple[str, ...] = ()
    artifact: Artifact | None = None


def plan(prepared: Prepared, store: Store, *, again: frozenset[str] = frozenset()) -> list[Planned]:
    """What a run with the same arguments would do, step by step in its order."""
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    digests = {SAMPLES: prepared.digest}
    planned = []
    for step in prepared.pipeline.steps:
        use = step.stage.use
        unknown = tuple(need for need in step.needs if need not in digests)
        if unknown:
            planned.append(Planned(step.name, use, "wait", waits_for=unknown))
            continue
        tools = toolbox.identities(step)
        key = step_fingerprint(step.stage, step.inputs, digests, tools)
        found = None if step.name in again else _find(store, key)
        if found is None:
            planned.append(Planned(step.name, use, "make"))
            continue
        digests[step.name] = found.digest
        planned.append(Planned(step.name, use, "reuse", artifact=found))
    return planned


def _find(store: Store, fingerprint: str) -> Artifact | None:
    if not store.path.is_file():
        return None
    with store.reading() as connection:
        return find(connection, fingerprint)
