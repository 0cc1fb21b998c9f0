"""What earlier runs learnt of an endpoint."""

from typing import NamedTuple

from claimflow.flows.engine.endpoints import Judge
from claimflow.flows.engine.llm.rungs import Rung
from claimflow.flows.engine.storage.store import Store, read_table


class OpenReply(NamedTuple):
    """A reply that was wrong, of a run that ended before the model had been shown it."""

    call_id: str
    text: str
    cut_off: bool


class Past(NamedTuple):
    """The rung that worked last, if any did, and the open replies by the hash of their request."""

    rung: Rung | None
    open: dict[str, OpenReply]


def recall_past(store: Store, judge: Judge) -> Past:
    """What is on file of the judge's model behind its endpoint."""
    if not store.path.is_file():
        return Past(None, {})
    condition = "model = $model AND api_base IS NOT DISTINCT FROM $api_base"
    values = {"model": judge.model, "api_base": judge.api_base}
    with store.reading() as connection:
        rung = connection.execute(
            f"SELECT arg_max(rung, asked_at) FROM audit.calls WHERE {condition} "
            "AND outcome IN ('ok', 'repaired')",
            values,
        ).fetchall()[0][0]
        found = read_table(
            connection,
            "SELECT request, call_id, reply, coalesce(finish_reason = 'length', false) AS cut "
            f"FROM audit.calls WHERE {condition} AND open ORDER BY asked_at",
            **values,
        )
    return Past(rung, {request: OpenReply(*rest) for request, *rest in found.iter_rows()})
