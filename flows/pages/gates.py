"""The outcomes of gates in words."""

from collections.abc import Sequence

from claimflow.flows.engine.findings.gates import Outcome, Verdict
from claimflow.flows.pages.words import number, signed

GATES = ("gate", "value", "95 % interval", "outcome", "because")
"""The columns of the table of gates."""


def gate_cells(one: Outcome) -> tuple[str, ...]:
    """A row of the table of gates."""
    digits = signed if "no worse" in one.rule else number
    interval = "-" if one.low is None else f"{digits(one.low)} to {digits(one.high)}"
    return f"{one.metric}: {one.rule}", digits(one.value), interval, one.outcome, one.reason


def gate_line(outcomes: Sequence[Outcome], outcome: Verdict) -> str | None:
    """The first gate of that outcome in one line, and how many more there are; or None."""
    those = [one for one in outcomes if one.outcome == outcome]
    if not those:
        return None
    gate, value, interval, _, reason = gate_cells(those[0])
    more = f"; and {len(those) - 1} more" if len(those) > 1 else ""
    what = "failed" if outcome == "fail" else outcome
    return f"gate {what}: {gate}: {value} ({interval}), {reason}{more}"
