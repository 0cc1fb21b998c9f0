"""Labels on record, and which of them count."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import duckdb
import polars as pl

from claimflow.flows.engine.labels.units import Kind
from claimflow.flows.engine.storage.store import Store, insert, read_table


class Labelled(NamedTuple):
    """What one person said of one thing, as `audit.labels` has it."""

    import_id: str
    kind: Kind
    subject: str
    run_id: str
    step: str
    sample_id: str
    claim_id: str | None
    claim: str | None
    against: str | None
    passage: int | None
    metric: str | None
    label: str | None
    rating: float | None
    annotator: str
    file: str
    draw: str
    frame: str
    probability: float
    labelled_at: datetime

    @property
    def said(self) -> tuple[object, ...]:
        """Who said what of what: an equal one is on record already."""
        drawn = (self.frame, self.draw)
        return (self.kind, self.subject, self.annotator, self.label, self.rating, *drawn)


_TYPES: Final = {
    **dict.fromkeys(("claim_id", "claim", "against", "metric", "label"), pl.String),
    "passage": pl.Int64,
    "rating": pl.Float64,
}

# Of one person's labels of one thing the newest counts.
_IN_FORCE: Final = """
SELECT subject::VARCHAR AS subject, claim, metric, annotator, label, rating, draw
FROM audit.labels WHERE kind = $kind
QUALIFY row_number() OVER (
    PARTITION BY subject, annotator ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
ORDER BY subject, annotator
"""

_DRAWS: Final = """
SELECT DISTINCT draw, subject::VARCHAR AS subject, sample_id, claim_id::VARCHAR AS claim_id,
       passage, probability
FROM audit.labels WHERE kind = $kind AND frame = $frame::UUID ORDER BY ALL
"""

_SAID: Final = """
SELECT kind, subject::VARCHAR, annotator, label, rating, frame::VARCHAR, draw FROM audit.labels
WHERE kind = $kind AND annotator = $who
QUALIFY row_number() OVER (
    PARTITION BY subject, frame, draw ORDER BY labelled_at DESC, labels.rowid DESC
) = 1
"""


def record(store: Store, labels: Sequence[Labelled]) -> list[Labelled]:
    """Put labels on record, all in one transaction; returns those that were not yet."""
    if not labels:
        return []
    with store.writing() as connection:
        values = {"kind": labels[0].kind, "who": labels[0].annotator}
        known = set(connection.execute(_SAID, values).fetchall())
        new = [one for one in labels if one.said not in known]
        if new:
            rows = [one._asdict() for one in new]
            frame = pl.DataFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)
            insert(connection, "audit.labels", frame)
    return new


def in_force(connection: duckdb.DuckDBPyConnection, kind: Kind) -> pl.DataFrame:
    """The labels that count: subject, claim, metric, annotator, label, rating, draw."""
    return read_table(connection, _IN_FORCE, kind=kind)


def draws(connection: duckdb.DuckDBPyConnection, kind: Kind, frame: str) -> pl.DataFrame:
    """What was drawn from a frame and labelled: draw, subject, what it is of, probability."""
    return read_table(connection, _DRAWS, kind=kind, frame=frame)
