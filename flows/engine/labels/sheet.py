"""A blind sheet: what an annotator reads and where the label goes, no word of the judge's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from claimflow.flows.engine.errors import Fault, InputError
from claimflow.flows.engine.labels.drawing import By, Draw, drawn, unsure
from claimflow.flows.engine.labels.units import KINDS, Kind, Part, units, with_texts
from claimflow.flows.engine.sheets.form import SheetRow, as_csv, check_header, read_rows
from claimflow.flows.engine.storage.store import Store

READ: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("premise", "claim"),
    "claims": ("text", "claim"),
    "samples": ("user_input", "response", "reference", "retrieved_contexts"),
}
"""The texts that an annotator reads, by column."""

_PLACE: Final[Mapping[Kind, tuple[str, ...]]] = {
    "verdicts": ("sample_id", "claim_id", "against", "passage"),
    "claims": ("sample_id", "claim_id"),
    "samples": ("sample_id", "metric"),
}

COLUMNS: Final[Mapping[Kind, tuple[str, ...]]] = {
    kind: ("run", "step", "draw", *_PLACE[kind], *READ[kind], "label") for kind in KINDS
}


class Blind(NamedTuple):
    """A sheet of labels as it was read."""

    path: Path
    kind: Kind
    rows: list[SheetRow]

    def fault(self, row: SheetRow, what: str, right: str) -> Fault:
        """What is wrong with a row."""
        return Fault(f"{self.path}:{row.line}", what, right)


def blind_sheet(store: Store, part: Part, *, size: int, by: By, seed: int) -> pl.DataFrame:
    """The rows to be labelled of a part, in a random order, with an empty column `label`.

    Raises `InputError` where there is nothing to draw from, or nothing says how sure the judge
    was.
    """
    with store.reading() as connection:
        rows = units(connection, part)
        if rows.is_empty():
            what = f"step {part.step} of run {part.run_id} has no {part.kind}"
            raise InputError([Fault("--of", what, "choose another step or run")])
        if by == "uncertainty" and unsure(rows) is None:
            what = f"nothing says how sure step {part.step} was: no probabilities, no votes"
            raise InputError([Fault("--by uncertainty", what, "draw them by random")])
        draw = Draw(by, min(size, rows.height), rows.height, seed)
        chosen = with_texts(connection, part, rows[list(drawn(rows, draw))])
    known = {"run": part.run_id, "step": part.step, "draw": str(draw), "label": None}
    return pl.DataFrame(
        [{name: (known | row)[name] for name in COLUMNS[part.kind]} for row in chosen],
        infer_schema_length=None,
    )


def written(sheet: pl.DataFrame) -> bytes:
    """The sheet as CSV for spreadsheets."""
    return as_csv(sheet)


def read_blind(path: Path) -> Blind:
    """The sheet in a file, its kind known by its header. Raises `InputError` for any other."""
    header, rows = read_rows(path)
    kind: Kind = "verdicts" if "premise" in header else "claims" if "claim" in header else "samples"
    needed = [name for name in COLUMNS[kind] if name not in ("against", "user_input")]
    check_header(path, header, needed=needed, exported=COLUMNS[kind])
    return Blind(path, kind, rows)
