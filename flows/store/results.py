"""Results of a run, read back: summaries, scores, verdicts, failures, calls."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError, nearest, one_of
from claimflow.flows.store import runs
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.runs import CURRENT_TAGS, PARTIAL, find_run, tags
from claimflow.flows.store.store import Store
from claimflow.stages.registry import CLAIM_METRICS, LOWER_IS_BETTER


def chosen_run(
    store: Store, word: str | None, *, before: str | None = None, pipeline: str | None = None
) -> str:
    """The run that `word` names, as in `find_run`; without a word the newest, whole or not.

    Raises `InputError` where there is no such run.
    """
    if word is None:
        found = runs.newest_run(store, pipeline=pipeline)
    else:
        # Every id begins with the empty text.
        found = find_run(store, word, before=before, pipeline=pipeline) if word else None
    if found is not None:
        return found
    known = [*tags(store)["tag"], *all_runs(store)["run_id"].head(5)]
    if word in (runs.LATEST, runs.PREVIOUS) and known:
        raise InputError([Fault(str(store.path), *_no_whole_run(store, word, before, pipeline))])
    what = "holds no run" if word is None else f"there is no run {word!r}"
    hint = "run a pipeline first" if word is None or not known else one_of(word, known)
    if pipeline:
        what += f" of {pipeline}"
    raise InputError([Fault(str(store.path), what, hint)])


def _no_whole_run(
    store: Store, word: str, before: str | None, pipeline: str | None
) -> tuple[str, str]:
    """Why no run is the latest, or the one before `before`, and what to do."""
    whole = all_runs(store).filter(pl.col("status") == "done", pl.col("partial").is_null())
    if pipeline:
        whole = whole.filter(pl.col("pipeline") == pipeline)
    of_pipeline = f" of {pipeline}" if pipeline else ""
    meaning = "done, with all samples and steps"
    if whole.is_empty():
        what = f"holds no whole run{of_pipeline} ({meaning}), so there is no {word} one"
        return what, "run the pipeline without options, or name a run, as `claimflow runs` lists it"
    if whole.height < 2:
        what = f"holds only one whole run{of_pipeline} ({meaning}), so there is no {word} one"
        return what, "run the pipeline again to compare two runs"
    run = before or find_run(store, runs.LATEST, pipeline=pipeline)
    what = f"no whole run of the same pipeline ({meaning}) is older than {run}"
    return what, "name the run to compare with, as `claimflow runs` lists it"


def run_choice_notes(
    store: Store, word: str | None, run_id: str, *, pipeline: str | None
) -> Iterator[str]:
    """What to say of the run that was chosen by `latest`, `previous` or no word: what it is not.

    A line where runs of other pipelines could have been meant, as no `pipeline` was named, and one
    where the newest run of its pipeline was passed over.
    """
    if word not in (None, runs.LATEST, runs.PREVIOUS):
        return
    known = all_runs(store).filter(~pl.col("pipeline").str.ends_with(runs.NOISE_SUFFIX))
    of = known.filter(pl.col("run_id") == run_id)["pipeline"].item()
    others = sorted(set(known["pipeline"]) - {of})
    if pipeline is None and others:
        yield f"run {run_id} is of {of}; for {' or '.join(others)} add --config PIPELINE"
    newest = known.filter(pl.col("pipeline") == of).row(0, named=True)
    if word == runs.LATEST and newest["run_id"] != run_id:
        why = f"partial: {newest['partial']}" if newest["partial"] else newest["status"]
        yield f"latest is run {run_id}; the newer run {newest['run_id']} is {why}"


def all_runs(store: Store) -> pl.DataFrame:
    """Every run, newest first: id, tags, pipeline, status, times, counts of steps, failures.

    `partial` says how much of its pipeline a partial run has, as in `3 of 40 samples`. A run whose
    process has ended is killed, also before the next run records that.
    """
    with store.reading() as connection:
        killed = runs.killed_runs(connection)
    status = pl.when(pl.col("run_id").is_in(killed)).then(pl.lit("killed")).otherwise("status")
    return _read(
        store,
        f"""
        SELECT run_id, tags, pipeline, status, {PARTIAL} AS partial, started_at, runs.ended_at,
               count(artifact_id) FILTER (NOT reused) AS made,
               count(artifact_id) FILTER (reused) AS reused,
               coalesce(sum(failures), 0)::BIGINT AS failures,
               reason
        FROM audit.runs
        LEFT JOIN (SELECT run_id, string_agg(tag, ', ' ORDER BY tag) AS tags
                   FROM ({CURRENT_TAGS}) GROUP BY run_id) USING (run_id)
        LEFT JOIN audit.run_steps USING (run_id)
        LEFT JOIN (SELECT artifact_id, failures FROM audit.artifacts) USING (artifact_id)
        GROUP BY ALL ORDER BY started_at DESC, run_id DESC
        """,
    ).with_columns(status=status)


def run_steps(store: Store, run_id: str) -> pl.DataFrame:
    """The steps of a run in order: stage, rows, failures, whether reused, seconds."""
    return _read(
        store,
        """
        SELECT step, stage, reused, row_count, failures, seconds, artifact_id
        FROM audit.run_steps
        JOIN (SELECT * EXCLUDE (run_id) FROM audit.artifacts) USING (artifact_id)
        WHERE run_id = $run ORDER BY position
        """,
        run=run_id,
    )


def sample_count(steps: pl.DataFrame) -> int:
    """The number of samples of a run, from its `run_steps`; 0 where no sample was read."""
    return int(steps.filter(pl.col("step") == "samples")["row_count"].sum())


def summaries(store: Store, run_id: str) -> pl.DataFrame:
    """The summaries of a run: over all samples first, then by slice."""
    return _read(
        store,
        """
        SELECT summaries.* EXCLUDE (run_id, step)
        FROM summaries
        JOIN audit.run_steps ON run_steps.run_id = summaries.run_id
             AND run_steps.step = summaries.scores
        WHERE summaries.run_id = $run
        ORDER BY slice_field NULLS FIRST, slice_value, position, metric
        """,
        run=run_id,
    )


class MetricKinds(NamedTuple):
    """Metrics made of verdicts on claims, and metrics that are best at 0, both sorted."""

    claims: list[str]
    lower: list[str]


def metric_kinds(connection: duckdb.DuckDBPyConnection, *run_ids: str) -> MetricKinds:
    """The kinds of the metrics of runs.

    Those of stages of other packages are in the store, which can be read without the packages.
    """
    rows = connection.execute(
        "SELECT plugin FROM audit.run_steps JOIN (SELECT artifact_id, plugin FROM audit.artifacts) "
        "USING (artifact_id) WHERE list_contains($runs, run_id) AND plugin IS NOT NULL",
        {"runs": list(run_ids)},
    ).fetchall()
    facts = [json.loads(plugin) for (plugin,) in rows]
    made = {metric for one in facts for metric in one["metrics"]}
    claims = {metric for one in facts if one["of_verdicts"] for metric in one["metrics"]}
    lower = {metric for one in facts for metric in one["lower_is_better"]}
    return MetricKinds(
        sorted(CLAIM_METRICS - made | claims), sorted(LOWER_IS_BETTER - made | lower)
    )


def sample_means(value: str) -> str:
    """A SELECT of sample_id, claim_mean and mean for the scores of the run `$run`.

    `claim_mean` is over the metrics in `$claims`, NULL where there are none, `mean` over all.
    `value` is the SQL of what counts of a row of `scores`; where lower is better, by `$lower`, a
    score s counts as 1 - s. `$claims` and `$lower` are those of `MetricKinds`.
    """
    # Sorted: the last digit of a sum depends on the order of its parts.
    return f"""
        SELECT sample_id,
               list_avg(list_sort(list(value) FILTER (list_contains($claims, metric))))
                   AS claim_mean,
               list_avg(list_sort(list(value))) AS mean
        FROM (SELECT sample_id, metric,
                     CASE WHEN list_contains($lower, metric) AND status = 'scored'
                          THEN 1 - score ELSE {value} END AS value
              FROM scores WHERE run_id = $run)
        WHERE value IS NOT NULL GROUP BY sample_id
        """


def lowest_samples(store: Store, run_id: str, count: int) -> pl.DataFrame:
    """The samples with the lowest mean over their claim metrics, then those that have none.

    Columns: sample_id, mean (over all scores of a sample without claim metrics), by_claims
    (whether it is over claim metrics), user_input, response. A score s of a metric where lower is
    better counts as 1 - s.
    """
    with store.reading() as connection:
        kinds = metric_kinds(connection, run_id)
    return _read(
        store,
        f"""
        -- The texts of these samples alone: those of all may be gigabytes.
        WITH lowest AS (
          SELECT sample_id, claim_mean, mean FROM ({sample_means("score")})
          ORDER BY claim_mean NULLS LAST, mean, sample_id LIMIT $count
        )
        SELECT sample_id, coalesce(claim_mean, mean) AS mean, claim_mean IS NOT NULL AS by_claims,
               user_input, response
        FROM lowest
        JOIN (SELECT sample_id, user_input, response FROM samples WHERE run_id = $run)
             USING (sample_id)
        ORDER BY claim_mean NULLS LAST, lowest.mean, sample_id
        """,
        run=run_id,
        count=count,
        **kinds._asdict(),
    )


def score_means(store: Store, run_id: str) -> pl.DataFrame:
    """The means of a run's metrics, as `summaries` gives them, but without intervals."""
    return _read(
        store,
        """
        SELECT step AS scores, metric, NULL::VARCHAR AS slice_field, NULL::VARCHAR AS slice_value,
               avg(score) AS mean, NULL::DOUBLE AS micro_mean,
               NULL::DOUBLE AS low, NULL::DOUBLE AS high,
               count(*) FILTER (status = 'scored') AS n_scored,
               count(*) FILTER (status = 'undefined') AS n_undefined,
               count(*) FILTER (status = 'failed') AS n_failed, count(*) AS n
        FROM scores JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run GROUP BY step, position, metric ORDER BY position, metric
        """,
        run=run_id,
    )


