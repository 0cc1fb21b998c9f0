"""The samples of a report: which ones are shown, and the rows that led to their scores."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import duckdb
import polars as pl

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.comparison import Comparison
from claimflow.flows.report.formatting import escape_controls
from claimflow.flows.store.arrow import read_table
from claimflow.flows.store.results import metric_kinds, sample_means
from claimflow.flows.store.store import Store

_BATCH: Final = 100
"""Samples in memory at a time."""


def ranked_samples(
    store: Store, run_id: str, count: int, *, before: Sequence[str] = ()
) -> pl.DataFrame:
    """Up to `count` samples of a run: sample_id, mean.

    The samples in `before` come first, in their order, then the others by the mean of their claim
    metrics, the lowest first, then those without any by the mean of their scores. A metric for
    which lower is better counts as 1 - score, a failed score as 0, and a sample without scores
    comes last.
    """
    with store.reading() as connection:
        return read_table(
            connection,
            f"""
            SELECT sample_id, coalesce(claim_mean, mean) AS mean
            FROM (SELECT sample_id FROM samples WHERE run_id = $run)
            LEFT JOIN ({sample_means("if(status = 'failed', 0, score)")}) USING (sample_id)
            LEFT JOIN (SELECT unnest($before::VARCHAR[]) AS sample_id,
                              generate_subscripts($before::VARCHAR[], 1) AS place)
                      USING (sample_id)
            ORDER BY place NULLS LAST, claim_mean NULLS LAST, mean NULLS LAST, sample_id
            LIMIT $count
            """,
            run=run_id,
            count=count,
            before=list(before),
            **metric_kinds(connection, run_id)._asdict(),
        )


def changed_samples(comparison: Comparison) -> list[str]:
    """The samples of run b that changed, those with most flipped verdicts first.

    Among equals, the one with the largest change of a score comes first.
    """
    flips = comparison.claims.group_by("sample_id").agg(
        flips=(pl.col("change") == "verdict flipped").sum()
    )
    moves = comparison.scores.group_by("sample_id").agg(move=pl.col("difference").abs().max())
    others = comparison.samples.filter(pl.col("state") != "removed").select("sample_id")
    every = pl.concat([flips.select("sample_id"), moves.select("sample_id"), others]).unique()
    return (
        every.join(flips, on="sample_id", how="left")
        .join(moves, on="sample_id", how="left")
        .sort(
            pl.col("flips").fill_null(0),
            pl.col("move").fill_null(0.0),
            "sample_id",
            descending=[True, True, False],
        )["sample_id"]
        .to_list()
    )


def listed_samples(
    store: Store, run_id: str, ranked: Sequence[tuple[str, float | None]]
) -> Iterator[dict[str, Any]]:
    """A short row for each of the `ranked` samples and their means, for a list of thousands.

    `asked` is the beginning of the question or, without one, of the response, `answer` that of the
    response; `counts` are verdicts by label, and failed rows; `scores` are name, status and score;
    `failures` are kinds.
    """
    with store.reading() as connection:

        def rows(query: str) -> dict[str, list[tuple[Any, ...]]]:
            return read_table(connection, query, run=run_id).rows_by_key("sample_id")

        texts, counts = rows(_LIST_TEXTS), rows(_LIST_COUNTS)
        scores, failures = rows(_LIST_SCORES), rows(_LIST_FAILURES)
    for name, mean in ranked:
        ((asked, answer, metadata),) = texts[name]
        found = scores.get(name, [])
        metrics = Counter(metric for _, metric, *_ in found)
        yield {
            "id": name,
            "asked": asked,
            "answer": answer,
            "mean": mean,
            "metadata": _metadata(metadata),
            "counts": {"entailed": 0, "contradicted": 0, "neutral": 0, "failed": 0}
            | dict(counts.get(name, [])),
            "scores": [
                (metric if metrics[metric] == 1 else f"{step}.{metric}", status, score)
                for step, metric, status, score in found
            ],
            "failures": [kind for (kind,) in failures.get(name, [])],
        }


def _metadata(text: str) -> Any:
    """The metadata of a sample, where integers that no browser can hold are texts."""
    return json.loads(text, parse_int=lambda digits: _exact(int(digits)))


def _exact(value: int) -> int | str:
    return value if abs(value) < 2**53 else str(value)


def matching_sample(store: Store, run_id: str, name: str) -> str | None:
    """The sample of a run with that id, or whose id with control characters replaced is `name`.

    Raises `InputError` where several ids are the same with their control characters replaced.
    """
    with store.reading() as connection:
        exact = read_table(connection, f"{_IDS} AND sample_id = $name", run=run_id, name=name)
        if exact.height and name.isprintable() and not _REPLACED.search(name):
            return name
        ids = read_table(connection, _IDS, run=run_id)["sample_id"]
    found = [one for one in ids if escape_controls(one) == escape_controls(name)]
    if len(found) > 1:
        what = f"{len(found)} samples have this id but for control characters, which pages replace"
        hint = "claimflow explain shows each of them"
        raise InputError([Fault(f"sample {escape_controls(name)}", what, hint)])
    return found[0] if found else None


_REPLACED: Final = re.compile("[\ufffd\u2400-\u243f]")
"""What stands in pages for a character that is replaced."""


def searched_samples(store: Store, run_id: str, text: str) -> list[str]:
    """The samples of a run whose id, texts, metadata or claims contain `text`, in any case."""
    with store.reading() as connection:
        found = read_table(connection, _SEARCH, run=run_id, text=text.lower())
    return found["sample_id"].to_list()


def traced_samples(
    store: Store, run_id: str, sample_ids: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Samples of a run, each with the rows that led to its scores, in the given order.

    To the fields of a sample come `claims`, each with its `verdicts` and what it `cites` (in words,
    None for nothing), `non_claims` (the sentences that claim nothing), `checks` (the verdicts of
    rubrics), `scores`, `sentences` (the lexical
    matches) and `calls` (the model calls that returned the claims, verdicts and votes), by column
    names. The `premises` of a verdict are the setting of its step: with cited its `passage` was
    left out. Positions count code points of the text that
    they are in. Unknown ids are left out. The samples are read in batches, and the store is not
    locked between two batches.
    """
    for first in range(0, len(sample_ids), _BATCH):
        batch = sample_ids[first : first + _BATCH]
        with store.reading() as connection:
            found = _read_batch(connection, run_id, batch)
        yield from (found[name] for name in batch if name in found)


