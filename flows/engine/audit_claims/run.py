"""The claims of a run, step by step: how many have what is wrong, and which ones."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import duckdb

from claimflow.flows.engine.audit_claims.looking import Written, look
from claimflow.flows.engine.audit_claims.tally import StepAudit, Tally
from claimflow.flows.engine.storage.row_sql import REPEATED_CLAIMS
from claimflow.flows.engine.storage.store import Store

_TOGETHER: Final = 1_000
"""Samples that are in memory at a time."""


class ClaimAudit(NamedTuple):
    """The claims of a run, of `samples` of `every` sample that it has."""

    run_id: str
    samples: int
    every: int
    steps: list[StepAudit]


class _Text(NamedTuple):
    """One side of a sample with the claims of a step; `failed` where these could not be had."""

    sample_id: str
    text: str | None
    claims: list[Written]
    failed: bool


def audit_claims(
    store: Store, run_id: str, *, examples: int, samples: int | None = None
) -> ClaimAudit:
    """Look at the claims of a run on record, of all samples or of so many, drawn by a hash.

    At most `examples` of each check and step are kept: those with the most words against them,
    else the first by sample id. The store is free between a thousand samples and the next.
    """
    with store.reading() as connection:
        steps = connection.execute(_STEPS, {"run": run_id}).fetchall()
        ids = [name for (name,) in connection.execute(_IDS, {"run": run_id}).fetchall()]
    chosen = sorted(ids[:samples])
    tallies = [Tally(step, side, examples=examples) for step, side in steps if side]
    for first in range(0, len(chosen), _TOGETHER):
        with store.reading() as connection:
            some = _Some(connection, run_id, chosen[first : first + _TOGETHER])
        for tally in tallies:
            for one in some.texts(tally):
                if one.failed:
                    tally.add_failed()
                else:
                    looked = look(one.text, one.claims)
                    tally.add(one.sample_id, looked, claims=len(one.claims))
    return ClaimAudit(run_id, len(chosen), len(ids), [tally.audit() for tally in tallies])


class _Some:
    """Some samples, and their claims by step."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: str, ids: list[str]) -> None:
        values = {"run": run_id, "ids": ids}
        self._samples = connection.execute(_SAMPLES, values).fetchall()
        self._claims: dict[tuple[str, str], list[Written]] = {}
        self._failed: set[tuple[str, str]] = set()
        rows = connection.execute(_CLAIMS, values).fetchall()
        for step, sample_id, claim, placed, repeats in rows:
            if claim is None:
                self._failed.add((step, sample_id))
            else:
                written = Written(claim, placed, repeats)
                self._claims.setdefault((step, sample_id), []).append(written)

    def texts(self, of: Tally) -> Iterator[_Text]:
        """What a step was to decompose, by sample id: texts, and claims that came without one."""
        for sample_id, response, reference in self._samples:
            text = response if of.side == "response" else reference
            key = (of.step, sample_id)
            claims, failed = self._claims.get(key, []), key in self._failed
            if claims or failed or (text and text.strip()):
                yield _Text(sample_id, text, claims, failed)


_STEPS: Final = """
SELECT step, coalesce(settings ->> '$.of', (SELECT any_value("of") FROM claims
       WHERE claims.run_id = run_steps.run_id AND claims.step = run_steps.step))
FROM audit.run_steps
JOIN (SELECT artifact_id, kind, settings FROM audit.artifacts) USING (artifact_id)
WHERE run_id = $run AND kind = 'claims' ORDER BY position
"""

_IDS: Final = "SELECT sample_id FROM samples WHERE run_id = $run ORDER BY md5(sample_id), sample_id"

_SAMPLES: Final = """
SELECT sample_id, response, reference FROM samples
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids)) ORDER BY sample_id
"""

_CLAIMS: Final = f"""
SELECT step, sample_id, claims.claim, start IS NOT NULL, repeats
FROM claims LEFT JOIN (
    SELECT step, claim_id, repeats FROM ({REPEATED_CLAIMS})
    WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))) USING (step, claim_id)
WHERE run_id = $run AND sample_id IN (SELECT unnest($ids))
ORDER BY sample_id, start, claims.claim
"""
