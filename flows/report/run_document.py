"""What is reported of one run: the document that every format is rendered from."""

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.judge import FINAL
from claimflow.flows.pipeline.gates import gate_name_faults, step_meant
from claimflow.flows.quality.calibration import (
    CorrectedStep,
    corrected_steps,
    earlier_calibrations,
)
from claimflow.flows.quality.canaries import CanaryResult, canary_results
from claimflow.flows.quality.cascades import CascadeResult, cascade_results
from claimflow.flows.quality.claim_audit import ClaimAudit, audit_claims
from claimflow.flows.quality.failed_rows import unscored_metrics
from claimflow.flows.quality.gates import Outcome, recorded_outcomes
from claimflow.flows.report.formatting import format_count, shorten
from claimflow.flows.report.run_text import (
    JudgeLine,
    ambiguity_text,
    calls_text,
    canary_lines,
    cascade_lines,
    correction_lines,
    earlier_calibration_text,
    gate_line,
    partial_run_text,
    unscored_metric_text,
    untaught_text,
    vote_text,
)
from claimflow.flows.store import results
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.batches import Batches
from claimflow.flows.store.edits import UnusedEdit, unused_edits
from claimflow.flows.store.languages import UntaughtTexts, untaught_texts
from claimflow.flows.store.runs import CURRENT_TAGS, PARTIAL, PREVIOUS, find_run
from claimflow.flows.store.store import Store

MAX_SAMPLES: Final = 1_000
"""Samples that a report lists by default."""

MAX_COMPARED: Final = 100_000
"""Samples up to which a run is compared with the one before: a comparison is held in memory."""

RUN_FAILED: Final = 8
"""The exit code of a run that failed by `fail_when`."""

_AUDITED: Final = 500
"""Samples whose claims are audited: two seconds of work."""

_PAST_RUNS: Final = 20


class RunHead(NamedTuple):
    """A recorded run; times are UTC, `ended_at` is None where its end was not recorded.

    `failures` counts the failed rows of its tables. The last five are as in `Coverage`, NULL in
    runs of older versions, and how much of its pipeline a partial run has, as in `3 of 40 samples`.
    """

    run_id: str
    pipeline: str
    status: str
    reason: str | None
    started_at: datetime
    ended_at: datetime | None
    tags: list[str]
    failures: int
    sample_count: int | None
    samples_available: int | None
    step_count: int | None
    steps_available: int | None
    selection: str | None
    partial: str | None

    @property
    def seconds(self) -> float | None:
        """How long the run took, None where its end was not recorded."""
        return (self.ended_at - self.started_at).total_seconds() if self.ended_at else None


class StepMetric(NamedTuple):
    """A metric, and the step that makes its scores."""

    step: str
    metric: str


class PastMean(NamedTuple):
    """The mean of a metric in a run, with its 95 % interval; None where there is none.

    It is over `scored` samples.
    """

    run_id: str
    started_at: datetime
    mean: float | None
    low: float | None
    high: float | None
    scored: int


class LowSample(NamedTuple):
    """A sample with a low mean over its scores, and its claims and checks that lowered them.

    The mean is over its claim metrics, if `by_claims` says so. `claims` are rows of
    `results.claims_not_entailed`.
    """

    sample_id: str
    mean: float
    by_claims: bool
    user_input: str | None
    response: str | None
    claims: list[dict[str, Any]]


