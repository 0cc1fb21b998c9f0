"""How far scores vary from one evaluation of the same samples to the next: asked and measured."""

import threading
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from claimflow.flows.engine.config.wiring import Step
from claimflow.flows.engine.llm.estimate import Estimate
from claimflow.flows.engine.llm.session import Session
from claimflow.flows.engine.noise.repeats import Cell, Design, Repeats
from claimflow.flows.engine.noise.spread import Spread, spreads
from claimflow.flows.engine.planning.guessing import ClaimGuesses
from claimflow.flows.engine.planning.readiness import check_pipeline
from claimflow.flows.engine.prepare import SHARD, Prepared
from claimflow.flows.engine.running.interruptible import unless_interrupted
from claimflow.flows.engine.running.on_record import on_record
from claimflow.flows.engine.steps.runner import Watch
from claimflow.flows.engine.storage import runs
from claimflow.flows.engine.storage.ledger import Ledger
from claimflow.flows.engine.storage.store import Store
from claimflow.flows.engine.tools.counting import Counter, asking, foresee

STEP: Final = "repeats"
"""What a watch is told of as though it were a step."""


def first_samples(prepared: Prepared, count: int) -> pl.DataFrame:
    """The first samples of a file, or all of fewer."""
    shards = []
    for shard in prepared.samples.shards(SHARD):
        shards.append(shard.head(count))
        count -= shards[-1].height
        if count <= 0:
            break
    return pl.concat(shards)


def count_calls(
    prepared: Prepared, store: Store, samples: pl.DataFrame, repeats: int
) -> tuple[Design, dict[str, Estimate]]:
    """What `repeats` repeats would ask, by step. Nobody is asked, nothing is written."""
    asked: set[str] = set()
    endpoints = asking(prepared.pipeline)
    foreseen = foresee(prepared.pipeline, store)
    counters = {name: Counter(of, store, asked, foreseen) for name, of in endpoints.items()}
    guesses = ClaimGuesses()

    def lend(step: Step, repeat: int) -> Mapping[str, Any]:
        if step.name in counters:
            return counters[step.name].lend(step.stage, repeat=repeat)
        return dict.fromkeys(step.stage.tools.keys() - step.stage.ignores())

    def complete(step: Step, table: pl.DataFrame) -> pl.DataFrame:
        return guesses.complete(step.name, step.stage, table, samples) if step.judges else table

    walk = Repeats(prepared.pipeline, samples, repeats, lend, complete)
    for name in (step.name for step in prepared.pipeline.steps if step.name in counters):
        for cell in walk.cells(name) if name in walk.needed() else ():
            walk.table(name, cell)
    about = bool(guesses.steps) or foreseen.guessed
    return walk.design, {name: one.estimate(about=about) for name, one in counters.items()}


def measure(
    prepared: Prepared,
    store: Store,
    samples: pl.DataFrame,
    repeats: int,
    watch: Watch,
    *,
    redact: bool = False,
) -> list[Spread]:
    """Ask for `repeats` repeats what is not remembered of them; how far each metric varies.

    It goes on record as a run of its own, whose calls are remembered like those of any
    other and which is never taken for the newest run. Raises as a run does.
    """
    check_pipeline(prepared.pipeline)
    stop = threading.Event()

    def session(run_id: str) -> Session:
        return Session(
            Ledger(store), run_id=run_id, stop=stop, redact=redact, answered=watch.answered
        )

    with (
        on_record(prepared.pipeline, store, watch, session, about=runs.NOISE) as (run_id, toolbox),
        runs.ending(store, run_id, stop, well="measured"),
    ):
        walk = Repeats(
            prepared.pipeline, samples, repeats, lambda step, n: toolbox.lend(step, repeat=n)
        )
        tables = unless_interrupted(lambda: _scores(walk, watch), stop)
    return [
        spread
        for step in walk.scores
        for spread in spreads(walk, step.name, tables, whole=prepared.samples.count)
    ]


def _scores(walk: Repeats, watch: Watch) -> dict[tuple[str, Cell], pl.DataFrame]:
    """The scores of each step at each of its repeats."""
    cells = [(step.name, cell) for step in walk.scores for cell in walk.cells(step.name)]
    tables: dict[tuple[str, Cell], pl.DataFrame] = {}
    # By repeat, so that a run that is stopped has whole repeats on file.
    for done, (step, cell) in enumerate(sorted(cells, key=lambda one: one[1]), 1):
        tables[step, cell] = walk.table(step, cell)
        watch.advanced(STEP, done, len(cells))
    return tables
