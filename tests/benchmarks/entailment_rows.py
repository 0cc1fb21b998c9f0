"""The human-labelled pairs that the entailment model is fitted on and measured with."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from claimflow.stages.tools import Pair
from tests.benchmarks.training.changes import denied, other_number

FOLDER = Path(__file__).parents[1] / "data" / "verification"


class Labelled(NamedTuple):
    """A pair and what people said of it.

    `family` names the data set it was taken from. `label` is one of the three, where the
    kind of not entailed is known; `rule` the rule that a row was made by, if one was.
    """

    family: str
    pair: Pair
    entailed: bool
    label: str | None
    rule: str | None = None


def read_labelled() -> list[Labelled]:
    """Every row of the data sets."""
    return [
        Labelled(
            path.name.split(".")[0],
            Pair(row["premise"], row["claim"]),
            row["label"] == "supported",
            row.get("label3"),
        )
        for path in sorted(FOLDER.glob("*.jsonl.gz"))
        for row in _rows(path)
    ]


def made_of(rows: Iterable[Labelled]) -> Iterator[Labelled]:
    """What cannot be entailed: claims that are, with another number or a `not` more or less.

    Few claims that people wrote differ from their premise in so little; a judge must see it.
    """
    random = Random(0)
    for row in rows:
        for rule in (other_number, denied) if row.entailed else ():
            if claim := rule(row.pair.claim, random):
                pair = Pair(row.pair.premise, claim)
                yield Labelled(row.family, pair, False, "contradicted", rule.__name__)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
