"""Commands that read a store: `runs`, `show`, `explain`, `audit`, `sql`, `schema` and `stages`."""

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from claimflow.flows.cli.options import (
    RUN,
    Commands,
    add_command,
    add_format_option,
    add_output_option,
    add_run,
    add_store_options,
    positive,
    seconds,
)
from claimflow.flows.cli.output import write_table, write_text
from claimflow.flows.cli.stores import named_options, readable_run, readable_store
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from claimflow.flows.pipeline.stage_list import ListedStage, Setting


def add(commands: Commands) -> None:
    """Declare `runs`, `show`, `explain`, `audit`, `sql`, `schema` and `stages`."""
    parser = add_command(
        commands,
        "runs",
        runs,
        "list the runs of a store, newest first",
        example="--config configs/quickstart.yaml",
    )
    parser.add_argument(
        "--batches",
        action="store_true",
        help="list the batches of calls instead, by what the store knows of them",
    )
    add_format_option(parser, "table", "json")
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "show",
        show,
        "show a run: its metrics, gates, failures and lowest samples",
        example="latest --slices",
    )
    add_run(parser)
    parser.add_argument(
        "--slices", action="store_true", help="add the means of each metadata value"
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "explain",
        explain,
        "show what led to the scores of one sample",
        example="demo-qafb-384 --run latest",
    )
    parser.add_argument("sample", metavar="SAMPLE", help="a sample id or its beginning")
    parser.add_argument(
        "--calls", action="store_true", help="add the messages sent to the judge and its replies"
    )
    parser.add_argument("--run", metavar="RUN", help=f"{RUN} (default: the newest)")
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "audit",
        audit,
        "check the claims of a run for errors, without a judge",
        example="latest --limit 5",
    )
    add_run(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        default=3,
        metavar="N",
        help="list up to N examples of each error and step (default: 3)",
    )
    add_format_option(parser, "table", "json")
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "sql",
        sql,
        "query a store, read-only",
        example='"SELECT metric, mean, low, high FROM summaries"',
    )
    parser.add_argument(
        "query",
        nargs="?",
        metavar="QUERY",
        help='for example "SELECT * FROM scores"; - reads it from standard input',
    )
    parser.add_argument(
        "--path",
        action="store_true",
        help="print the path of the file that queries read",
    )
    add_format_option(parser, "table", "csv", "json", "parquet")
    add_output_option(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60,
        metavar="SECONDS",
        help="stop the query after this time (default: 60)",
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "schema",
        schema,
        "print the JSON Schema of pipeline files",
        example="> pipeline.schema.json",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--schedules", action="store_true", help="print the schema of schedules files instead"
    )
    which.add_argument("--tables", action="store_true", help="list the tables of a store instead")
    which.add_argument(
        "--published",
        metavar="PLACE",
        help="print SQL that makes the views of a store over published tables: those in a folder, "
        "or in all that a pattern means, such as 's3://bucket/nights/*'",
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "stages",
        stages,
        "list the stages that a step can use, or the settings of one",
        example="faithfulness",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a stage, or module:Name for one of your own"
    )
    add_format_option(parser, "table", "json")


def runs(options: Namespace) -> int:
    """Print the runs of a store, or their batches, newest first."""
    import polars as pl

    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.batches import Batches
    from claimflow.flows.store.results import all_runs, calls_of_runs

    store = readable_store(options)
    if options.batches:
        found = Batches(store).listed()
        drop = ["message", "submitted_at", "reserved", "provider", "expires_at", "failed"]
        drop += ["step", "run_id"]
    else:
        reserved = Batches(store).reserved().select("run_id", pl.col("reserved").cast(pl.Float64))
        found = all_runs(store)
        for more in (calls_of_runs(store), reserved):
            found = found.join(more, on="run_id", how="left", maintain_order="left")
        drop = ["reused", "made", "unpriced", "calls", "ended_at", "started_at", "reason", "tags"]
        drop += ["partial", "cost", "failures"]
    if options.format == "json":
        write_table(found, "json", None)
        return 0
    if found.is_empty():
        Terminal().print_line(
            f"{store.path} has no {'batch of calls' if options.batches else 'run'}"
        )
        return 0
    # What no row has says nothing, such as tags and reserves of a store that never had one.
    empty = [name for name in found.columns if found[name].null_count() == found.height]
    Terminal().print_frame(found.drop(empty), drop=[name for name in drop if name not in empty])
    return 0


