"""Entailment models by what a pipeline would call them, and rows to try them on."""

from collections.abc import Iterable
from pathlib import Path

from claimflow.flows.models.hub import fetch_model
from claimflow.flows.pipeline.models import HubModel, folder_or_hub_model
from claimflow.flows.runner.embedded_models import Entailment, ModelWork
from tests.benchmarks.entailment_rows import Labelled


def model_named(name: str | None) -> Entailment:
    """The embedded model, or the one in a folder or of the Hub, which is fetched."""
    source = folder_or_hub_model(Path(), name) if name else None
    if isinstance(source, HubModel):
        fetch_model(source, "MODEL", print)
    return ModelWork(None, None, entailment=source).entailment


def some_of_each(rows: Iterable[Labelled], count: int) -> dict[str, list[Labelled]]:
    """Up to `count` rows of each data set, evenly spread: files may be in order of a subject."""
    by_family: dict[str, list[Labelled]] = {}
    for row in rows:
        by_family.setdefault(row.family, []).append(row)
    return {
        family: [found[number * len(found) // count] for number in range(min(count, len(found)))]
        for family, found in by_family.items()
    }