def claims_not_entailed(store: Store, run_id: str, samples: list[str]) -> pl.DataFrame:
    """What lowered the scores of `samples`, once for each such verdict.

    The contradicted claims, then the neutral ones, then the checks of rubrics below the best
    verdict. Columns: sample_id, step (that of the verdict), verdict, claim (or the check).
    """
    claims = _read(
        store,
        """
        SELECT c.sample_id, v.step, v.verdict, c.claim
        FROM claims c
        JOIN audit.run_steps cs ON cs.run_id = c.run_id AND cs.step = c.step
        JOIN verdicts v ON v.run_id = c.run_id AND v.claim_id = c.claim_id
        JOIN audit.run_steps vs ON vs.run_id = v.run_id AND vs.step = v.step
        JOIN (SELECT artifact_id, settings FROM audit.artifacts) made
             ON made.artifact_id = vs.artifact_id
        WHERE c.run_id = $run AND v.verdict IN ('contradicted', 'neutral')
              -- A claim that is not entailed without one of the passages that it cites is no fault.
              AND (v.passage IS NULL OR made.settings ->> '$.premises' IS DISTINCT FROM 'cited')
              AND c.sample_id IN (SELECT unnest($samples))
        ORDER BY v.verdict, cs.position, c.start, c.claim, vs.position, v.passage
        """,
        run=run_id,
        samples=samples,
    )
    checks = _read(
        store,
        """
        SELECT sample_id, step, verdict, coalesce(nullif(check_name, 'criterion') || ': ', '')
               || criterion AS claim
        FROM rubric_verdicts JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run AND score < 1 AND sample_id IN (SELECT unnest($samples))
        ORDER BY position, score, check_name, claim_id
        """,
        run=run_id,
        samples=samples,
    )
    return pl.concat([claims, checks])


