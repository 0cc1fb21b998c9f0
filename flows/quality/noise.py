"""Noise: how far scores vary when the same samples are evaluated again."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.quality.variance import Parts, Source, detectable_difference, split_variance
from claimflow.flows.runner.counting import Counter, asking, foresee
from claimflow.flows.runner.estimate import ClaimGuesses
from claimflow.flows.runner.execute import on_record, unless_interrupted
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import SHARD, Prepared
from claimflow.flows.runner.readiness import check_pipeline
from claimflow.flows.store import runs
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Claim, Score

# A pipeline's tables made several times over, as though nobody had asked its judges before.


_SAMPLES: Final = "samples"

Lend = Callable[[Step, int], Mapping[str, Any]]
"""The tools of a step at a repeat, by the name of its parameter."""

Complete = Callable[[Step, pl.DataFrame], pl.DataFrame]
"""Adds to a step's table what is not known yet."""


class Design(NamedTuple):
    """How often everything is repeated: decompositions, and verifications of each of them.

    An axis of length 1 is that of steps that no judge makes: they come out the same each time.
    """

    decompositions: int
    verifications: int


class Cell(NamedTuple):
    """One repeat of a table: the number of the decomposition, and of the verification in it."""

    decomposition: int
    verification: int


class Repeats:
    """The tables of a pipeline over some samples, each made once for every repeat of its own.

    A decomposition is asked for under the number of its repeat, a verification under one that
    no other has, so that neither shares an answer. More repeats leave the numbers of the
    others as they are.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        samples: pl.DataFrame,
        repeats: int,
        lend: Lend,
        complete: Complete = lambda _, table: table,
    ) -> None:
        self._steps = {step.name: step for step in pipeline.steps}
        self._samples = samples
        self._lend = lend
        self._complete = complete
        self._made: dict[tuple[str, Cell], pl.DataFrame] = {}
        self.sources = _sources(self._steps)
        self.scores = [step for step in pipeline.steps if step.stage.makes is Score]
        vary = frozenset[Source]().union(*(self.sources[step.name] for step in self.scores))
        of = repeats if "decomposition" in vary else 1
        each = (2 if of > 1 else repeats) if "verification" in vary else 1
        self.design = Design(of, each)

    def needed(self) -> frozenset[str]:
        """The steps that scores are made of, those that make them among them."""
        found: set[str] = set()
        left = [step.name for step in self.scores]
        while left:
            name = left.pop()
            if name in self._steps and name not in found:
                found.add(name)
                left += self._steps[name].needs
        return frozenset(found)

    def cells(self, step: str) -> Iterator[Cell]:
        """The repeats of a step's table that may differ."""
        sources = self.sources[step]
        for decomposition in range(self.design.decompositions if sources else 1):
            for verification in range(
                self.design.verifications if "verification" in sources else 1
            ):
                yield Cell(decomposition, verification)

    def table(self, name: str, cell: Cell) -> pl.DataFrame:
        """The table of a step at a repeat."""
        if name == _SAMPLES:
            return self._samples
        sources = self.sources[name]
        verification = cell.verification if "verification" in sources else 0
        own = Cell(cell.decomposition if sources else 0, verification)
        if (name, own) not in self._made:
            self._made[name, own] = self._make(self._steps[name], own)
        return self._made[name, own]

    def _make(self, step: Step, cell: Cell) -> pl.DataFrame:
        tables: dict[str, Any] = {
            name: self.table(wire, cell)
            if isinstance(wire, str)
            else {one: self.table(one, cell) for one in wire}
            for name, wire in step.inputs.items()
        }
        number = cell.decomposition
        if step.stage.makes is not Claim:
            number = number * self.design.verifications + cell.verification
        return self._complete(step, step.stage.make(tables, self._lend(step, number)))


def _sources(steps: Mapping[str, Step]) -> dict[str, frozenset[Source]]:
    """What may make the table of each step another one each time; nothing for most."""
    found: dict[str, frozenset[Source]] = {_SAMPLES: frozenset()}
    for name, step in steps.items():
        own: set[Source] = set()
        if step.judges:
            own = {"decomposition" if step.stage.makes is Claim else "verification"}
        found[name] = frozenset(own).union(*(found[need] for need in step.needs))
    return found


