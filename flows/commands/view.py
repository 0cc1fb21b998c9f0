"""`claimflow view`: reports and a page for SQL, served to this machine."""

from argparse import Namespace
from contextlib import suppress

from claimflow.flows.commands.stores import read_store
from claimflow.flows.store.store import store_version
from claimflow.flows.viewer.server import View


def main(options: Namespace) -> int:
    """Serve until Ctrl-C."""
    store = read_store(options)
    store_version(store)
    with View(store, options.port) as view, suppress(KeyboardInterrupt):
        print(f"{view.url} shows {store.path}; Ctrl-C ends it", flush=True)
        view.serve_forever()
    return 0