def score_table(store: Store, run_id: str, step: str | None = None) -> pl.DataFrame:
    """The scores of a run, or of one of its steps, one row for each sample and metric.

    Raises `InputError` where the run has no such step of scores.
    """
    rows = _read(
        store,
        """
        SELECT run_id, step, sample_id, metric, score, status, reason, part, whole
        FROM scores JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run ORDER BY position, metric, sample_id
        """,
        run=run_id,
    )
    if step is None:
        return rows
    known = rows["step"].unique().to_list()
    if step not in known:
        what = f"run {run_id} has no step {step!r} of scores"
        raise InputError([Fault("--step", what, one_of(step, known))])
    return rows.filter(step=step)


def scores_of_samples(store: Store, run_id: str, samples: list[str]) -> pl.DataFrame:
    """The scores of `samples`, by sample and step: sample_id, step, metric, score and so on."""
    return _read(
        store,
        """
        SELECT sample_id, step, metric, score, status, reason
        FROM scores
        JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run AND sample_id IN (SELECT unnest($samples))
        ORDER BY sample_id, position, metric
        """,
        run=run_id,
        samples=samples,
    )


def chosen_sample(store: Store, run_id: str, start: str) -> str:
    """The sample id that is, or starts with, `start`; `InputError` where none or several do."""
    query = "SELECT sample_id FROM samples WHERE run_id = $run ORDER BY sample_id"
    ids = _read(store, query, run=run_id)["sample_id"]
    found = ids.filter(ids.str.starts_with(start)).to_list()
    if len(found) == 1 or start in found:
        return start if start in found else found[0]
    if found:
        what, hint = f"{start!r} begins {len(found)} sample ids", "write more of it"
    else:
        what = f"run {run_id} has no sample {start!r}"
        near = nearest(start, ids.head(1_000))
        hint = f"did you mean {near!r}?" if near else "see the samples table for its samples"
    raise InputError([Fault(str(store.path), what, hint)])


