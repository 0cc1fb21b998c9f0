"""`claimflow migrate`: a store of an older claimflow brought up to date."""

from argparse import Namespace

from claimflow.flows.commands.stores import named_store
from claimflow.flows.store.read_copy import publish_again
from claimflow.flows.store.schema import SCHEMA_VERSION
from claimflow.flows.store.store import store_version


def main(options: Namespace) -> int:
    """Bring a store to the newest schema version, and say from which."""
    store = named_store(options)
    found = store_version(store)
    with store.writing():
        pass
    publish_again(store)
    news = "" if found == SCHEMA_VERSION else f", now {SCHEMA_VERSION}"
    print(f"{store.path}: schema version {found}{news}")
    return 0
