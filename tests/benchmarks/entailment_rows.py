"""The human-labelled pairs that the entailment model is fitted on and measured with."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stages.tools import Pair

FOLDER = Path(__file__).parents[1] / "data" / "verification"
FURTHER = FOLDER / "nli_sample.jsonl.gz"


class Labelled(NamedTuple):
    """A pair and what people said of it.

    `family` names the data set it was taken from, `further` marks rows that are only
    fitted on. `label` is one of the three, where the kind of not entailed is known.
    """

    family: str
    group: str
    pair: Pair
    entailed: bool
    label: str | None
    further: bool


def read_labelled(further: Path = FURTHER) -> list[Labelled]:
    """Every row of the data sets, then those of `further`."""
    files = sorted(path for path in FOLDER.glob("*.jsonl.gz") if path != FURTHER)
    rows = [
        Labelled(
            path.name.split(".")[0],
            path.name.split(".")[0],
            Pair(row["premise"], row["claim"]),
            row["label"] == "supported",
            row.get("label3"),
            False,
        )
        for path in files
        for row in _rows(path)
    ]
    return rows + [
        Labelled(
            row["source"].split(".")[0],
            "further " + row["source"],
            Pair(row["premise"], row["claim"]),
            row["label"] == "entailed",
            None if row["label"] == "not" else row["label"],
            True,
        )
        for row in _rows(further)
    ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
