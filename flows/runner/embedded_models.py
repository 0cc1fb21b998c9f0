"""The models that claimflow runs itself: encoder, entailment model, parser; here or on workers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from claimflow.flows.errors import InputError, StoreFullError, WorkersError
from claimflow.flows.models.hub import fetch_model, find_cached, hub_host
from claimflow.flows.models.loading import (
    LocalEntailmentModel,
    ModelSource,
    load_entailment_model,
)
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.flows.models.sentence_encoder import SentenceEncoder
from claimflow.flows.pipeline.model_settings import HubModel
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.runner.make import make_table
from claimflow.flows.runner.prepare import Prepared
from claimflow.stages.base import Stage
from claimflow.stages.tools import EntailmentModel, Pair

Model = TypeVar("Model", SentenceEncoder, LocalEntailmentModel, EmbeddedParser)


def worker_vectors(
    folder: Path | None, identity: dict[str, Any], texts: Sequence[str]
) -> list[bytes]:
    """Run on a worker: the embeddings of a batch. Raises `WorkersError` for another encoder."""
    encoder = _load_same(_worker_embedder, folder, identity, "encoder")
    return list(encoder.vectors(texts).values())


def worker_judgements(
    source: ModelSource, identity: dict[str, Any], pairs: Sequence[Pair]
) -> list[bytes]:
    """Run on a worker: the judgements of a batch. Raises `WorkersError` for another model.

    A worker on another machine may have to download it.
    """
    model = _load_same(_worker_entailment, source, identity, "entailment model")
    return judgement_replies(model, pairs)


def make_with_parser(
    stage: Stage,
    tables: Mapping[str, Any],
    parsers: Mapping[str, dict[str, Any]],
    source: str | None,
) -> pl.DataFrame:
    """Run on a worker: as `make_table`, for a stage whose tools are all the parser.

    `parsers` has the identity of the parser by the name of the tool. Raises `WorkersError` for
    another parser.
    """
    tools = {
        name: _load_same(_worker_parser, None, identity, "parser")
        for name, identity in parsers.items()
    }
    return make_table(stage, tables, tools, source)


def judgement_replies(entailment: EntailmentModel, pairs: Sequence[Pair]) -> list[bytes]:
    """The judgements of a batch of distinct pairs, as JSON."""
    judged = entailment.judge(pairs)
    return [json.dumps(judged[pair]).encode() for pair in pairs]


# One thread per worker: the other cores have workers of their own.
@cache
def _worker_embedder(folder: Path | None) -> SentenceEncoder:
    return SentenceEncoder(folder, threads=1)


@cache
def _worker_entailment(source: ModelSource) -> LocalEntailmentModel:
    if source is not None and isinstance(source.place, HubModel):
        fetch_model(source.place, source.form, "entailment.model", lambda _: None)
    return load_entailment_model(source, threads=1)


@cache
def _worker_parser(folder: Path | None) -> EmbeddedParser:
    return EmbeddedParser(folder, threads=1)


def _load_same(
    load: Callable[[Any], Model], source: Path | ModelSource, identity: dict[str, Any], kind: str
) -> Model:
    try:
        model = load(source)
    except (InputError, StoreFullError) as error:
        raise WorkersError(f"a worker does not have the {kind} of this run: {error}") from None
    if model.identity != identity:
        where = f" in {source}" if source else ""
        raise WorkersError(f"a worker has another {kind}{where} than there is here")
    return model


def fetch_models(prepared: Prepared, tell: Callable[[str], None]) -> Prepared:
    """Download the model of the Hub that a pipeline asks, if any, and pin it to its commit.

    Returns the pipeline with the pinned model, so that a run asks one model even if its branch
    moves. `tell` receives messages on the download and the commit. Raises `InputError` if a model
    cannot be downloaded or loaded, and `StoreFullError` if the disk is full.
    """
    pipeline = prepared.pipeline
    source = pipeline.entailment
    model = _hub_model(pipeline)
    if model is not None and source is not None:
        place = pipeline.source.place("entailment", "model")
        commit = fetch_model(model, source.form, place, tell).name
        pinned = model._replace(revision=commit)
        if pinned != model:
            is_commit = f"{model.revision} is commit {commit} (to stay: {pinned})"
            tell(f"entailment model {model}: {is_commit}")
        pipeline = replace(pipeline, entailment=source._replace(place=pinned))
    # Each raises for a file that is missing.
    SentenceEncoder(pipeline.embedder if isinstance(pipeline.embedder, Path) else None)
    load_entailment_model(pipeline.entailment).check()
    return prepared._replace(pipeline=pipeline)


def missing_model(pipeline: Pipeline) -> str | None:
    """A message for plans if a run would have to download the model, else None."""
    source, model = pipeline.entailment, _hub_model(pipeline)
    if source is None or model is None or find_cached(model, source.form) is not None:
        return None
    return (
        f"entailment model {model}: not on this machine, a run fetches it from {hub_host()}; "
        "until then no step that asks it is known to be on file"
    )


def _hub_model(pipeline: Pipeline) -> HubModel | None:
    model = pipeline.entailment.place if pipeline.entailment else None
    needed = (tool for step in pipeline.steps for tool in step.stage.needed_tools.values())
    return model if isinstance(model, HubModel) and EntailmentModel in needed else None