def _read_batch(
    connection: duckdb.DuckDBPyConnection, run_id: str, batch: Sequence[str]
) -> dict[str, dict[str, Any]]:
    def rows(query: str, by: str = "sample_id") -> dict[str, list[dict[str, Any]]]:
        table = read_table(connection, query, run=run_id, ids=list(batch))
        return table.rows_by_key(by, named=True)

    claims, scores, sentences = rows(_CLAIMS), rows(_SCORES), rows(_SENTENCES)
    non_claims = rows(_NON_CLAIMS)
    citations = rows(_CITATIONS, "claim_id")
    verdicts, checks, calls = rows(_VERDICTS, "claim_id"), rows(_CHECKS), rows(_CALLS)
    for verdict in (one for table in (verdicts, checks) for some in table.values() for one in some):
        verdict["ballot"] = json.loads(verdict["ballot"] or "[]")
    for claim in (claim for of_sample in claims.values() for claim in of_sample):
        claim_id = claim.pop("claim_id")
        claim["verdicts"] = verdicts.get(claim_id, [])
        claim["cites"] = _citations_text(citations.get(claim_id, []), claim["verdicts"])
    for score in (score for of_sample in scores.values() for score in of_sample):
        score["details"] = json.loads(score["details"])
    return {
        name: {
            **row,
            "metadata": _metadata(row["metadata"]),
            "sample_id": name,
            "claims": claims.get(name, []),
            "non_claims": non_claims.get(name, []),
            "checks": checks.get(name, []),
            "scores": scores.get(name, []),
            "sentences": sentences.get(name, []),
            "calls": calls.get(name, []),
        }
        for name, (row,) in rows(_SAMPLES).items()
    }


