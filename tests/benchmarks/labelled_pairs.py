"""The human-labelled pairs that the entailment model is fitted on and measured with."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from claimflow.flows.models.hub import fetch_model
from claimflow.flows.models.loading import LocalEntailmentModel, load_entailment_model
from claimflow.flows.pipeline.model_settings import EntailmentSource, HubModel, folder_or_hub_model
from claimflow.flows.pipeline.verifier_forms import PLAIN, Form
from claimflow.stages.tools import Pair
from tests.benchmarks.training.changes import denied, other_number

FOLDER = Path(__file__).parents[1] / "data" / "verification"


class LabelledPair(NamedTuple):
    """A pair and its human label.

    `family` names its data set. `label` is one of the three, where the data set has it; `rule` is
    the rule by which the pair was made from another one, if it was.
    """

    family: str
    pair: Pair
    entailed: bool
    label: str | None
    rule: str | None = None


def read_labelled() -> list[LabelledPair]:
    """Every row of the data sets."""
    return [
        LabelledPair(
            path.name.split(".")[0],
            Pair(row["premise"], row["claim"]),
            row["label"] == "supported",
            row.get("label3"),
        )
        for path in sorted(FOLDER.glob("*.jsonl.gz"))
        for row in _rows(path)
    ]


def pairs_per_family(rows: Iterable[LabelledPair], count: int) -> dict[str, list[LabelledPair]]:
    """Up to `count` rows of each data set, evenly spaced, as files may be sorted by subject."""
    by_family: dict[str, list[LabelledPair]] = {}
    for row in rows:
        by_family.setdefault(row.family, []).append(row)
    return {
        family: [found[number * len(found) // count] for number in range(min(count, len(found)))]
        for family, found in by_family.items()
    }


def changed_pairs(rows: Iterable[LabelledPair]) -> Iterator[LabelledPair]:
    """Pairs that are not entailed: entailed ones with another number, or a `not` more or less.

    Few claims written by people differ from their premise in so little; a judge must see it.
    """
    random = Random(0)
    for row in rows:
        for rule in (other_number, denied) if row.entailed else ():
            if claim := rule(row.pair.claim, random):
                pair = Pair(row.pair.premise, claim)
                yield LabelledPair(row.family, pair, False, "contradicted", rule.__name__)


def load_model(name: str | None, form: Form = PLAIN) -> LocalEntailmentModel:
    """The embedded model for None, else that of a folder or of the Hub, which is downloaded."""
    if name is None:
        return load_entailment_model(None)
    place = folder_or_hub_model(Path(), name)
    if isinstance(place, HubModel):
        fetch_model(place, form, "MODEL", print)
    return load_entailment_model(EntailmentSource(place, form))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)
