"""Commands that let pipelines run by themselves."""

from pathlib import Path

from claimflow.flows.options.common import Commands


def add(commands: Commands) -> None:
    """Declare `serve` and `deploy`."""
    serve = commands.add_parser("serve", help="run pipelines on schedule, from this process")
    _schedules(serve)

    deploy = commands.add_parser("deploy", help="run pipelines on schedule, by Prefect's workers")
    _schedules(deploy)
    deploy.add_argument(
        "--pool", default="claimflow", metavar="NAME", help="the work pool (default: claimflow)"
    )


def _schedules(parser: Commands) -> None:
    parser.add_argument(
        "schedules",
        nargs="?",
        type=Path,
        default=Path("configs/schedules.yaml"),
        metavar="FILE",
        help="a schedules file (default: configs/schedules.yaml)",
    )
