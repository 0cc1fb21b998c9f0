"""A run as a whole: what it found, what it took, and how it stands among those before it."""

from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.engine.audit_claims.run import ClaimAudit, audit_claims
from claimflow.flows.engine.findings import accounts, results
from claimflow.flows.engine.findings.cascades import CascadeAccount, cascades_of
from claimflow.flows.engine.findings.gates import Outcome, outcomes_of
from claimflow.flows.engine.report.head import RunHead, run_head
from claimflow.flows.engine.report.metrics import StepMetric
from claimflow.flows.engine.report.past import PastMean, past_means
from claimflow.flows.engine.storage.store import Store

SAMPLES: Final = 1_000
"""How many samples a report has where nobody says otherwise."""

_AUDITED: Final = 500
"""Samples whose claims are looked at: two seconds of work."""


class Overview(NamedTuple):
    """All that is said of a run as a whole, and what `past_means` has of those before it.

    `steps`, `summaries`, `failures` and `calls` are tables as `results.run_steps`,
    `results.summaries`, `accounts.failures` and `accounts.calls_made` give them, `votes` two
    numbers as `accounts.votes` does.
    """

    head: RunHead
    steps: pl.DataFrame
    summaries: pl.DataFrame
    gates: list[Outcome]
    failures: pl.DataFrame
    votes: tuple[int, int]
    cascades: list[CascadeAccount]
    calls: pl.DataFrame
    past: dict[StepMetric, list[PastMean]]
    claims: ClaimAudit


def overview(store: Store, run_id: str) -> Overview:
    """What a report says of a run as a whole; the run is one on record."""
    return Overview(
        run_head(store, run_id),
        results.run_steps(store, run_id),
        results.summaries(store, run_id),
        outcomes_of(store, run_id),
        accounts.failures(store, run_id),
        accounts.votes(store, run_id),
        cascades_of(store, run_id),
        accounts.calls_made(store, run_id),
        past_means(store, run_id),
        audited_claims(store, run_id),
    )


def audited_claims(store: Store, run_id: str) -> ClaimAudit:
    """What is wrong with the claims of up to 500 samples, with three examples of each."""
    return audit_claims(store, run_id, examples=3, samples=_AUDITED)