def failures(store: Store, run_id: str) -> pl.DataFrame:
    """The failed rows of a run, by step and kind: step, failure, failed (a count), reason, asked.

    `asked` says whether a model was asked for them; a score fails because rows it needs failed.
    """
    return _read(
        store,
        """
        SELECT step, failure, count(*) AS failed, min(reason) AS reason, asked
        FROM (SELECT run_id, step, failure, reason, true AS asked
              FROM claims WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, failure, reason, true FROM verdicts WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, failure, reason, true
              FROM rubric_verdicts WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, NULL, reason, true FROM similarities WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, NULL, reason, false FROM scores WHERE status = 'failed')
        JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run GROUP BY step, position, failure, asked
        ORDER BY position, failed DESC, failure
        """,
        run=run_id,
    )


def failed_rows(store: Store, run_id: str, step: str, count: int) -> pl.DataFrame:
    """The first failed rows of a step, by sample: sample_id, failure, reason.

    `failure` is NULL for scores and similarities.
    """
    return _read(
        store,
        """
        SELECT sample_id, failure, reason
        FROM (SELECT run_id, step, sample_id, status, failure, reason FROM claims
              UNION ALL
              SELECT run_id, v.step, sample_id, v.status, v.failure, v.reason
              FROM verdicts v JOIN (SELECT DISTINCT run_id, claim_id, sample_id FROM claims)
                   USING (run_id, claim_id)
              UNION ALL
              SELECT run_id, step, sample_id, status, failure, reason FROM rubric_verdicts
              UNION ALL
              SELECT run_id, step, sample_id, status, NULL, reason FROM similarities
              UNION ALL
              SELECT run_id, step, sample_id, status, NULL, reason FROM scores)
        WHERE run_id = $run AND step = $step AND status = 'failed'
        ORDER BY sample_id, failure, reason LIMIT $count
        """,
        run=run_id,
        step=step,
        count=count,
    )


def calls_made(store: Store, run_id: str) -> pl.DataFrame:
    """The calls that a run made, by judge: judge, model, calls, repaired, tokens, cost.

    `cached` counts the tokens of prompts that came from the provider's cache, `priced` the calls
    whose cost is known.
    """
    return _read(
        store,
        """
        SELECT judge, model, count(*) AS calls,
               count(*) FILTER (outcome = 'repaired') AS repaired,
               (sum(prompt_tokens) + sum(coalesce(completion_tokens, 0)))::BIGINT AS tokens,
               coalesce(sum(cached_tokens), 0)::BIGINT AS cached,
               sum(cost)::DOUBLE AS cost, count(cost) AS priced
        FROM audit.calls WHERE run_id = $run GROUP BY judge, model
        ORDER BY min(asked_at), judge, model
        """,
        run=run_id,
    )


def calls_of_runs(store: Store) -> pl.DataFrame:
    """For each run that made calls: their number, cost in USD, and those without a known cost.

    `unpriced` is NULL where all costs are known, `cost` where none is.
    """
    return _read(
        store,
        """
        SELECT run_id, count(*) AS calls, sum(cost)::DOUBLE AS cost,
               nullif(count(*) - count(cost), 0) AS unpriced
        FROM audit.calls GROUP BY run_id
        """,
    )


def calls_of_step(store: Store, run_id: str, step: str) -> tuple[int, int, float | None]:
    """For a step of a run: its calls, its calls with a known cost, and their cost in USD.

    A call that several steps share counts for each of them.
    """
    query = """
        SELECT count(*) AS calls, count(cost) AS priced, sum(cost)::DOUBLE AS cost
        FROM audit.calls
        WHERE run_id = $run AND list_contains(string_split(step, ', '), $step)
        """
    calls, priced, cost = _read(store, query, run=run_id, step=step).row(0)
    return calls, priced, cost


def votes(store: Store, run_id: str) -> tuple[int, int]:
    """For a run: the number of verdicts whose votes differ, and of all verdicts with votes."""
    found = _read(
        store,
        """
        SELECT count(*) FILTER (agreement < 1) AS unstable, count(agreement) AS voted
        FROM (SELECT run_id, agreement FROM verdicts
              UNION ALL SELECT run_id, agreement FROM rubric_verdicts)
        WHERE run_id = $run
        """,
        run=run_id,
    )
    unstable, voted = found.row(0)
    return unstable, voted


def ambiguous_claims(store: Store, run_id: str) -> tuple[int, int]:
    """For a run: the number of claims that leave something open, and of all claims."""
    found = _read(
        store,
        """
        SELECT count(ambiguous) AS ambiguous, count(*) AS made
        FROM claims WHERE run_id = $run AND status = 'made'
        """,
        run=run_id,
    )
    ambiguous, made = found.row(0)
    return ambiguous, made


def _read(store: Store, query: str, **values: Any) -> pl.DataFrame:
    with store.reading() as connection:
        return read_table(connection, query, **values)