class RunDocument:
    """What is reported of a run that is in `store`: figures, and sentences ready to be shown.

    Each part is read from the store when it is first asked for, and once: a format that leaves
    out an expensive part does not wait for it.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id

    @cached_property
    def head(self) -> RunHead:
        """Pipeline, status, times and tags."""
        with self.store.reading() as connection:
            found: tuple[Any, ...] = connection.execute(_HEAD, {"run": self.run_id}).fetchall()[0]
        return RunHead(*found)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps in order, as `results.run_steps` gives them."""
        return results.run_steps(self.store, self.run_id)

    @property
    def counts(self) -> str:
        """The samples and steps of the run in one line."""
        reused, failures = int(self.steps["reused"].sum()), int(self.steps["failures"].sum())
        failed = f", {format_count(failures, 'row')} failed" if failures else ""
        made = f"{format_count(self.steps.height - reused, 'step')} made, {reused} reused{failed}"
        return f"{self.head.partial or self.samples_text}, {made}"

    @property
    def samples_text(self) -> str:
        """The samples of the run, `200 of 3,412 samples` where its pipeline selects some."""
        available = self.head.samples_available or 0
        if self.head.selection is None and available > self.samples > 0:
            return f"{self.samples:,} of {available:,} samples"
        return format_count(self.samples, "sample")

    @property
    def partial_line(self) -> str | None:
        """The options of a partial run, and what leaves it out; None for a whole run."""
        return partial_run_text(self.head.selection) if self.head.selection else None

    @property
    def samples(self) -> int:
        """How many samples the run has."""
        return results.sample_count(self.steps)

    @cached_property
    def summaries(self) -> pl.DataFrame:
        """Means by metric and slice as `results.summaries` gives them, and the `name` to show.

        The name of a metric follows its step where several steps make it.
        """
        return with_names(results.summaries(self.store, self.run_id))

    @property
    def means(self) -> list[dict[str, Any]]:
        """The rows of `summaries` over all samples."""
        return self.summaries.filter(pl.col("slice_field").is_null()).rows(named=True)

    @cached_property
    def score_means(self) -> list[dict[str, Any]]:
        """As `means`, but without intervals, where no step of the run summarizes its scores."""
        if self.means:
            return []
        return with_names(results.score_means(self.store, self.run_id)).rows(named=True)

    @property
    def no_means(self) -> str:
        """Why there is no summary over all samples, and what to do."""
        head = self.head
        scores = "scores without intervals" if self.score_means else "no means"
        if head.status != "done":
            return f"{scores}: the run is {head.status}"
        lacks = "uses summarize_scores" if self.score_means else "makes scores"
        if head.step_count is not None and head.step_count < (head.steps_available or 0):
            return f"{scores}: no step of this run {lacks} ({shorten(head.selection, 80)})"
        if self.score_means:
            return f"{scores}: add a step that uses summarize_scores"
        return f"{scores}: no step of this run {lacks}"

    @property
    def slices(self) -> list[dict[str, Any]]:
        """The rows of `summaries` over the samples with one value of a metadata field."""
        return self.summaries.filter(pl.col("slice_field").is_not_null()).rows(named=True)

    @cached_property
    def past(self) -> dict[StepMetric, list[PastMean]]:
        """The means of this run and of those before it, as `past_means` gives them."""
        return past_means(self.store, self.run_id)

    @cached_property
    def gates(self) -> list[Outcome]:
        """The outcome of every rule of the gates."""
        return recorded_outcomes(self.store, self.run_id)

    @property
    def failed(self) -> str | None:
        """Why the run failed, in one line; None where it did not."""
        return f"failed: {self.head.reason}" if self.head.status == "failed" else None

    @property
    def exit_code(self) -> int:
        """8 when the run failed, else `gate_exit_code`; if that is 0, 1 when some rows failed."""
        if self.failed:
            return RUN_FAILED
        return gate_exit_code(self.gates) or int(self.steps["failures"].sum() > 0)

    @property
    def standing(self) -> str | None:
        """Why the exit code is not 0, in one line for a later run with nothing to do; else None."""
        failed_rows = int(self.steps["failures"].sum())
        lines = (gate_line(self.gates, one) for one in ("fail", "inconclusive", "skipped"))
        why = self.failed or next(filter(None, lines), None)
        if why is None and failed_rows:
            why = f"{failed_rows:,} row{'' if failed_rows == 1 else 's'} failed"
        return why and f"the last run, {self.run_id}, still stands: {why}"

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """The failed rows by step and kind, as `results.failures` counts them."""
        return self._failures.drop("asked").rows(named=True)

    @property
    def failures_to_ask(self) -> int:
        """How many of the failed rows another run would ask a model for."""
        again = pl.col("asked") & ~pl.col("failure").is_in(FINAL).fill_null(value=False)
        return int(self._failures.filter(again)["failed"].sum())

    @cached_property
    def _failures(self) -> pl.DataFrame:
        return results.failures(self.store, self.run_id)

    @cached_property
    def unused_edits(self) -> list[UnusedEdit]:
        """The edits by hand that the run could not apply."""
        return unused_edits(self.store, self.run_id)

    @cached_property
    def has_contradicted(self) -> bool:
        """Whether the run has claims that are contradicted."""
        with self.store.reading() as connection:
            query = "SELECT EXISTS (FROM verdicts WHERE run_id = $run AND verdict = 'contradicted')"
            [(found,)] = connection.execute(query, {"run": self.run_id}).fetchall()
        return bool(found)

    @cached_property
    def votes(self) -> tuple[int, int]:
        """Of the claims that were voted on: those whose votes differ, and all."""
        return results.votes(self.store, self.run_id)

    @property
    def vote_line(self) -> str | None:
        """On how many claims the votes differ; None where there were no votes."""
        return vote_text(*self.votes)

    @cached_property
    def ambiguous_claims(self) -> tuple[int, int]:
        """The claims that leave something open, such as a pronoun, and all claims."""
        return results.ambiguous_claims(self.store, self.run_id)

    @property
    def ambiguity_line(self) -> str | None:
        """How many claims are ambiguous; None where none is."""
        return ambiguity_text(*self.ambiguous_claims)

    @cached_property
    def cascades(self) -> list[CascadeResult]:
        """Which model judged how much, for each step with a cascade."""
        return cascade_results(self.store, self.run_id)

    @property
    def cascade_lines(self) -> list[list[str]]:
        """One or two lines for each cascade."""
        return [list(cascade_lines(one)) for one in self.cascades]

    @cached_property
    def canaries(self) -> list[CanaryResult]:
        """How each judge did on the canaries."""
        with self.store.reading() as connection:
            return canary_results(connection, self.run_id)

    @cached_property
    def corrected(self) -> list[CorrectedStep]:
        """Figures corrected for the errors of the judges, where there are labels."""
        fields = dict.fromkeys(row["slice_field"] for row in self.slices)
        return corrected_steps(self.store, self.run_id, slice_fields=fields)

    @property
    def judge_lines(self) -> list[JudgeLine]:
        """Metrics without a score, canaries, corrected figures, and outdated calibrations."""
        corrections = [JudgeLine(text) for text in correction_lines(self.corrected)]
        return [*self._unscored_lines, *self._canary_lines, *corrections, *self._stale_lines]

    @property
    def warnings(self) -> list[str]:
        """Languages that were not taught, metrics without a score, and reasons to distrust the
        judges of the run."""
        judges = [line.text for line in self.judge_lines if line.warning]
        return [*([self.untaught_line] if self.untaught_line else []), *judges]

    @cached_property
    def untaught(self) -> UntaughtTexts | None:
        """The texts in languages that what read them was not taught; None if there are none."""
        return untaught_texts(self.store, self.run_id)

    @property
    def untaught_line(self) -> str | None:
        """A warning about these texts, for a place beside the means."""
        return untaught_text(self.untaught) if self.untaught else None

    @cached_property
    def _unscored_lines(self) -> list[JudgeLine]:
        unscored = unscored_metrics(self.store, self.run_id)
        return [JudgeLine(unscored_metric_text(one), warning=True) for one in unscored]

    @cached_property
    def _canary_lines(self) -> list[JudgeLine]:
        return [line for one in self.canaries for line in canary_lines(one)]

    @cached_property
    def _stale_lines(self) -> list[JudgeLine]:
        earlier = earlier_calibrations(self.store, self.run_id)
        return [
            JudgeLine(f"warning: {step}: {earlier_calibration_text(one)}", warning=True)
            for step, one in earlier.items()
            if one.stale
        ]

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """The model calls of the run, as `results.calls_made` counts them."""
        return results.calls_made(self.store, self.run_id).rows(named=True)

    @property
    def call_lines(self) -> list[str]:
        """A line for each model that was asked: calls, tokens, cost."""
        return [calls_text(row) for row in self.calls]

    @cached_property
    def open_batches_line(self) -> str | None:
        """The calls of the run in batches that have not ended, and what they may cost."""
        found = Batches(self.store).reserved().filter(pl.col("run_id") == self.run_id)
        for _, calls, reserved in found.iter_rows():
            cost = "of unknown price" if reserved is None else f"about {reserved:.2g} USD reserved"
            are = "is" if calls == 1 else "are"
            what = f"{format_count(calls, 'call')} {are} in batches that have not ended, {cost}"
            return f"{what}; run again to collect"
        return None

    @cached_property
    def claim_audit(self) -> ClaimAudit:
        """Errors in the claims of up to 500 samples, with three examples of each."""
        audit = _audit if self.head.status == "running" else _remembered_audit
        return audit(self.store, self.run_id)

    @cached_property
    def is_only_latest(self) -> bool:
        """Whether the views of the schema latest show this run and no other."""
        with self.store.reading() as connection:
            found = connection.execute("SELECT run_id FROM audit.latest_runs").fetchall()
        return found == [(self.run_id,)]

    @cached_property
    def run_before(self) -> str | None:
        """The newest whole run of the same pipeline before this one."""
        return find_run(self.store, PREVIOUS, before=self.run_id)

    def lowest(self, count: int) -> list[LowSample]:
        """The lowest samples, as `results.lowest_samples` ranks them, the lowest first."""
        lowest = results.lowest_samples(self.store, self.run_id, count)
        ids = lowest["sample_id"].to_list()
        claims = results.claims_not_entailed(self.store, self.run_id, ids)
        by_sample = claims.rows_by_key("sample_id", named=True)
        return [
            LowSample(**row, claims=by_sample[row["sample_id"]])
            for row in lowest.iter_rows(named=True)
        ]


