"""Calibrations on record, and whether a judge is still the one that was calibrated."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.engine.calibration.document import plain
from claimflow.flows.engine.calibration.steps import Calibration
from claimflow.flows.engine.compare.causes import Cause, Making, causes_between, makings
from claimflow.flows.engine.storage.store import Store, insert, now
from claimflow.flows.engine.storage.store_schema import has_table
from claimflow.stages.keys import canonical, content_key

_NEWEST: Final = """
SELECT calibration_id::VARCHAR, run_id, step, stage, version, settings, tools, labels, figures,
       calibrated_at
FROM audit.calibrations WHERE pipeline = $pipeline
QUALIFY row_number() OVER (
    PARTITION BY step ORDER BY calibrated_at DESC, calibrations.rowid DESC
) = 1
"""


class Earlier(NamedTuple):
    """The newest calibration of a step: of which run, when, on how many labels.

    `accuracy` is the agreement found then. `causes` are what differs in how the step's table is
    made now; where there are any it is stale.
    """

    run_id: str
    calibrated_at: datetime
    labels: int
    accuracy: float | None
    causes: tuple[Cause, ...]

    @property
    def stale(self) -> bool:
        """Whether it says nothing of the judge as it is now."""
        return bool(self.causes)


def record(store: Store, run_id: str, found: list[Calibration]) -> None:
    """Put on record what was found of each judge whose verdicts have labels, once.

    A calibration that says the same as the newest of its step is on record already.
    """
    with store.writing() as connection:
        pipeline, how = _pipeline(connection, run_id), makings(connection, run_id)
        newest = {row[2]: row[0] for row in _newest(connection, pipeline)}
        rows = [
            row
            for one in found
            if one.kind == "verdicts" and one.agreement is not None
            and (row := _row(run_id, pipeline, one, how[one.step]))["calibration_id"]
            != newest.get(one.step)
        ]  # fmt: skip
        if rows:
            insert(connection, "audit.calibrations", pl.DataFrame(rows, infer_schema_length=None))


def earlier(store: Store, run_id: str) -> dict[str, Earlier]:
    """The newest calibration of each judge of a run's pipeline, held against that run, by step.

    None of a store that an older claimflow made, where there is no table for them.
    """
    with store.reading() as connection:
        if not has_table(connection, "audit", "calibrations"):
            return {}
        how = makings(connection, run_id)
        found = _newest(connection, _pipeline(connection, run_id))
    return {row[2]: _earlier(row, how[row[2]]) for row in found if row[2] in how}


def _earlier(row: tuple[Any, ...], is_now: Making) -> Earlier:
    _, run_id, _, stage, version, settings, tools, labels, figures, at = row
    was = is_now._replace(
        stage=stage, version=version, settings=json.loads(settings), tools=json.loads(tools)
    )
    accuracy = json.loads(figures)["agreement"]["accuracy"]["value"]
    return Earlier(run_id, at, labels, accuracy, tuple(causes_between(was, is_now)))


def _row(run_id: str, pipeline: str, one: Calibration, making: Making) -> Mapping[str, Any]:
    figures = plain(one._replace(slices=[]))
    facts = {
        "run_id": run_id,
        "pipeline": pipeline,
        "step": one.step,
        "stage": making.stage,
        "version": making.version,
        "settings": canonical(dict(making.settings)).decode(),
        "tools": canonical(dict(making.tools)).decode(),
        "labels": one.agreement.n if one.agreement else 0,
        "figures": canonical(figures).decode(),
    }
    return {"calibration_id": content_key("calibration", facts), **facts, "calibrated_at": now()}


def _newest(connection: duckdb.DuckDBPyConnection, pipeline: str) -> list[tuple[Any, ...]]:
    return connection.execute(_NEWEST, {"pipeline": pipeline}).fetchall()


def _pipeline(connection: duckdb.DuckDBPyConnection, run_id: str) -> str:
    found = connection.execute(
        "SELECT pipeline FROM audit.runs WHERE run_id = $run", {"run": run_id}
    ).fetchall()
    return str(found[0][0])
