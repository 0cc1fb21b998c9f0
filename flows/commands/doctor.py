"""`claimflow doctor`: can the judges of a pipeline be used, and what do they take?"""

from argparse import Namespace
from collections.abc import Mapping

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.errors import JudgeError
from claimflow.flows.judge.doctor import Examination, examine
from claimflow.flows.judge.embedding import WHO
from claimflow.flows.pipeline.models import DEFAULT_JUDGE, Endpoint
from claimflow.flows.pipeline.pipeline import Pipeline, build_pipeline
from claimflow.flows.pipeline.yaml_source import load_yaml


def main(options: Namespace) -> int:
    """Ask each endpoint of a pipeline for very little and print what was found.

    Raises `JudgeError` when one cannot be used. No samples are read, nothing is stored.
    """
    endpoints = _endpoints(build_pipeline(load_yaml(options.config)))
    if not endpoints:
        print("this pipeline asks no endpoint: its judge and its encoder run in this process")
        return 0
    examined = examine(endpoints)
    for who, endpoint in endpoints.items():
        _print(who, endpoint, examined[who])
    faults = {who: one.fault for who, one in examined.items() if one.fault is not None}
    if faults:
        raise JudgeError("; ".join(f"{who} cannot be used: {why}" for who, why in faults.items()))
    return 0


def _endpoints(pipeline: Pipeline) -> Mapping[str, Endpoint]:
    """The endpoints by what messages call them."""
    judges = pipeline.judges.items()
    of_all = {name: judge for name, judge in judges if name == DEFAULT_JUDGE}
    others = {f"judge {name}": judge for name, judge in judges if name not in of_all}
    embedder = {WHO: pipeline.embedder} if isinstance(pipeline.embedder, Endpoint) else {}
    return {**of_all, **others, **embedder}


def _print(who: str, endpoint: Endpoint, examined: Examination) -> None:
    console = standard_output()
    where = f" at {endpoint.api_base}" if endpoint.api_base else ""
    console.print(shown(f"{who}: {endpoint.model}{where}", style="bold"), soft_wrap=True)
    width = max(map(len, examined.found))
    for topic, words in examined.found.items():
        console.print(shown(f"  {topic:{width}}  {words}"), soft_wrap=True)
    console.print()
