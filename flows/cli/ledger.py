"""The command `ledger`: the calls and replies of a store, shared by runs on several machines."""

import signal
from argparse import Namespace

from claimflow.flows.cli.options import Commands, add_command, local_path, port
from claimflow.flows.errors import on_one_line
from claimflow.flows.report.formatting import format_count


def add(commands: Commands) -> None:
    """Declare `ledger`."""
    parser = add_command(
        commands,
        "ledger",
        ledger,
        "share one ledger over HTTP, so that runs on several machines ask nothing twice",
        example="shared.duckdb --host 10.0.0.5",
    )
    parser.add_argument(
        "file",
        type=local_path,
        metavar="FILE",
        help="the store whose ledger is shared; a new one is made",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="H",
        help="listen on this address (default: 127.0.0.1); another one than this machine's own "
        "needs a token in the environment, here and where runs are: CLAIMFLOW_LEDGER_TOKEN",
    )
    parser.add_argument(
        "--port",
        type=port,
        default=8767,
        metavar="N",
        help="listen on this port (default: 8767; 0: any free one)",
    )


def ledger(options: Namespace) -> int:
    """Share until Ctrl-C or SIGTERM; what was saved by then is in the store."""
    from claimflow.flows.files import resolved
    from claimflow.flows.judge.ledger_server import LedgerServer
    from claimflow.flows.judge.shared_ledger import ledger_token
    from claimflow.flows.store.ledger import Ledger
    from claimflow.flows.store.store import Store

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shared = Ledger(Store(resolved(options.file)))
    token = ledger_token()
    server = LedgerServer(shared, host=options.host, port=options.port, token=token)
    print(f"{server.url} shares {on_one_line(options.file)}; stop it with Ctrl-C", flush=True)
    server.serve()
    calls = format_count(server.counts["calls"], "call")
    replies = format_count(server.counts["replies"], "reply", "replies")
    print(f"{calls} saved, {replies} given")
    return 0
