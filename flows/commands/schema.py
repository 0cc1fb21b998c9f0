"""`claimflow schema`: what a pipeline or schedules file may say, or what a store holds."""

import json
from argparse import Namespace

from claimflow.flows.commands.answers import print_table
from claimflow.flows.commands.stores import read_store
from claimflow.flows.pipeline.schedules import schedules_schema
from claimflow.flows.pipeline.schema import json_schema
from claimflow.flows.store.query import tables


def main(options: Namespace) -> int:
    """Print the JSON Schema of pipeline or schedules files, or the tables of a store."""
    if options.schedules:
        print(json.dumps(schedules_schema(), indent=2, ensure_ascii=False))
    elif options.tables:
        print_table(tables(read_store(options)))
    else:
        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
