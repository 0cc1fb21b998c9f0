"""Commands that hold runs against each other, and name them."""

from pathlib import Path

from claimflow.flows.options.common import Commands, live_option, positive, store_options


def add(commands: Commands) -> None:
    """Declare `diff`, `gate` and `tag`."""
    diff = commands.add_parser("diff", help="say what changed from one run to another, and why")
    what = "a run id or its beginning, a tag, latest or previous"
    diff.add_argument("a", nargs="?", metavar="RUN_A", help=f"{what} (default: previous)")
    diff.add_argument("b", nargs="?", metavar="RUN_B", help="likewise (default: latest)")
    diff.add_argument(
        "--by", metavar="FIELD", help="samples that share this metadata field are one unit"
    )
    diff.add_argument(
        "--metric", action="append", default=[], metavar="M", help="only this; may be repeated"
    )
    diff.add_argument("--format", choices=["table", "json", "markdown"], default="table")
    diff.add_argument("-o", "--output", type=Path, help="write to this file")
    diff.add_argument(
        "--limit",
        type=positive,
        default=10,
        metavar="N",
        help="show N scores and claims (default: 10); JSON has all",
    )
    store_options(diff)
    live_option(diff)

    gate = commands.add_parser("gate", help="hold a run on file against the gates of a pipeline")
    gate.add_argument("config", type=Path, help="a pipeline's YAML file")
    gate.add_argument("--run", help="a run id, its beginning or a tag (default: its newest)")
    gate.add_argument("--store", type=Path, help="a DuckDB file instead of the pipeline's")

    tag = commands.add_parser("tag", help="give a run a name, such as main")
    tag.add_argument("run", nargs="?", metavar="RUN", help=what)
    tag.add_argument("name", nargs="?", metavar="NAME", help="letters, digits, points, _ and -")
    tag.add_argument("--list", action="store_true", help="list the names instead")
    tag.add_argument("--remove", metavar="NAME", help="forget a name; its run stays")
    store_options(tag)
