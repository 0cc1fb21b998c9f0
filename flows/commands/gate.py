"""`claimflow gate`: hold a run on file against the gates of a pipeline; nothing is evaluated."""

from argparse import Namespace

from claimflow.flows.commands.answers import standard_output
from claimflow.flows.commands.gate_report import gate_code, print_gates
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.pipeline.pipeline import build_pipeline
from claimflow.flows.pipeline.yaml_source import load_yaml
from claimflow.flows.quality.gates import judge_run
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.runs import newest_of
from claimflow.flows.store.store import Store


def main(options: Namespace) -> int:
    """Judge a run anew: 4 when a gate fails, else 5 when one is inconclusive, else 0."""
    pipeline = build_pipeline(load_yaml(options.config))
    if not pipeline.gates:
        hint = "write gates: and what a metric's mean must be like"
        raise InputError([Fault(str(options.config), "has no gates", hint)])
    store = Store((options.store or pipeline.store).resolve())
    newest = None if options.run else newest_of(store, pipeline.name)
    run_id = chosen_run(store, options.run or newest)
    outcomes = judge_run(store, run_id, pipeline.gates)
    publish_again(store)
    console = standard_output()
    console.print(f"run {run_id}")
    print_gates(console, outcomes)
    return gate_code(outcomes)