_MISATTRIBUTED: Final = "; misattributed: "


def is_misattributed(claim: dict[str, Any]) -> bool:
    """Whether what a traced claim cites does not entail it and another context does."""
    # No marker has a blank behind a semicolon.
    return _MISATTRIBUTED in (claim["cites"] or "")


def _citations_text(
    citations: Sequence[dict[str, Any]], verdicts: Sequence[dict[str, Any]]
) -> str | None:
    """The contexts that a claim cites, and those that entail it where the cited ones do not."""
    if not citations:
        return None
    marks = [
        f"{'no context' if passage is None else f'context [{passage}]'} (marker {marker})"
        for passage, marker in map(itemgetter("passage", "marker"), citations)
    ]
    text = f"cites {', '.join(marks)}"
    together = {
        row["verdict"]
        for row in verdicts
        if row["premises"] == "cited" and row["passage"] is None and row["status"] == "judged"
    }
    entailing = {
        row["passage"]
        for row in verdicts
        if row["premises"] == "each" and row["verdict"] == "entailed"
    }
    others = sorted(entailing - {row["passage"] for row in citations})
    if together and "entailed" not in together and others:
        found = " and ".join(f"context [{passage}]" for passage in others)
        verb = "entails" if len(others) == 1 else "entail"
        text += f"{_MISATTRIBUTED}{found} {verb} it instead"
    return text


_LIST_TEXTS: Final = """
SELECT sample_id, left(coalesce(user_input, response, ''), 160) AS asked,
       left(coalesce(response, ''), 160) AS answer, metadata
FROM samples WHERE run_id = $run
"""

# Of cited passages those on all of them count, and those without one are for the precision of
# citations alone.
_LIST_COUNTS: Final = """
WITH of_claims AS (SELECT sample_id, claim_id, status FROM claims
                   WHERE run_id = $run AND status <> 'not_a_claim'),
cited AS (SELECT step FROM audit.run_steps JOIN (SELECT artifact_id, settings FROM audit.artifacts)
            USING (artifact_id)
          WHERE run_id = $run AND settings ->> '$.premises' = 'cited'),
of_all AS (SELECT claim_id, if(status = 'failed', 'failed', verdict) AS what FROM verdicts
           WHERE run_id = $run AND (passage IS NULL OR step NOT IN (FROM cited))),
found AS (
  SELECT sample_id, what FROM of_claims JOIN of_all USING (claim_id) WHERE what IS NOT NULL
  UNION ALL SELECT sample_id, 'failed' FROM of_claims WHERE status = 'failed'
)
SELECT sample_id, what, count(*) FROM found GROUP BY sample_id, what
"""

_LIST_SCORES: Final = """
SELECT sample_id, step, metric, status, score
FROM scores JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run ORDER BY run_steps.position, metric
"""

_LIST_FAILURES: Final = """
SELECT DISTINCT sample_id, failure FROM (
  SELECT sample_id, failure FROM claims WHERE run_id = $run
  UNION ALL
  SELECT sample_id, verdicts.failure FROM verdicts
    JOIN (SELECT sample_id, claim_id FROM claims WHERE run_id = $run) USING (claim_id)
    WHERE run_id = $run
  UNION ALL SELECT sample_id, failure FROM rubric_verdicts WHERE run_id = $run
) WHERE failure IS NOT NULL ORDER BY ALL
"""

_IDS: Final = "SELECT sample_id FROM samples WHERE run_id = $run"

