"""`claimflow sql`: anybody's query on a store."""

import sys
from argparse import Namespace

from claimflow.flows.commands.answers import write_answer
from claimflow.flows.commands.stores import read_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.store.query import query


def main(options: Namespace) -> int:
    """Print or write the answer to a query."""
    text = _written() if options.query == "-" else options.query
    answer = query(read_store(options), text, seconds=options.timeout)
    write_answer(answer, options.format, options.output)
    return 0


def _written() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        what = f"is no text at byte {error.start}"
        raise InputError([Fault("standard input", what, "write the query as UTF-8")]) from error
