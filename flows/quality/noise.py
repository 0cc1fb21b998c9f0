"""Noise: how far scores vary when the same samples are evaluated again."""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.judge.ledger_writer import recover_journals
from claimflow.flows.judge.session import Session
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.rerun import upstream
from claimflow.flows.pipeline.wiring import Step
from claimflow.flows.quality.variance import (
    Source,
    VarianceComponents,
    detectable_difference,
    variance_components,
)
from claimflow.flows.runner.estimate import ClaimEstimates, StepCounter, estimate_models
from claimflow.flows.runner.observer import RunObserver
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.runner.readiness import check_endpoints
from claimflow.flows.runner.run import run_context, run_interruptibly
from claimflow.flows.store import runs
from claimflow.flows.store.ledger import Ledger
from claimflow.flows.store.store import Store
from claimflow.stages.rows import Claim, Score

_PROGRESS_NAME: Final = "repeats"
"""The name under which an observer is told of progress, in place of a step."""

_SAMPLES: Final = "samples"

_LendTools = Callable[[Step, int], Mapping[str, Any]]
"""The tools of a step for a repeat, by parameter."""

_Completion = Callable[[Step, pl.DataFrame], pl.DataFrame]
"""Replaces rows of a step's table that are not known yet by an estimate."""


class Design(NamedTuple):
    """How many decompositions are made, and how many verifications of each.

    1 where those steps need no judge and are deterministic.
    """

    decompositions: int
    verifications: int


class MetricSpread(NamedTuple):
    """The variance of one metric over the repeats.

    `scored` counts the samples with a score in every repeat, on which `mean` and `parts` rest;
    `failed` those whose score failed in one, `undefined` the others. `varies` names the sources
    that can vary. `detectable` is the minimum detectable difference between two runs over `of`
    samples: the scored share of the whole file. `mean`, `parts` and `detectable` are None where
    no sample is scored.
    """

    step: str
    metric: str
    scored: int
    undefined: int
    failed: int
    varies: frozenset[Source]
    mean: float | None = None
    parts: VarianceComponents | None = None
    detectable: float | None = None
    of: int = 0


def estimate_calls(
    prepared: Prepared, store: Store, samples: pl.DataFrame, repeats: int
) -> tuple[Design, dict[str, Estimate]]:
    """The design and the estimated calls by step; calls no model and writes nothing."""
    asked: set[str] = set()
    pipeline = prepared.pipeline
    models = estimate_models(pipeline, store)
    counters = {
        step.name: StepCounter(of, Ledger(store), asked, models)
        for step in pipeline.steps
        if (of := pipeline.endpoints_of(step))
    }
    claims = ClaimEstimates(models)

    def lend(step: Step, repeat: int) -> Mapping[str, Any]:
        if step.name in counters:
            return counters[step.name].lend(step.stage, repeat=repeat)
        return models.lend(step.stage)

    def complete(step: Step, table: pl.DataFrame) -> pl.DataFrame:
        return claims.complete(step, table, samples) if step.judges else table

    repeated = _RepeatedTables(pipeline, samples, repeats, lend, complete)
    needed = upstream(pipeline.steps, [step.name for step in repeated.scores])
    for name in (step.name for step in pipeline.steps if step.name in needed & counters.keys()):
        for repeat in repeated.repeats_of(name):
            repeated.table(name, repeat)
    about = bool(claims.steps) or models.guessed
    return repeated.design, {name: one.estimate(about=about) for name, one in counters.items()}


def measure_noise(
    prepared: Prepared,
    store: Store,
    samples: pl.DataFrame,
    repeats: int,
    observer: RunObserver,
    *,
    redact: bool = False,
) -> list[MetricSpread]:
    """Evaluate `samples` `repeats` times, and return the spread of each metric.

    Replies in the ledger are reused and new ones are added to it. It is recorded as a run of its
    own, which never counts as the latest run. Raises the errors of a run.
    """
    check_endpoints(prepared.pipeline)
    stop = threading.Event()

    answered = observer.questions_answered
    ledger = Ledger(store)
    recover_journals(ledger)
    session = partial(Session, ledger, stop=stop, redact=redact, answered=answered)
    with (
        run_context(prepared.pipeline, store, observer, session, suffix=runs.NOISE_SUFFIX) as (
            run_id,
            toolbox,
        ),
        runs.recording_end(store, run_id, stop) as end,
    ):
        repeated = _RepeatedTables(
            prepared.pipeline, samples, repeats, lambda step, n: toolbox.lend(step, repeat=n)
        )
        run_interruptibly(lambda: _make_scores(repeated, observer), stop)
        end.status = "measured"
    return [
        spread
        for step in repeated.scores
        for spread in _spreads(repeated, step.name, file_size=prepared.samples.count)
    ]


