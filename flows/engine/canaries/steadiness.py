"""Whether a judge stays as it was, for a gate."""

from typing import Literal, NamedTuple

import duckdb

from claimflow.flows.engine.canaries.account import canaries_in


class Steadiness(NamedTuple):
    """The rest of an outcome of a gate: `value` is the agreement with the labels now, `line` that
    in the run `baseline`, on the canaries judged in both.
    """

    baseline: str | None
    value: float | None
    low: float | None
    high: float | None
    line: float
    outcome: Literal["pass", "fail", "inconclusive"]
    reason: str


def steadiness(connection: duckdb.DuckDBPyConnection, run_id: str, step: str) -> Steadiness:
    """Fails where the judge of a step, or the only judge, has moved by more than chance."""
    found = [one for one in canaries_in(connection, run_id) if step in ("", *one.steps)]
    if not found or found[0].moved is None:
        reason = "no judge said anything of the canaries before"
        return Steadiness(None, None, None, None, 0.0, "inconclusive", reason)
    one, moved = found[0], found[0].moved
    reason = f"{moved.both:,} of {one.canaries:,} canaries judged in both"
    if one.drifts:
        reason = f"more than chance; {reason}"
    now, before = moved.are_right / moved.both, moved.were_right / moved.both
    outcome: Literal["pass", "fail"] = "fail" if one.drifts else "pass"
    return Steadiness(one.since, now, None, None, before, outcome, reason)
