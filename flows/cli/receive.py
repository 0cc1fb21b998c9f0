"""The command `receive`: spans of applications, taken over HTTP without a collector."""

import argparse
import os
import signal
from argparse import Namespace
from contextlib import suppress
from datetime import timedelta
from typing import Final

from claimflow.flows.cli.options import Commands, add_command, local_path, port

_TOKEN: Final = "CLAIMFLOW_RECEIVE_TOKEN"  # noqa: S105 - the name of a variable


def add(commands: Commands) -> None:
    """Declare `receive`."""
    parser = add_command(
        commands,
        "receive",
        receive,
        "receive spans by OTLP over HTTP into a folder that pipelines read as traces",
        example="traces/ --keep 7d",
    )
    parser.add_argument(
        "folder", type=local_path, metavar="FOLDER", help="the folder, for one receiver"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="listen on this address (default: 127.0.0.1); another one than this machine's own "
        f"needs a token in the environment: {_TOKEN}",
    )
    parser.add_argument(
        "--port",
        type=port,
        default=4318,
        metavar="N",
        help="listen on this port (default: 4318; 0: any free one)",
    )
    parser.add_argument(
        "--keep",
        type=_age,
        metavar="AGE",
        help="remove what is older, as in 7d (default: keep everything)",
    )
    parser.epilog = (
        "Traces and the log events of GenAI are stored; other logs are accepted and dropped, and\n"
        f"metrics are answered 404.\n\n{parser.epilog}"
    )


def _age(text: str) -> timedelta:
    from claimflow.flows.pipeline.times import check_duration, to_timedelta

    try:
        return to_timedelta(check_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def receive(options: Namespace) -> int:
    """Receive until Ctrl-C or SIGTERM; what was accepted by then is stored."""
    from claimflow.flows.traces.received import ReceivedFolder
    from claimflow.flows.traces.receiver import Receiver

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = ReceivedFolder(options.folder, keep=options.keep)
    try:
        token = os.environ.get(_TOKEN)
        server = Receiver(folder, host=options.host, port=options.port, token=token)
        with server, suppress(KeyboardInterrupt):
            print(f"{server.url} stores in {options.folder}; stop it with Ctrl-C", flush=True)
            server.serve_forever()
        counts = server.counts
        print(f"received {counts['traces']:,} spans and {counts['logs']:,} events")
    finally:
        folder.close()
    return 0
