"""Results of runs in Python: tables, means, differences, reports, and SQL on their rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

import polars as pl

from claimflow.flows.errors import ArgumentKind, Fault, InputError, kind_faults, one_of
from claimflow.flows.files import checked_path, faults_of_writing
from claimflow.flows.quality.comparison import Comparison, compare
from claimflow.flows.quality.metric_differences import check_metrics
from claimflow.flows.report.formatting import format_interval, format_number
from claimflow.flows.report.run_document import RunDocument, named_metrics
from claimflow.flows.report.terminal import (
    Terminal,
    print_comparison,
    print_gates,
    print_means,
    rendered_text,
)
from claimflow.flows.store import results
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.query import Parameters, query
from claimflow.flows.store.read_copy import readable_store
from claimflow.flows.store.runs import LATEST, PREVIOUS
from claimflow.flows.store.store import Store, store_version

if TYPE_CHECKING:
    import pandas as pd

    from claimflow.flows.report.vega_lite import Chart

PlotKind = Literal["distribution", "trend"]

_SHOWN: Final = 10
"""Scores and claims that a difference shows as text; its tables have all."""


class Mean(NamedTuple):
    """The mean of a metric over the scored samples of a run.

    `low` and `high` are its 95 % interval; all three are None where no sample has a score. Of
    `samples` samples `scored` have one, for `undefined` there was nothing to score, and `failed`
    have none because something went wrong.
    """

    metric: str
    mean: float | None
    low: float | None
    high: float | None
    scored: int
    undefined: int
    failed: int
    samples: int

    def __str__(self) -> str:
        value = f"{format_number(self.mean)} ({format_interval(self.low, self.high)})"
        return f"{self.metric} {value}, {self.scored:,} of {self.samples:,}"


class Result:
    """A run in a store: what `evaluate` returns, and `connect(...).result(...)`.

    The tables are Polars frames, read from the store when they are first used; `.to_pandas()`
    converts one. They have the columns of the SQL views of the same names but for `run_id`, in the
    order of the samples.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        left_out: Mapping[str, str] | None = None,
        baseline: str | None = None,
        sample_ids: pl.Series | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        self.run_id: Final = run_id
        self.left_out: Final[Mapping[str, str]] = dict(left_out or {})
        """The usual metrics that were not evaluated, each with the reason."""
        self._store = store
        self._document = RunDocument(store, run_id)
        self._baseline = baseline
        self._sample_ids = sample_ids
        self._warnings = [*warnings]

    @property
    def store(self) -> Path:
        """The file with the rows of the run. A temporary one goes with the last of its results."""
        return self._store.path

    def open_store(self) -> Store:
        """The store to read the run from, for code that reads other tables."""
        return self._store

    # Tables.

    @cached_property
    def scores(self) -> pl.DataFrame:
        """One row for each sample and metric: step, sample_id, metric, score, status, reason.

        `score` is NULL unless `status` is `scored`. `details`, as JSON, says what it is made of.
        """
        return self._rows("scores")

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row for each metric, over all samples and then by slice.

        `mean`, its 95 % interval `low` to `high`, and how many of `n` samples are scored,
        undefined and failed. `scores` is the step that made the scores.
        """
        return self._document.summaries.drop("name")

    @cached_property
    def claims(self) -> pl.DataFrame:
        """One row for each claim: sample_id, the text that it is of, and its place there.

        Sentences that claim nothing are in the view `non_claims`.
        """
        return self._rows("claims").filter(pl.col("status") != "not_a_claim")

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        """One row for each claim and text: entailed, contradicted or neutral, and the evidence.

        With the sample and the words of each claim, as in the view `claim_verdicts`.
        """
        return self._rows("claim_verdicts")

    @cached_property
    def samples(self) -> pl.DataFrame:
        """One row for each sample, with its texts; `metadata` is JSON."""
        return self._rows("samples")

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row for each sample: id, texts, and a column for each metric.

        A column is named by the metric, or by `step.metric` where several steps make it; it is
        NULL where the sample has no score.
        """
        scores = self.scores
        several = pl.col("step").n_unique().over("metric") > 1
        led = pl.format("{}.{}", "step", "metric")
        named = scores.with_columns(name=pl.when(several).then(led).otherwise("metric"))
        wide = named.pivot("name", index="sample_id", values="score")
        texts = ("sample_id", "user_input", "response", "reference", "retrieved_contexts")
        return self.samples.select(texts).join(
            wide, on="sample_id", how="left", maintain_order="left"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """`table` as a pandas DataFrame, with NaN or None where a score or a text is missing.

        Raises `InputError` where pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            what, hint = "pandas is not installed", "run: pip install pandas"
            raise InputError([Fault("to_pandas", what, hint)]) from None
        # The method of Polars needs pyarrow, too.
        return pd.DataFrame(self.table.to_dict(as_series=False))

    @cached_property
    def failures(self) -> pl.DataFrame:
        """How many rows of each step failed, and why: step, failure, failed, reason."""
        return results.failures(self._store, self.run_id)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """One row for each model call that this run made: prompt, reply, tokens, cost, seconds.

        Replies that were in the store already are of earlier runs and not among them.
        """
        return self._read(
            "SELECT * EXCLUDE (run_id, request, repeats, open) FROM audit.calls "
            "WHERE run_id = $run ORDER BY asked_at, call_id"
        )

    @cached_property
    def gates(self) -> pl.DataFrame:
        """One row for each rule of a gate: metric, rule, value, outcome, reason."""
        columns = ("metric", "rule", "baseline", "value", "low", "high", "line", "outcome")
        return self._read(
            f"SELECT {', '.join(columns)}, reason FROM audit.gates WHERE run_id = $run ORDER BY ALL"
        )

    def _rows(self, view: str) -> pl.DataFrame:
        """The rows of a view, ordered by sample, then by step."""
        rows = self._read(f"SELECT * EXCLUDE (run_id) FROM {view} WHERE run_id = $run ORDER BY ALL")
        steps = self._document.steps["step"].to_list()
        keys = [pl.col("step").replace_strict(steps, range(len(steps)), default=None)]
        if self._sample_ids is not None and "sample_id" in rows.columns:
            places = pl.DataFrame({"sample_id": self._sample_ids}).with_row_index("place")
            rows = rows.join(places, on="sample_id", how="left", maintain_order="left")
            return rows.sort("place", *keys, maintain_order=True).drop("place")
        by = [pl.col("sample_id")] if "sample_id" in rows.columns else []
        return rows.sort(*by, *keys, maintain_order=True)

    def _read(self, statement: str) -> pl.DataFrame:
        with self._store.reading() as connection:
            return read_table(connection, statement, run=self.run_id)

    # Facts.

    @property
    def passed(self) -> bool:
        """Whether the run did not fail, and every gate passed."""
        return self._document.exit_code in (0, 1)

    @property
    def failed(self) -> str | None:
        """Why the run failed, such as too many failed rows; None where it did not."""
        return self._document.failed

    @property
    def partial(self) -> str | None:
        """How much of its pipeline a partial run has, as in `3 of 40 samples`; None if whole."""
        return self._document.head.partial

    @property
    def warnings(self) -> list[str]:
        """Columns that may be misspelt, languages that the embedded models were not taught,
        metrics without a score, and reasons to distrust the judges.

        The columns are those of the call that returned this result; the store does not keep them.
        """
        return [*self._warnings, *self._document.warnings]

    @property
    def cost_usd(self) -> float | None:
        """What the model calls of this run cost; None where a price is not known."""
        calls = self._document.calls
        if any(row["priced"] < row["calls"] for row in calls):
            return None
        return float(sum(row["cost"] for row in calls))

    def mean(self, metric: str) -> Mean:
        """The mean of a metric, or of `step.metric` where several steps make it.

        The metric alone means then the step that has its name. Raises `InputError` where the run
        has no such mean.
        """
        _check_kinds(metric=metric)
        names = self._document.means or self._document.score_means
        found = [row for row in names if metric in (row["metric"], _step_name(row))]
        if len(found) > 1:
            found = [row for row in found if row["scores"] == metric]
        if len(found) != 1:
            if not names:
                raise InputError([Fault("metric", self._document.no_means, "run it whole")])
            named_metrics(self._store, self.run_id, [metric], place="metric")
            known = [row["name"] for row in names]
            raise InputError([Fault("metric", f"{metric} has no mean", one_of(metric, known))])
        [row] = found
        counts = (row["n_scored"], row["n_undefined"], row["n_failed"], row["n"])
        return Mean(row["name"], row["mean"], row["low"], row["high"], *counts)

    __getitem__ = mean

    # Looking closer.

    def sql(self, statement: str, parameters: Parameters | None = None) -> pl.DataFrame:
        """The result of one SELECT on the rows of this run.

        Its views, such as `scores`, `claims` and `latest.scores`, have the rows of this run only.
        `parameters` are the values of its `?` or `$name`. Raises `InputError` for anything but a
        SELECT, and where DuckDB refuses it.
        """
        _check_kinds(statement=statement)
        return query(self._store, statement, parameters, run=self.run_id)

    def sample(self, sample_id: str | int) -> "SampleTrace":
        """What led to the scores of a sample; `sample_id` is its id or the beginning of one.

        Raises `InputError` where no sample, or more than one, is meant.
        """
        _check_kinds(sample_id=sample_id)
        chosen = results.chosen_sample(self._store, self.run_id, str(sample_id))
        return SampleTrace(self._store, self.run_id, chosen)

    def diff(self, other: "Result | str | None" = None, *, by: str | None = None) -> "Diff":
        """What changed from another run to this one, and why.

        `other` is a result, or a run of the same store: an id, a tag, `latest` or `previous`. By
        default it is the `baseline` that `evaluate` was given, else the whole run of the same
        pipeline before this one. `by` names a metadata field whose samples form one unit.

        Raises `InputError` where there is no such run, or it is in another store.
        """
        _check_kinds(by=by)
        if other is None:
            other = self._baseline or PREVIOUS
        return Diff(compare(self._store, self._other_run(other), self.run_id, by=by))

    def _other_run(self, other: "Result | str", argument: str = "other") -> str:
        if not isinstance(other, Result):
            _check_kinds(**{argument: other})
            return results.chosen_run(self._store, other, before=self.run_id)
        if other.store != self.store:
            what = f"the other run is in another store, {other.store}"
            raise InputError([Fault("diff", what, f"evaluate it with store={str(self.store)!r}")])
        return other.run_id

    def report(self, path: str | Path, *, against: "Result | str | None" = None) -> Path:
        """Write a report: HTML, Markdown, JSON or JUnit XML, by the suffix of `path`.

        The HTML page needs no network and shows what changed since `against`, by default the
        baseline if there is one. Returns the path.

        Raises `InputError` for another suffix, and where the file cannot be written.
        """
        from claimflow.flows.report.html import html_report
        from claimflow.flows.report.json_document import run_json
        from claimflow.flows.report.junit import run_junit
        from claimflow.flows.report.markdown import run_markdown

        target = checked_path("path", path, "give the path of the file to write")
        run = self._document
        other = self._baseline if against is None else against
        before = None if other is None else self._other_run(other, "against")
        formats: dict[str, Callable[[], str]] = {
            ".html": lambda: html_report(run, against=before),
            ".md": lambda: run_markdown(run),
            ".json": lambda: run_json(run),
            ".xml": lambda: run_junit(run),
        }
        if target.suffix not in formats:
            what = f"has the unknown ending {target.suffix!r}"
            raise InputError([Fault(str(path), what, f"known are {', '.join(formats)}")])
        text = formats[target.suffix]()
        with faults_of_writing(target):
            target.write_text(text, "utf-8")
        return target

    def plot(
        self,
        metric: str | None = None,
        *,
        kind: PlotKind | None = None,
        against: "Result | str | None" = None,
    ) -> "Chart":
        """The distribution of the scores of a metric, or its means over the runs (`trend`).

        With `against`, a result or a run of the same store as for `diff`, it is the difference of
        the means from that run, of all metrics if none is named; `Diff.plot` draws several.

        Raises `InputError` where there is nothing to draw.
        """
        from claimflow.flows.report.run_charts import metric_chart

        if against is not None:
            if kind is not None:
                what, hint = "applies to one run only", "leave it out, or against"
                raise InputError([Fault("kind", what, hint)])
            before = self._other_run(against, "against")
            found = Diff(compare(self._store, before, self.run_id))
            return found.plot(*([] if metric is None else [metric]))
        if metric is None:
            hint = "name a metric, or another run by against to compare all"
            raise InputError([Fault("metric", "is missing", hint)])
        kind = "distribution" if kind is None else kind
        _check_kinds(metric=metric, kind=kind)
        if kind not in get_args(PlotKind):
            what = f"{kind!r} is no kind of plot"
            raise InputError([Fault("kind", what, one_of(kind, get_args(PlotKind)))])
        why = "`scores` of the result says why"
        return metric_chart(self._store, self.run_id, metric, kind=kind, place="metric", why=why)

    def __repr__(self) -> str:
        return rendered_text(self._print).strip("\n")

    def _repr_html_(self) -> str:
        from claimflow.flows.report.notebook import result_html

        comparison = None
        if self._baseline:
            comparison = compare(self._store, self._baseline, self.run_id)
        return result_html(self._document, self.left_out, comparison, self.warnings)

    def _print(self, terminal: Terminal) -> None:
        run = self._document
        terminal.print_line(f"run {run.run_id}: {run.counts}")
        for line in (run.failed, *self.warnings):
            if line:
                terminal.print_line(line)
        if run.means:
            print_means(terminal, run.means)
        else:
            if run.score_means:
                print_means(terminal, run.score_means)
            terminal.print_line(run.no_means)
        if run.gates:
            print_gates(terminal, run.gates)
        for metric, reason in self.left_out.items():
            terminal.print_line(f"left out: {metric}, {reason}")


_KINDS: Final[dict[str, ArgumentKind]] = {
    "metric": (str, "the name of a metric"),
    "statement": (str, "a SELECT as text"),
    "sample_id": ((str, Integral), "the id of a sample, or the beginning of one"),
    **dict.fromkeys(("other", "against"), (str, "a result, or the id or tag of a run")),
    "by": ((str, type(None)), "the name of a metadata field"),
    "kind": (str, f"one of {', '.join(get_args(PlotKind))}"),
    "metrics": ((list, tuple), "a list of metrics"),
    **dict.fromkeys(("run", "a", "b"), (str, "the id or tag of a run")),
}


def _check_kinds(**given: Any) -> None:
    """Raise `InputError` for arguments that are something else than their kind."""
    if faults := kind_faults(given, _KINDS):
        raise InputError(faults)


def _step_name(row: Mapping[str, Any]) -> str:
    return f"{row['scores']}.{row['metric']}"


class SampleTrace:
    """What led to the scores of one sample: its texts, claims, verdicts, evidence and scores."""

    def __init__(self, store: Store, run_id: str, sample_id: str) -> None:
        self.run_id: Final = run_id
        self.sample_id: Final = sample_id
        self._store = store

    @cached_property
    def rows(self) -> dict[str, Any]:
        """The sample as plain values: its fields, `claims` with their `verdicts`, and `scores`."""
        from claimflow.flows.report.samples import traced_samples

        [found] = traced_samples(self._store, self.run_id, [self.sample_id])
        return found

    def __repr__(self) -> str:
        from claimflow.flows.report.sample_tree import sample_tree

        tree = sample_tree(self._store, self.run_id, self.sample_id)
        return rendered_text(lambda terminal: terminal.print(tree)).rstrip("\n")

    def _repr_html_(self) -> str:
        from claimflow.flows.report.notebook import sample_html

        return sample_html(self.rows)


class Diff:
    """What changed from run `a` to run `b`, as tables and, printed, as text."""

    def __init__(self, comparison: Comparison) -> None:
        self.a: Final = comparison.a.run_id
        self.b: Final = comparison.b.run_id
        self._comparison = comparison

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """One row for each metric: its means, their difference b - a, interval, p, finding."""
        found = []
        for one in self._comparison.metrics:
            difference = one.difference
            found.append(
                {
                    "metric": one.metric,
                    "a": one.mean_a,
                    "b": one.mean_b,
                    "difference": difference and difference.mean,
                    "low": difference and difference.low,
                    "high": difference and difference.high,
                    "p": difference and difference.p,
                    "p_holm": one.p_holm,
                    "samples": difference.samples if difference else 0,
                    "finding": one.finding,
                }
            )
        return pl.DataFrame(found, schema=_DIFF_COLUMNS)

    @property
    def scores(self) -> pl.DataFrame:
        """The scores that changed, the largest change first."""
        return self._comparison.scores

    @property
    def verdicts(self) -> pl.DataFrame:
        """The claims and verdicts that changed, each with what caused it."""
        return self._comparison.claims

    @property
    def samples(self) -> pl.DataFrame:
        """The samples that are new, removed or changed."""
        return self._comparison.samples

    def plot(self, *metrics: str) -> "Chart":
        """The differences of the means, with their intervals; of all metrics if none is named.

        Raises `InputError` for a metric of which neither run has scores.
        """
        from claimflow.flows.report.run_charts import comparison_of_runs

        for metric in metrics:
            _check_kinds(metric=metric)
        found = self._comparison.metrics
        names = {one.metric: {one.metric, one.metric.rpartition(".")[2]} for one in found}
        check_metrics(metrics, set().union(*names.values()), place="metric")
        chosen = [one for one in found if not metrics or names[one.metric] & set(metrics)]
        return comparison_of_runs(self._comparison._replace(metrics=chosen))

    def __repr__(self) -> str:
        text = rendered_text(lambda to: print_comparison(to, self._comparison, limit=_SHOWN))
        return text.rstrip("\n")

    def _repr_html_(self) -> str:
        from claimflow.flows.report.notebook import comparison_html

        return comparison_html(self._comparison)


_DIFF_COLUMNS: Final = {
    "metric": pl.String,
    **dict.fromkeys(("a", "b", "difference", "low", "high", "p", "p_holm"), pl.Float64),
    "samples": pl.Int64,
    "finding": pl.String,
}


class StoredRuns:
    """The runs of a store, read only; also while another process writes a run to it."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @property
    def _store(self) -> Store:
        # A new one each time: the first run may leave the read copy after `connect`.
        return readable_store(self.path)

    @property
    def runs(self) -> pl.DataFrame:
        """Every run, newest first: id, tags, pipeline, status, times, counts of steps."""
        return results.all_runs(self._store)

    def result(self, run: str = LATEST) -> Result:
        """The result of a run: an id or the beginning of one, a tag, `latest` or `previous`.

        Raises `InputError` where there is no such run.
        """
        _check_kinds(run=run)
        store = self._store
        return Result(store, results.chosen_run(store, run))

    def sql(self, statement: str, parameters: Parameters | None = None) -> pl.DataFrame:
        """The result of one SELECT on all runs; `parameters` as in `Result.sql`."""
        _check_kinds(statement=statement)
        return query(self._store, statement, parameters)

    def compare(
        self,
        a: str = PREVIOUS,
        b: str = LATEST,
        *,
        by: str | None = None,
        metrics: Sequence[str] = (),
    ) -> Diff:
        """What changed from run `a` to run `b`, each named as for `result`.

        `by` names a metadata field whose samples form one unit; `metrics` are those to compare.

        Raises `InputError` where there is no such run.
        """
        if isinstance(metrics, str):
            metrics = [metrics]
        _check_kinds(a=a, b=b, by=by, metrics=metrics)
        store = self._store
        last = results.chosen_run(store, b)
        first = results.chosen_run(store, a, before=last)
        found = compare(store, first, last, by=by, metrics=metrics, place="metrics")
        return Diff(found)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


def connect(store: str | Path) -> StoredRuns:
    """The runs of a store: those of `evaluate`, of the command line and of the night.

    Raises `InputError` where there is no store at the path.
    """
    path = checked_path("store", store, "give the path of a DuckDB file").resolve()
    store_version(readable_store(path))
    return StoredRuns(path)