def show(options: Namespace) -> int:
    """Print a run as it was printed when it ended, with the same exit code."""
    from claimflow.flows.report.run_document import RunDocument
    from claimflow.flows.report.terminal import Terminal, print_run

    run = RunDocument(*readable_run(options))
    print_run(Terminal(), run, slices=options.slices, store=named_options(options))
    return run.exit_code


def explain(options: Namespace) -> int:
    """Print the tree of one sample: texts, claims, verdicts with their evidence, scores."""
    from claimflow.flows.report.sample_tree import sample_tree
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.results import chosen_sample

    store, run_id = readable_run(options)
    sample_id = chosen_sample(store, run_id, options.sample)
    Terminal().print_tree(sample_tree(store, run_id, sample_id, calls=options.calls))
    return 0


def audit(options: Namespace) -> int:
    """Print what is wrong with the claims of each step, with examples."""
    from claimflow.flows.quality.claim_audit import audit_claims
    from claimflow.flows.quality.json_values import json_text
    from claimflow.flows.report.terminal import Terminal, print_claim_audit

    found = audit_claims(*readable_run(options), examples=options.limit)
    if options.format == "json":
        write_text(json_text(found), None)
    else:
        print_claim_audit(Terminal(), found)
    return 0


def sql(options: Namespace) -> int:
    """Print or write the result of a query."""
    from claimflow.flows.store.query import query

    if options.path:
        store = readable_store(options)
        with store.reading():
            pass  # It is a store that can be read.
        write_text(f"{store.read_path}\n", options.output)
        return 0
    if options.query is None:
        raise InputError([Fault("QUERY", "is missing", "write a SELECT, or --path")])
    text = _standard_input() if options.query == "-" else options.query
    result = query(readable_store(options), text, seconds=options.timeout)
    write_table(result, options.format, options.output)
    return 0


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 text at byte {error.start}"
        raise InputError([Fault("standard input", what, "write the query as UTF-8")]) from error


def schema(options: Namespace) -> int:
    """Print a JSON Schema, the tables of a store, or SQL for published tables."""
    if options.published is not None:
        from claimflow.flows.store.export import published_views

        print(published_views(options.published), end="")
        return 0
    if options.tables:
        from claimflow.flows.report.terminal import Terminal
        from claimflow.flows.store.query import tables

        Terminal().print_frame(tables(readable_store(options)))
        return 0
    from claimflow.flows.pipeline.schedules import schedules_schema
    from claimflow.flows.pipeline.schema import json_schema

    document = schedules_schema() if options.schedules else json_schema()
    print(json.dumps(document, indent=2, ensure_ascii=False))
    return 0


def stages(options: Namespace) -> int:
    """Print what each stage makes, or the settings of one stage."""
    import polars as pl

    from claimflow.flows.pipeline.stage_list import listed_stages
    from claimflow.flows.quality.json_values import json_text
    from claimflow.flows.report.terminal import Terminal

    found = listed_stages(options.name)
    if options.format == "json":
        write_text(json_text(found), None)
        return 0
    terminal = Terminal()
    if options.name is None:
        rows = [{"stage": one.use, "makes": _makes(one)} for one in found if one.error is None]
        terminal.print_frame(pl.DataFrame(rows))
        for one in found:
            if one.error is not None:
                terminal.print_text(f"{one.use}: {one.error}", indent=2)
    else:
        for one in found:
            terminal.print_line(f"{one.use} ({one.module}) makes {_makes(one)}")
            terminal.print_text(one.description or "", indent=2)
            settings = [
                {
                    "setting": each.name,
                    "default": _default(each),
                    "type": each.type,
                }
                for each in one.settings
            ]
            if settings:
                terminal.print_frame(pl.DataFrame(settings), drop=["type"])
    return 0


def _default(setting: "Setting") -> str:
    if setting.default is None:
        return "required" if setting.required else "none"
    return json.dumps(setting.default, ensure_ascii=False)


def _makes(stage: "ListedStage") -> str:
    metrics = ", ".join(stage.metrics[:2])
    more = f" and {len(stage.metrics) - 2} more" if len(stage.metrics) > 2 else ""
    return f"{stage.makes}: {metrics}{more}" if metrics else str(stage.makes)