def _audit(store: Store, run_id: str) -> ClaimAudit:
    return audit_claims(store, run_id, examples=3, samples=_AUDITED)


_remembered_audit: Final = lru_cache(maxsize=8)(_audit)
"""It takes seconds, and `claimflow view` shows a run many times."""


def with_names(summaries: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Summaries with a `name`: the metric, after its step where several steps make it.

    Those of several runs `by` run_id.
    """
    several = pl.col("scores").n_unique().over(*by, "metric") > 1
    led = pl.format("{}.{}", "scores", "metric")
    return summaries.with_columns(name=pl.when(several).then(led).otherwise("metric"))


def gate_exit_code(outcomes: Iterable[Outcome]) -> int:
    """4 when a gate failed, else 5 when one is inconclusive or was skipped, else 0."""
    found = {one.outcome for one in outcomes}
    return 4 if "fail" in found else 5 if found & {"inconclusive", "skipped"} else 0


def named_metrics(
    store: Store, run_id: str, names: Iterable[str], *, place: str
) -> list[StepMetric]:
    """The metrics that `names` mean, each `metric`, or `step.metric` where several steps make it.

    Raises `InputError`, whose faults are at `place`, for names of which the run has no scores.
    """
    steps: dict[str, list[str]] = {}
    with store.reading() as connection:
        query = "SELECT DISTINCT metric, step FROM scores WHERE run_id = $run ORDER BY ALL"
        for metric, step in read_table(connection, query, run=run_id).iter_rows():
            steps.setdefault(metric, []).append(step)
    wanted = list(names)
    faults = [Fault(place, what, hint) for _, what, hint in gate_name_faults(wanted, steps)]
    if faults:
        raise InputError(faults)
    parts = (name.rpartition(".") for name in wanted)
    return [
        StepMetric(step or step_meant(metric, steps[metric]), metric) for step, _, metric in parts
    ]


def scored_values(store: Store, run_id: str, of: StepMetric) -> list[float]:
    """The scores of a metric in a run, the lowest first."""
    with store.reading() as connection:
        table = read_table(
            connection,
            "SELECT score FROM scores WHERE run_id = $run AND step = $step AND metric = $metric "
            "AND status = 'scored' ORDER BY score",
            run=run_id,
            step=of.step,
            metric=of.metric,
        )
    return table["score"].to_list()


def past_means(store: Store, run_id: str) -> dict[StepMetric, list[PastMean]]:
    """The means over all samples in the newest 20 runs of the pipeline, up to this one.

    The oldest comes first. Runs before this one count only if they are whole.
    """
    with store.reading() as connection:
        rows = connection.execute(_PAST, {"run": run_id, "count": _PAST_RUNS}).fetchall()
    found: dict[StepMetric, list[PastMean]] = {}
    for step, metric, *mean in rows:
        found.setdefault(StepMetric(step, metric), []).append(PastMean(*mean))
    return found


_HEAD = f"""
SELECT run_id, pipeline, status, reason, started_at, ended_at,
       (SELECT coalesce(list(tag ORDER BY tag), []) FROM ({CURRENT_TAGS}) WHERE run_id = $run),
       (SELECT coalesce(sum(failures), 0)::BIGINT FROM audit.run_steps
        JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
        WHERE run_id = $run),
       sample_count, samples_available, step_count, steps_available, selection, {PARTIAL}
FROM audit.runs WHERE run_id = $run
"""

_PAST: Final = """
WITH this AS (SELECT run_id, pipeline, started_at FROM audit.runs WHERE run_id = $run),
     past AS (SELECT run_id, started_at FROM (FROM this UNION FROM audit.whole_runs)
              WHERE pipeline = (SELECT pipeline FROM this)
                AND started_at <= (SELECT started_at FROM this)
              ORDER BY started_at DESC, run_id DESC LIMIT $count)
SELECT scores, metric, run_id, started_at, mean, low, high, n_scored
FROM summaries JOIN past USING (run_id) WHERE slice_field IS NULL
ORDER BY started_at, run_id, scores, metric
"""
