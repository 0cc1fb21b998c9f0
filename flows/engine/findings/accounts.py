"""What failed in a run, and what its calls were: read back from the store for people to look at."""

import polars as pl

from claimflow.flows.engine.storage.store import Store, read_table


def failures(store: Store, run_id: str) -> pl.DataFrame:
    """The failed rows of a run by step and kind: step, failure, failed, reason (one of theirs)."""
    return _read(
        store,
        """
        SELECT step, failure, count(*) AS failed, min(reason) AS reason
        FROM (SELECT run_id, step, failure, reason FROM claims WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, failure, reason FROM verdicts WHERE status = 'failed'
              UNION ALL
              SELECT run_id, step, NULL, reason FROM similarities WHERE status = 'failed')
        JOIN audit.run_steps USING (run_id, step)
        WHERE run_id = $run GROUP BY step, position, failure ORDER BY position, failed DESC, failure
        """,
        run=run_id,
    )


def failed_rows(store: Store, run_id: str, step: str, count: int) -> pl.DataFrame:
    """The first failed rows of a step, by sample: sample_id, failure, reason.

    Scores and similarities have no kind of failure.
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

    `priced` counts the calls whose cost is known.
    """
    return _read(
        store,
        """
        SELECT judge, model, count(*) AS calls,
               count(*) FILTER (outcome = 'repaired') AS repaired,
               (sum(prompt_tokens) + sum(coalesce(completion_tokens, 0)))::BIGINT AS tokens,
               sum(cost)::DOUBLE AS cost, count(cost) AS priced
        FROM audit.calls WHERE run_id = $run GROUP BY judge, model
        ORDER BY min(asked_at), judge, model
        """,
        run=run_id,
    )


def calls_of_step(store: Store, run_id: str, step: str) -> tuple[int, int, float | None]:
    """The calls that a step of a run made, those of known cost, and what these cost in USD."""
    query = """
        SELECT count(*) AS calls, count(cost) AS priced, sum(cost)::DOUBLE AS cost
        FROM audit.calls WHERE run_id = $run AND step = $step
        """
    calls, priced, cost = _read(store, query, run=run_id, step=step).row(0)
    return calls, priced, cost


def votes(store: Store, run_id: str) -> tuple[int, int]:
    """Of the claims of a run that several votes were asked on: those whose votes differ, and all.

    A claim that was held against several premises counts for each.
    """
    found = _read(
        store,
        """
        SELECT count(*) FILTER (agreement < 1) AS unstable, count(agreement) AS voted
        FROM verdicts WHERE run_id = $run
        """,
        run=run_id,
    )
    unstable, voted = found.row(0)
    return unstable, voted


def calls_of(store: Store, run_id: str, sample_id: str) -> pl.DataFrame:
    """The calls that gave the claims and verdicts of a sample, those of other runs too."""
    return _read(
        store,
        """
        SELECT call_id::VARCHAR AS call_id, calls.step, calls.model, outcome, system, prompt,
               reply, error, (prompt_tokens + completion_tokens)::BIGINT AS tokens,
               cost::DOUBLE AS cost
        FROM audit.calls
        SEMI JOIN (
            SELECT call_id FROM claims WHERE run_id = $run AND sample_id = $sample
            UNION ALL
            SELECT v.call_id FROM verdicts v JOIN claims c USING (run_id, claim_id)
            WHERE v.run_id = $run AND c.sample_id = $sample
        ) USING (call_id)
        ORDER BY asked_at, call_id
        """,
        run=run_id,
        sample=sample_id,
    )


def _read(store: Store, query: str, **values: str | int) -> pl.DataFrame:
    with store.reading() as connection:
        return read_table(connection, query, **values)