class _Repeat(NamedTuple):
    """One repeat of a table: the number of its decomposition, and of the verification in that."""

    decomposition: int
    verification: int


class _RepeatedTables:
    """The tables of a pipeline over some samples, each made once for each of its repeats.

    Every decomposition and every verification has a repeat number of its own, part of the request,
    so that no two share an answer in the ledger. More repeats leave the other numbers unchanged.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        samples: pl.DataFrame,
        repeats: int,
        lend: _LendTools,
        complete: _Completion = lambda _, table: table,
    ) -> None:
        self._steps = {step.name: step for step in pipeline.steps}
        self._samples = samples
        self._lend = lend
        self._complete = complete
        self._made: dict[tuple[str, _Repeat], pl.DataFrame] = {}
        self.sources = _sources(self._steps)
        self.scores = [step for step in pipeline.steps if step.stage.makes is Score]
        vary = frozenset[Source]().union(*(self.sources[step.name] for step in self.scores))
        decompositions = repeats if "decomposition" in vary else 1
        verifications = (2 if decompositions > 1 else repeats) if "verification" in vary else 1
        self.design = Design(decompositions, verifications)

    def repeats_of(self, step: str) -> list[_Repeat]:
        """The repeats of a step's table, as far as they may differ."""
        sources = self.sources[step]
        decompositions = self.design.decompositions if sources else 1
        verifications = self.design.verifications if "verification" in sources else 1
        return [_Repeat(d, v) for d in range(decompositions) for v in range(verifications)]

    def table(self, name: str, repeat: _Repeat) -> pl.DataFrame:
        """The table of a step in one repeat."""
        if name == _SAMPLES:
            return self._samples
        sources = self.sources[name]
        verification = repeat.verification if "verification" in sources else 0
        own = _Repeat(repeat.decomposition if sources else 0, verification)
        if (name, own) not in self._made:
            self._made[name, own] = self._make(self._steps[name], own)
        return self._made[name, own]

    def _make(self, step: Step, repeat: _Repeat) -> pl.DataFrame:
        tables = step.collect(lambda _, need: self.table(need, repeat))
        number = repeat.decomposition
        if step.stage.makes is not Claim:
            number = number * self.design.verifications + repeat.verification
        return self._complete(step, step.stage.make(tables, self._lend(step, number)))


def _sources(steps: Mapping[str, Step]) -> dict[str, frozenset[Source]]:
    """The sources of variance of the table of each step; empty for a deterministic one."""
    found: dict[str, frozenset[Source]] = {_SAMPLES: frozenset()}
    for name, step in steps.items():
        own: set[Source] = set()
        if step.judges:
            own = {"decomposition" if step.stage.makes is Claim else "verification"}
        found[name] = frozenset(own).union(*(found[need] for need in step.needs))
    return found


def _make_scores(repeated: _RepeatedTables, observer: RunObserver) -> None:
    repeats = [
        (step.name, one) for step in repeated.scores for one in repeated.repeats_of(step.name)
    ]
    # By repeat, so that a stopped run has finished whole repeats.
    for done, (step, repeat) in enumerate(sorted(repeats, key=lambda one: one[1]), 1):
        repeated.table(step, repeat)
        observer.step_progress(_PROGRESS_NAME, done, len(repeats))


def _spreads(repeated: _RepeatedTables, step: str, *, file_size: int) -> Iterator[MetricSpread]:
    """The spread of each metric of a step; `file_size` counts the samples of the file."""
    varies = repeated.sources[step]
    # Where only verification varies, every repeat is one more verification.
    decompositions = repeated.design.decompositions if "decomposition" in varies else 1
    stacked = pl.concat(
        repeated.table(step, one).select(
            "sample_id", "metric", "score", "status", repeat=pl.lit(number)
        )
        for number, one in enumerate(repeated.repeats_of(step))
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
        spread = MetricSpread(step, str(metric), used.height, undefined, failed, varies)
        if used.height:
            scores = np.array(used["score"].to_list()).reshape(used.height, decompositions, -1)
            parts = variance_components(scores)
            of = max(round(file_size * used.height / by_sample.height), 1)
            least = detectable_difference(parts, of)
            spread = spread._replace(
                mean=float(scores.mean()), parts=parts, detectable=least, of=of
            )
        yield spread