_SEARCH: Final = """
SELECT DISTINCT sample_id FROM (
  SELECT sample_id, unnest([sample_id, user_input, response, reference]
                           || coalesce(retrieved_contexts, [])
                           || coalesce(json_extract_string(metadata, '$.*'), [])) AS text
  FROM samples WHERE run_id = $run
  UNION ALL SELECT sample_id, claim FROM claims WHERE run_id = $run AND status <> 'not_a_claim'
) WHERE contains(lower(text), $text)
"""

_SAMPLES: Final = """
SELECT sample_id, user_input, response, reference, other_references, retrieved_contexts, metadata
FROM samples WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
"""

_CLAIMS: Final = """
SELECT sample_id, claim_id::VARCHAR AS claim_id, step, of, claim, start, stop AS "end", status,
       ambiguous, failure, reason, call_id::VARCHAR AS call_id
FROM claims JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run AND status <> 'not_a_claim' AND sample_id IN (SELECT unnest($ids))
ORDER BY position, start, claim, claim_id
"""

_NON_CLAIMS: Final = """
SELECT sample_id, step, of, kind, text, start, stop AS "end"
FROM non_claims JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)) ORDER BY position, start
"""

_VERDICTS: Final = """
SELECT claim_id::VARCHAR AS claim_id, step, settings ->> '$.premises' AS premises, against,
       passage, verdict, status, failure, reason,
       p_entailed, p_contradicted, p_neutral, evidence, evidence_passage, evidence_start,
       evidence_end, agreement, ballot, judged_by, model_verdict, call_id::VARCHAR AS call_id
FROM verdicts JOIN audit.run_steps USING (run_id, step)
JOIN (SELECT artifact_id, settings FROM audit.artifacts) USING (artifact_id)
WHERE run_id = $run AND claim_id IN (
    SELECT claim_id FROM claims WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)))
ORDER BY position, against, passage NULLS FIRST
"""

_CITATIONS: Final = """
SELECT DISTINCT claim_id::VARCHAR AS claim_id, marker, passage, start
FROM citations WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
ORDER BY start, passage, marker
"""

_CHECKS: Final = """
SELECT rubric_verdicts.sample_id, rubric_verdicts.step, check_name, criterion, claim,
       verdict, score, rubric_verdicts.status, rubric_verdicts.failure, rubric_verdicts.reason,
       agreement, ballot, rubric_verdicts.call_id::VARCHAR AS call_id
FROM rubric_verdicts JOIN audit.run_steps USING (run_id, step)
LEFT JOIN (SELECT claim_id, any_value(claim) AS claim, min(start) AS start FROM claims
           WHERE run_id = $run GROUP BY claim_id) USING (claim_id)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
ORDER BY position, start NULLS LAST, claim, check_name
"""

_SCORES: Final = """
SELECT sample_id, step, metric, score, status, reason, details
FROM scores JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)) ORDER BY run_steps.position, metric
"""

_SENTENCES: Final = """
SELECT sample_id, step, against, source, sentence_matches.position, start, stop AS "end",
       rouge_l_precision, rouge_l_f1, token_overlap_precision, token_overlap_f1, bleu, chrf
FROM sentence_matches JOIN audit.run_steps USING (run_id, step)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
ORDER BY run_steps.position, source, sentence_matches.position
"""

_CALLS: Final = """
WITH named AS (
    SELECT sample_id, call_id FROM claims
    WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
    UNION
    SELECT sample_id, unnest(list_append((ballot ->> '$[*].call_id')::UUID[], verdicts.call_id))
    FROM claims JOIN verdicts USING (run_id, claim_id)
    WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
    UNION
    SELECT sample_id, unnest(list_append((ballot ->> '$[*].call_id')::UUID[], call_id))
    FROM rubric_verdicts WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)))
SELECT sample_id, call_id::VARCHAR AS call_id, step, model, outcome, system, prompt, reply, error,
       prompt_tokens, completion_tokens, cost::DOUBLE AS cost, seconds
FROM audit.calls JOIN named USING (call_id) ORDER BY asked_at, call_id
"""