# How far each metric of a pipeline varies over its repeats.


class Spread(NamedTuple):
    """How far one metric varies.

    `scored` counts the samples that have a score in every repeat, which `mean` and `parts`
    are of; `failed` those whose score failed in one, `undefined` the others. `varies` names
    what can vary at all. `detectable` is the smallest difference between two runs over `of`
    samples that would show: those of the whole file, as far as they are scored. All three
    are None where no sample is scored.
    """

    step: str
    metric: str
    scored: int
    undefined: int
    failed: int
    varies: frozenset[Source]
    mean: float | None = None
    parts: Parts | None = None
    detectable: float | None = None
    of: int = 0


def spreads(
    walk: Repeats, step: str, tables: Mapping[tuple[str, Cell], pl.DataFrame], *, whole: int
) -> Iterator[Spread]:
    """How far each metric of a step varies.

    `tables` holds its scores at every repeat, `whole` counts the samples of the file.
    """
    varies = walk.sources[step]
    shape = _shape(walk.design, varies)
    stacked = pl.concat(
        tables[step, cell].select("sample_id", "metric", "score", "status", repeat=pl.lit(number))
        for number, cell in enumerate(walk.cells(step))
    )
    for (metric,), rows in stacked.group_by("metric", maintain_order=True):
        by_sample = rows.group_by("sample_id", maintain_order=True).agg(
            pl.col("score").sort_by("repeat"),
            scored=(pl.col("status") == "scored").all(),
            failed=(pl.col("status") == "failed").any(),
        )
        used = by_sample.filter("scored")
        failed = int(by_sample["failed"].sum())
        undefined = by_sample.height - used.height - failed
        spread = Spread(step, str(metric), used.height, undefined, failed, varies)
        if used.height:
            scores = np.array(used["score"].to_list()).reshape(used.height, *shape)
            parts = split_variance(scores)
            of = max(round(whole * used.height / by_sample.height), 1)
            least = detectable_difference(parts, of)
            spread = spread._replace(
                mean=float(scores.mean()), parts=parts, detectable=least, of=of
            )
        yield spread


def _shape(design: Design, varies: frozenset[Source]) -> tuple[int, int]:
    """Decompositions and verifications among the repeats of a table.

    Where only verification varies each repeat of a decomposition is one more of it.
    """
    if varies == {"verification"}:
        return 1, design.decompositions * design.verifications
    verifications = design.verifications if "verification" in varies else 1
    return (design.decompositions if varies else 1), verifications


# How far scores vary from one evaluation of the same samples to the next: asked and measured.


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
        return dict.fromkeys(step.stage.needed_tools)

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
    observer: RunObserver,
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
            Ledger(store),
            run_id=run_id,
            stop=stop,
            redact=redact,
            answered=observer.questions_answered,
        )

    with (
        on_record(prepared.pipeline, store, observer, session, about=runs.NOISE_SUFFIX) as (
            run_id,
            toolbox,
        ),
        runs.recording_end(store, run_id, stop, well="measured"),
    ):
        walk = Repeats(
            prepared.pipeline, samples, repeats, lambda step, n: toolbox.lend(step, repeat=n)
        )
        tables = unless_interrupted(lambda: _scores(walk, observer), stop)
    return [
        spread
        for step in walk.scores
        for spread in spreads(walk, step.name, tables, whole=prepared.samples.count)
    ]


def _scores(walk: Repeats, observer: RunObserver) -> dict[tuple[str, Cell], pl.DataFrame]:
    """The scores of each step at each of its repeats."""
    cells = [(step.name, cell) for step in walk.scores for cell in walk.cells(step.name)]
    tables: dict[tuple[str, Cell], pl.DataFrame] = {}
    # By repeat, so that a run that is stopped has whole repeats on file.
    for done, (step, cell) in enumerate(sorted(cells, key=lambda one: one[1]), 1):
        tables[step, cell] = walk.table(step, cell)
        observer.step_progress(STEP, done, len(cells))
    return tables
