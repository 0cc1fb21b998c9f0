"""Commands that read a store."""

from pathlib import Path

from claimflow.flows.options.common import Commands, live_option, positive, seconds, store_options


def add(commands: Commands) -> None:
    """Declare `runs`, `show`, `explain`, `audit`, `sql` and `schema`."""
    runs = commands.add_parser("runs", help="list the runs of a store")
    _reads(runs)

    show = commands.add_parser("show", help="show a run: its steps, metrics and lowest samples")
    show.add_argument("run", nargs="?", help="a run id, its start or a tag (default: the newest)")
    show.add_argument("--slices", action="store_true", help="add the means by metadata")
    _reads(show)

    explain = commands.add_parser("explain", help="show what led to the scores of one sample")
    explain.add_argument("sample", help="a sample id or its beginning")
    explain.add_argument(
        "--calls", action="store_true", help="add what the judge was sent, and its very words"
    )
    explain.add_argument("--run", help="a run id, its start or a tag (default: the newest)")
    _reads(explain)

    audit = commands.add_parser("audit", help="look for what is wrong with the claims of a run")
    audit.add_argument("run", nargs="?", help="a run id, its start or a tag (default: the newest)")
    audit.add_argument(
        "--limit",
        type=positive,
        default=3,
        metavar="N",
        help="list up to N of each kind and step (default: 3)",
    )
    audit.add_argument("--format", choices=["table", "json"], default="table")
    _reads(audit)

    sql = commands.add_parser("sql", help="query a store, read-only")
    sql.add_argument("query", help='for example "SELECT * FROM scores"; - reads standard input')
    sql.add_argument("--format", choices=["table", "csv", "json", "parquet"], default="table")
    sql.add_argument("-o", "--output", type=Path, help="write to this file")
    sql.add_argument("--timeout", type=seconds, default=60, metavar="SECONDS", help="(default: 60)")
    _reads(sql)

    schema = commands.add_parser("schema", help="print the JSON Schema of pipeline files")
    of = schema.add_mutually_exclusive_group()
    of.add_argument("--schedules", action="store_true", help="that of schedules files instead")
    of.add_argument("--tables", action="store_true", help="list a store's tables instead")
    _reads(schema)


def _reads(parser: Commands) -> None:
    store_options(parser)
    live_option(parser)
