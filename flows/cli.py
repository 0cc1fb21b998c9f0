"""The command line: what may be said, and which module does it."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Final

EXIT_CODES: Final = """\
exit codes: 0 done, 1 done with failures (they are on record as rows),
2 wrong input (nothing was written), 3 the store is busy or its disk full, 4 a judge cannot
be used (what was done is kept), 130 stopped by Ctrl-C"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit code.

    Each command is a module of `flows.commands` with a function `main(options) -> int`,
    imported only when it is called: `--help` stays fast.
    """
    options = _parser().parse_args(arguments)
    guard = importlib.import_module("flows.commands.guard")
    command = importlib.import_module(f"flows.commands.{options.command}")
    code: int = guard.guarded(command.main, options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="claimflow",
        description="Evaluate RAG and LLM answers claim by claim.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="evaluate: make what is not on file yet")
    _pipeline_options(run)
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
    _pipeline_options(plan)

    doctor = commands.add_parser("doctor", help="ask each judge three small things: what works?")
    doctor.add_argument("config", type=Path, help="a pipeline's YAML file")

    runs = commands.add_parser("runs", help="list the runs of a store")
    _store_options(runs)

    show = commands.add_parser("show", help="show a run: its steps, metrics and lowest samples")
    show.add_argument("run", nargs="?", help="a run id or its beginning (default: the newest)")
    show.add_argument("--slices", action="store_true", help="add the means by metadata")
    _store_options(show)

    explain = commands.add_parser("explain", help="show what led to the scores of one sample")
    explain.add_argument("sample", help="a sample id or its beginning")
    explain.add_argument(
        "--calls", action="store_true", help="add what the judge was sent, and its very words"
    )
    explain.add_argument("--run", help="a run id or its beginning (default: the newest)")
    _store_options(explain)

    sql = commands.add_parser("sql", help="query a store, read-only")
    sql.add_argument("query", help='for example "SELECT * FROM scores"; - reads standard input')
    sql.add_argument("--format", choices=["table", "csv", "json", "parquet"], default="table")
    sql.add_argument("-o", "--output", type=Path, help="write to this file")
    sql.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="(default: 60)")
    _store_options(sql)

    schema = commands.add_parser("schema", help="print the JSON Schema of pipeline files")
    schema.add_argument("--tables", action="store_true", help="list a store's tables instead")
    _store_options(schema)

    prompt = commands.add_parser("prompt", help="check a prompt for a language model")
    actions = prompt.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="show what a model would read, and what is wrong")
    check.add_argument("file", type=Path, help="a prompt file")

    commands.add_parser("version", help="print the version")
    return parser


def _pipeline_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="a pipeline's YAML file")
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="STEP",
        help="make this step even though its table is on file; may be repeated",
    )
    parser.add_argument("--limit", type=_positive, metavar="N", help="take the first N samples")
    parser.add_argument("--store", type=Path, help="a DuckDB file instead of the pipeline's")


def _store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, help="the store (default: the last one used here)")
    parser.add_argument("--config", type=Path, help="take the store of this pipeline")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
