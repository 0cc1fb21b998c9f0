"""Checks the endpoints that a run may call: address, key, price."""

from collections.abc import Iterator

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.budget import price_of
from claimflow.flows.judge.provider import open_provider
from claimflow.flows.pipeline.model_settings import DEFAULT_JUDGE, Endpoint
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.pipeline.rerun import StepSelection
from claimflow.flows.runner.canaries import canary_estimates
from claimflow.flows.runner.plan import plan
from claimflow.flows.runner.prepare import Prepared
from claimflow.flows.store.store import Store
from claimflow.stages.tools import Embedder


def check_endpoints(prepared: Prepared, store: Store, *, choice: StepSelection) -> None:
    """Check every endpoint of the steps whose table may have to be made, and of due canaries.

    Raises `InputError` where one lacks a key, or a price that its budget needs.
    """
    pipeline = prepared.pipeline
    if not pipeline.judges and not isinstance(pipeline.embedder, Endpoint):
        return
    planned = plan(prepared, store, choice=choice)
    tried = canary_estimates(prepared, store, choice.wanted)
    asked = {steps[0] for steps, one in tried.items() if one.calls}
    _check(pipeline, {step.step for step in planned if step.action != "reuse"} | asked)


def check_all_endpoints(pipeline: Pipeline) -> None:
    """Check every endpoint of a pipeline. Raises as `check_endpoints` does."""
    _check(pipeline, {step.name for step in pipeline.steps})


def _check(pipeline: Pipeline, made: set[str]) -> None:
    faults = [
        fault
        for place, endpoint in dict(_asked(pipeline, made)).items()
        for fault in _faults(place, endpoint)
    ]
    if faults:
        raise InputError(faults)


def _asked(pipeline: Pipeline, made: set[str]) -> Iterator[tuple[str, Endpoint]]:
    """The endpoints that the steps in `made` call, with their position in the file."""
    source = pipeline.source
    for step in pipeline.steps:
        if step.name not in made:
            continue
        for judge in step.judges:
            path = ("judge",) if judge == DEFAULT_JUDGE else ("judges", judge)
            yield source.place(*path), pipeline.judges[judge]
        if isinstance(pipeline.embedder, Endpoint) and Embedder in step.stage.tools.values():
            yield source.place("embedder"), pipeline.embedder


def _faults(place: str, endpoint: Endpoint) -> Iterator[Fault]:
    wrong = open_provider(endpoint.provider).missing(endpoint.model, endpoint.api_base)
    if wrong:
        yield Fault(place, f"{endpoint.model} cannot be asked", wrong)
    elif endpoint.budget_usd is not None and price_of(endpoint) is None:
        what = f"the price of {endpoint.model} is unknown, so budget_usd cannot be kept"
        hint = "write price: {input: ..., output: ...} in US dollars per million tokens"
        yield Fault(place, what, hint)
