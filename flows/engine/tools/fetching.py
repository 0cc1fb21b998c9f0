"""The models of a pipeline that run in this process: there, or fetched, before a run begins."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from claimflow.flows.engine.config.pipeline import Pipeline
from claimflow.flows.engine.cross_encoder.hub import cached, fetch
from claimflow.flows.engine.cross_encoder.hub_faults import hub_host
from claimflow.flows.engine.hub_model import HubModel
from claimflow.flows.engine.prepare import Prepared
from claimflow.flows.engine.tools.model_work import ModelWork
from claimflow.stages.tools import EntailmentModel


def fetched(prepared: Prepared, tell: Callable[[str], None]) -> Prepared:
    """The same with a model of the Hub in the cache, and named by its commit.

    So whatever a branch comes to mean later, the run asks one model. `tell` is told which, and
    what is fetched; where no step asks the model that is nothing. Raises `StoreFullError` as
    `fetch` does, and `InputError`, also where a folder does not hold what it should.
    """
    pipeline = prepared.pipeline
    model = _asked_hub_model(pipeline)
    if model is not None:
        commit = fetch(model, pipeline.source.place("entailment", "model"), tell).name
        pinned = model._replace(revision=commit)
        if pinned != model:
            is_commit = f"{model.revision} is commit {commit} (to stay: {pinned})"
            tell(f"entailment model {model}: {is_commit}")
        pipeline = replace(pipeline, entailment=pinned)
    folder = pipeline.embedder if isinstance(pipeline.embedder, Path) else None
    ModelWork(folder, None, entailment=pipeline.entailment)
    return prepared._replace(pipeline=pipeline)


def to_fetch(pipeline: Pipeline) -> str | None:
    """For a plan: that a run would fetch the model, if so."""
    model = _asked_hub_model(pipeline)
    if model is None or cached(model) is not None:
        return None
    return (
        f"entailment model {model}: not on this machine, a run fetches it from {hub_host()}; "
        "until then no step that asks it is known to be on file"
    )


def _asked_hub_model(pipeline: Pipeline) -> HubModel | None:
    model = pipeline.entailment
    lent = (
        step.stage.tools[name]
        for step in pipeline.steps
        for name in step.stage.tools.keys() - step.stage.ignores()
    )
    return model if isinstance(model, HubModel) and EntailmentModel in lent else None
