"""Commands that take things out of a store, put them in, and keep it in order."""

from claimflow.flows.options.common import Commands, days, live_option, positive, store_options


def add(commands: Commands) -> None:
    """Declare `export`, `prune`, `verify` and `migrate`."""
    export = commands.add_parser("export", help="write tables as Parquet, or claims as a sheet")
    export.add_argument(
        "tables", nargs="*", metavar="TABLE", help="which (default: all but the ledger's replies)"
    )
    export.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    where = "the folder, an address as s3://bucket/tables, or the file of a sheet"
    export.add_argument("-o", "--output", "--to", metavar="PLACE", help=where)
    export.add_argument("--run", help="of this run alone: a run id, its beginning, or a tag")
    export.add_argument("--step", help="of a sheet: this step alone")
    store_options(export)
    live_option(export)

    prune = commands.add_parser("prune", help="remove old runs and what only they need")
    keep = prune.add_mutually_exclusive_group(required=True)
    keep.add_argument(
        "--keep-runs", type=positive, metavar="N", help="keep the newest N runs of each pipeline"
    )
    keep.add_argument("--keep-days", type=days, metavar="D", help="keep the runs of D days")
    prune.add_argument(
        "--replies", action="store_true", help="forget, too, what models said long before those"
    )
    prune.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    store_options(prune)

    verify = commands.add_parser("verify", help="check digests, keys and references of a store")
    store_options(verify)

    migrate = commands.add_parser("migrate", help="bring a store of an older claimflow up to date")
    store_options(migrate)
