"""Entailment models by the name that a pipeline gives them, and a selection of labelled rows."""

from collections.abc import Iterable
from pathlib import Path

from claimflow.flows.models.hub import fetch_model
from claimflow.flows.models.loading import LocalEntailmentModel, load_entailment_model
from claimflow.flows.pipeline.model_settings import HubModel, folder_or_hub_model
from tests.benchmarks.entailment_rows import Labelled


def model_named(name: str | None) -> LocalEntailmentModel:
    """The embedded model for None, else that of a folder or of the Hub, which is downloaded."""
    source = folder_or_hub_model(Path(), name) if name else None
    if isinstance(source, HubModel):
        fetch_model(source, "MODEL", print)
    return load_entailment_model(source)


def some_of_each(rows: Iterable[Labelled], count: int) -> dict[str, list[Labelled]]:
    """Up to `count` rows of each data set, evenly spread: files may be in order of a subject."""
    by_family: dict[str, list[Labelled]] = {}
    for row in rows:
        by_family.setdefault(row.family, []).append(row)
    return {
        family: [found[number * len(found) // count] for number in range(min(count, len(found)))]
        for family, found in by_family.items()
    }
