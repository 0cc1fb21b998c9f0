"""The command `send`: scores of a run to where its traces are looked at."""

from argparse import Namespace

from claimflow.flows.cli.options import (
    Commands,
    add_command,
    add_run,
    add_store_options,
    local_path,
)
from claimflow.flows.cli.output import refuse_database, write_message
from claimflow.flows.cli.stores import named_store, run_named


def add(commands: Commands) -> None:
    """Declare `send`."""
    parser = add_command(
        commands,
        "send",
        send,
        "send the scores of a run to where its traces are looked at",
        example="latest --to otlp --metrics faithfulness",
    )
    add_run(parser)
    add_store_options(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="TARGET",
        help="otlp, langfuse, phoenix, mlflow, or the name of another package's target; "
        "addresses and keys come from the environment",
    )
    parser.add_argument(
        "--file",
        type=local_path,
        metavar="FILE",
        help="write what would be sent to this file instead",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        action="extend",
        default=[],
        metavar="M",
        help="only these metrics (default: all of the run)",
    )
    parser.add_argument(
        "--again", action="store_true", help="send also what the server has taken already"
    )


def send(options: Namespace) -> int:
    """Send or write the scores; returns 1 where some were refused.

    Without RUN sendings of earlier runs of the pipeline that did not end come first.
    """
    from claimflow.flows.report.formatting import escape_controls
    from claimflow.flows.sending import delivery
    from claimflow.flows.store.read_copy import refresh_read_copy

    store = named_store(options)
    run_id = run_named(options, store, options.run)
    if options.file is not None:
        refuse_database(options.file)
        written = delivery.write_file(store, run_id, options.to, options.file, options.metrics)
        for line in written.lines:
            write_message(escape_controls(line))
        write_message(f"written: {options.file}")
        return int(bool(written.refused))
    refused = 0
    try:
        for done in delivery.send(
            store,
            run_id,
            options.to,
            options.metrics,
            again=options.again,
            earlier=options.run is None,
        ):
            print(escape_controls("\n".join(done.lines)), flush=True)
            refused += done.refused.total()
    finally:
        refresh_read_copy(store)
    return int(refused > 0)
