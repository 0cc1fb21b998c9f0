"""What of a run was sent to a server: sendings that began, and the evaluations that it took."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from claimflow.flows.store.store import Store, now


class Sending(NamedTuple):
    """Scores of a run that are to be sent to a target; of all metrics where it names none."""

    run_id: str
    target: str
    metrics: tuple[str, ...]


def begin_sending(store: Store, sending: Sending) -> None:
    """Record that a sending began: until it ends, later ones to this target take it up."""
    with store.writing() as connection:
        connection.execute(
            "DELETE FROM audit.sendings WHERE run_id = $run AND target = $target",
            {"run": sending.run_id, "target": sending.target},
        )
        connection.execute(
            "INSERT INTO audit.sendings VALUES ($run, $target, $metrics, $now, NULL)",
            {
                "run": sending.run_id,
                "target": sending.target,
                "metrics": list(sending.metrics),
                "now": now(),
            },
        )


def end_sending(store: Store, sending: Sending) -> None:
    """Record that the server has answered for everything of a sending."""
    with store.writing() as connection:
        connection.execute(
            "UPDATE audit.sendings SET ended_at = $now WHERE run_id = $run AND target = $target",
            {"run": sending.run_id, "target": sending.target, "now": now()},
        )


def has_ended(store: Store, run_id: str, target: str) -> bool:
    """Whether the newest sending of a run to a target ended."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT ended_at FROM audit.sendings "
            "WHERE run_id = $run AND target = $target AND ended_at IS NOT NULL",
            {"run": run_id, "target": target},
        ).fetchall()
    return bool(rows)


def unfinished_sendings(
    store: Store, pipeline: str, target: str, before: str | None = None
) -> list[Sending]:
    """The sendings to a target that have not ended, of the runs of a pipeline, the oldest first.

    With `before` only those of runs that are older than this one.
    """
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT run_id, target, metrics FROM audit.sendings JOIN audit.runs USING (run_id) "
            "WHERE target = $target AND sendings.ended_at IS NULL AND pipeline = $pipeline "
            "AND ($before IS NULL OR EXISTS (FROM audit.runs AS newer WHERE newer.run_id = $before "
            "AND (runs.started_at, runs.run_id) < (newer.started_at, newer.run_id))) "
            "ORDER BY started_at, run_id",
            {"pipeline": pipeline, "target": target, "before": before},
        ).fetchall()
    return [Sending(run, name, tuple(metrics)) for run, name, metrics in rows]


def pipeline_of(store: Store, run_id: str) -> str:
    """The pipeline of a run."""
    with store.reading() as connection:
        ((pipeline,),) = connection.execute(
            "SELECT pipeline FROM audit.runs WHERE run_id = $run", {"run": run_id}
        ).fetchall()
    return str(pipeline)


def sent_before(store: Store, address: str, ids: Sequence[str]) -> set[str]:
    """Those of the ids that the server at this address, given as its hash, has taken."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT DISTINCT evaluation_id::VARCHAR FROM audit.sent "
            "WHERE address = $address::UUID AND evaluation_id IN (SELECT unnest($ids::UUID[]))",
            {"address": address, "ids": list(ids)},
        ).fetchall()
    return {found for (found,) in rows}


def record_sent(store: Store, sending: Sending, address: str, ids: Iterable[str]) -> None:
    """Record evaluations that the server has taken, each once for an address."""
    wanted: Collection[str] = list(ids)
    if not wanted:
        return
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO audit.sent SELECT id, $run, $target, $address::UUID, $now "
            "FROM (SELECT DISTINCT unnest($ids::UUID[]) AS id) WHERE id NOT IN "
            "(SELECT evaluation_id FROM audit.sent WHERE address = $address::UUID)",
            {
                "ids": wanted,
                "run": sending.run_id,
                "target": sending.target,
                "address": address,
                "now": now(),
            },
        )
