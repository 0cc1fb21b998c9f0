"""`claimflow sql`: anybody's query on a store."""

import sys
from argparse import Namespace

from flows.commands.answers import write_answer
from flows.commands.stores import read_store
from flows.engine.storage.query import query


def main(options: Namespace) -> int:
    """Print or write the answer to a query."""
    text = sys.stdin.read() if options.query == "-" else options.query
    answer = query(read_store(options), text, seconds=options.timeout)
    write_answer(answer, options.format, options.output)
    return 0
