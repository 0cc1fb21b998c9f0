"""What a run would ask of judges for its canaries: counted, with nobody asked."""

import threading
from collections.abc import Collection

from claimflow.flows.engine.canaries.asking import answered_since, as_tables
from claimflow.flows.engine.canaries.judges import Trial, due, trials
from claimflow.flows.engine.canaries.record import last_asked
from claimflow.flows.engine.llm.estimate import Estimate, together
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.prepare import Prepared
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import Store, now
from claimflow.flows.engine.tools.counting import Counter, asking, foresee
from claimflow.flows.engine.tools.toolbox import Toolbox


def canary_estimates(
    prepared: Prepared, store: Store, wanted: Collection[str]
) -> dict[tuple[str, ...], Estimate]:
    """What the judge of each of the `wanted` steps would be asked, by the steps that have it.

    Steps without a language model are left out. Nothing is written.
    """
    if prepared.pipeline.canaries is None:
        return {}
    session = Session(Ledger(store), run_id="", stop=threading.Event())
    toolbox = Toolbox(prepared.pipeline, session)
    return {
        trial.steps: _estimate(prepared, store, trial)
        for trial in trials(prepared.pipeline, toolbox, wanted)
        if trial.step.judges
    }


def _estimate(prepared: Prepared, store: Store, trial: Trial) -> Estimate:
    pipeline, canaries = prepared.pipeline, prepared.canaries
    asked_at = last_asked(store, pipeline.name, trial.key)
    again = due(canaries, pipeline.canaries, trial, asked_at, now()) if pipeline.canaries else []
    keys = {one.key for one in again}
    rest = [one for one in canaries if one.key not in keys]
    since = answered_since(store, pipeline.name, again, asked_at)
    endpoints, foreseen = asking(pipeline)[trial.steps[0]], foresee(pipeline, store)
    parts = []
    for some, fresh, moment in ((rest, False, None), (again, since is None, since)):
        counter = Counter(endpoints, store, set(), foreseen, fresh=fresh, since=moment)
        if some:
            trial.stage.run(*as_tables(some), **counter.lend(trial.stage))
        parts.append(counter.estimate(about=foreseen.guessed))
    return together(parts)._replace(who=parts[0].who)
