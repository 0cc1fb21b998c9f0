"""Commands that run a pipeline or look at one."""

from pathlib import Path

from claimflow.flows.options.common import Commands, pipeline_options, positive, two_or_more
from claimflow.flows.options.rerunning import rerun_options


def add(commands: Commands) -> None:
    """Declare `run`, `plan`, `noise`, `doctor` and `prompt`."""
    run = commands.add_parser("run", help="evaluate: make what is not on file yet")
    pipeline_options(run)
    rerun_options(run)
    run.add_argument(
        "--prefect",
        action="store_true",
        help="track the run in Prefect even where no Prefect API is configured",
    )
    run.add_argument(
        "--redact",
        action="store_true",
        help="keep only hashes of the texts in the record of calls (audit.calls)",
    )

    plan = commands.add_parser("plan", help="say what a run would make and cost; writes nothing")
    pipeline_options(plan)
    rerun_options(plan)

    noise = commands.add_parser("noise", help="measure how far scores vary by chance")
    noise.add_argument("config", type=Path, help="a pipeline's YAML file")
    noise.add_argument(
        "--repeats",
        type=two_or_more,
        required=True,
        metavar="K",
        help="how often everything that judges are asked is asked: at least 2, better 5",
    )
    noise.add_argument(
        "--limit",
        type=positive,
        default=30,
        metavar="N",
        help="of the first N samples (default: 30)",
    )
    noise.add_argument("--json", action="store_true", help="print JSON in place of a table")
    noise.add_argument(
        "--redact",
        action="store_true",
        help="keep only hashes of the texts in the record of calls (audit.calls)",
    )
    noise.add_argument("--store", type=Path, help="a DuckDB file instead of the pipeline's")

    doctor = commands.add_parser("doctor", help="ask each judge three small things: what works?")
    doctor.add_argument("config", type=Path, help="a pipeline's YAML file")

    prompt = commands.add_parser("prompt", help="check a prompt for a language model")
    actions = prompt.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="show what a model would read, and what is wrong")
    check.add_argument("file", type=Path, help="a prompt file")
