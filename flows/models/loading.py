"""The entailment model of a pipeline: carried by claimflow, in a folder, or from the Hub."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from claimflow.flows.models.cross_encoder import CrossEncoder
from claimflow.flows.models.entailment.model import EmbeddedEntailment
from claimflow.flows.models.hub import find_cached
from claimflow.flows.pipeline.model_settings import EntailmentSource, HubModel
from claimflow.stages.tools import EntailmentModel, Judgement, Pair

ModelSource = EntailmentSource | None
"""A folder or a model of the Hub, or None for the model that claimflow carries."""


class LocalEntailmentModel(EntailmentModel, Protocol):
    """An entailment model that runs in this process."""

    @property
    def identity(self) -> dict[str, str | int | float]:
        """Everything that could change a judgement; known without loading the model."""
        ...

    def check(self) -> None:
        """Raise `InputError` where its settings do not suit its files, as far as that is cheap."""
        ...

    @property
    def languages(self) -> frozenset[str] | None:
        """The languages that it was taught, as `language_of` names them; None for any."""
        ...


def load_entailment_model(
    source: ModelSource, *, threads: int | None = None
) -> LocalEntailmentModel:
    """The entailment model at `source`; `threads` bounds those of a call, None takes every core.

    Nothing is downloaded: a Hub model that is not in the cache is an `UnfetchedModel`. Raises
    `InputError` where a folder lacks a file or holds one that cannot be used.
    """
    if source is None:
        return EmbeddedEntailment(threads=threads)
    place, form = source
    if isinstance(place, Path):
        return CrossEncoder(place, threads, form=form)
    folder = find_cached(place, form)
    if folder is None:
        return UnfetchedModel(place)
    return CrossEncoder(folder, threads, form=form, name=place.name)


class UnfetchedModel:
    """A Hub model that is not in the cache, for the plan of a run.

    Its languages are unknown. It has no judgements, and its identity is that of no model, so that
    no stored table or judgement is reused for it.
    """

    languages: Final = None

    def __init__(self, model: HubModel) -> None:
        self.identity: dict[str, str | int | float] = {"name": str(model), "files": "not fetched"}

    def check(self) -> None:
        """Nothing is known yet."""

    def judge(self, _: Sequence[Pair], /) -> Mapping[Pair, Judgement]:
        """No judgement for any pair."""
        return {}
