"""`claimflow diff`, `claimflow gate` and `claimflow tag`: runs compared, checked and named."""

from argparse import Namespace

from claimflow.flows.cli.options import (
    RUN,
    Commands,
    add_command,
    add_format_option,
    add_output_option,
    add_pipeline,
    add_store_options,
    positive,
)
from claimflow.flows.cli.output import print_or_write, write_text
from claimflow.flows.cli.stores import named_store, readable_store, run_named
from claimflow.flows.errors import Fault, InputError


def add(commands: Commands) -> None:
    """Declare `diff`, `gate` and `tag`."""
    parser = add_command(
        commands,
        "diff",
        diff,
        "show what changed from one run to another, and why",
        example="main latest --metric faithfulness",
    )
    parser.add_argument("a", nargs="?", metavar="RUN_A", help=f"{RUN} (default: previous)")
    parser.add_argument("b", nargs="?", metavar="RUN_B", help="likewise (default: latest)")
    parser.add_argument(
        "--by",
        metavar="FIELD",
        help="treat samples with the same value of this metadata field as one unit (default:"
        " conversation_id, where samples have it)",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="M",
        help="compare this metric only; may be repeated",
    )
    add_format_option(parser, "table", "json", "markdown")
    add_output_option(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        default=10,
        metavar="N",
        help="show N scores and N claims (default: 10); JSON has all",
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "gate",
        gate,
        "check a finished run against the gates of a pipeline",
        example="configs/quickstart.yaml --run latest",
    )
    add_pipeline(parser)
    parser.add_argument("--run", metavar="RUN", help=f"{RUN} (default: latest)")

    parser = add_command(
        commands, "tag", tag, "give a run a name, such as main", example="latest main"
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help=RUN)
    parser.add_argument("name", nargs="?", metavar="NAME", help="letters, digits, points, _ and -")
    parser.add_argument("--list", action="store_true", help="list the names instead")
    parser.add_argument("--remove", metavar="NAME", help="remove a name; its run stays")
    add_store_options(parser)


def diff(options: Namespace) -> int:
    """Compare run `options.b` with run `options.a`."""
    from claimflow.flows.quality.comparison import as_json, compare
    from claimflow.flows.report.markdown import comparison_markdown
    from claimflow.flows.report.terminal import print_comparison
    from claimflow.flows.store.runs import LATEST, PREVIOUS, pipeline_and_start

    store = readable_store(options)
    pipeline = None
    if options.a not in (None, LATEST, PREVIOUS):
        named = run_named(options, store, options.a)
        with store.reading() as connection:
            pipeline, _ = pipeline_and_start(connection, named)
    b = run_named(options, store, options.b or LATEST, pipeline=pipeline)
    a = run_named(options, store, options.a or PREVIOUS, before=b)
    comparison = compare(store, a, b, by=options.by, metrics=options.metric)
    limit = options.limit
    if options.format == "json":
        write_text(as_json(comparison), options.output)
    elif options.format == "markdown":
        write_text(comparison_markdown(comparison, limit=limit), options.output)
    else:
        print_or_write(
            lambda terminal: print_comparison(terminal, comparison, limit=limit), options.output
        )
    return 0


def gate(options: Namespace) -> int:
    """Evaluate the gates on a run, and return its exit code as `run` does, but not 1.

    Without `--run` it is the newest run of the pipeline that is done or failed and not partial.
    """
    from claimflow.flows.files import resolved
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.yaml_source import load_yaml
    from claimflow.flows.quality.gates import evaluate_gates
    from claimflow.flows.report.run_document import RUN_FAILED, RunDocument, gate_exit_code
    from claimflow.flows.report.terminal import Terminal, print_gates
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.runs import LATEST, newest_run_of
    from claimflow.flows.store.store import Store

    pipeline = build_pipeline(load_yaml(options.config))
    if not pipeline.gates:
        hint = "add gates:, for example faithfulness: {min: 0.8}"
        raise InputError([Fault(str(options.config), "has no gates", hint)])
    store = Store(resolved(options.store or pipeline.store))
    newest = None if options.run else newest_run_of(store, pipeline.name)
    run_id = newest or run_named(options, store, options.run or LATEST)
    outcomes = evaluate_gates(store, run_id, pipeline.gates, partial=True)
    refresh_read_copy(store)
    terminal = Terminal()
    run = RunDocument(store, run_id)
    partial = f", partial: {run.head.partial}" if run.head.partial else ""
    terminal.print_line(f"run {run_id}{partial}")
    if run.failed:
        terminal.print_line(run.failed, "bold")
    print_gates(terminal, outcomes)
    return RUN_FAILED if run.failed else gate_exit_code(outcomes)


def tag(options: Namespace) -> int:
    """Name a run, list the names, or remove one."""
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.store.read_copy import refresh_read_copy
    from claimflow.flows.store.runs import add_tag, remove_tag, tags

    store = named_store(options)
    if options.list:
        Terminal().print_frame(tags(store))
        return 0
    if options.remove:
        remove_tag(store, options.remove)
        print(f"tag {options.remove} is removed")
    elif options.run and options.name:
        run = run_named(options, store, options.run)
        add_tag(store, run, options.name)
        print(f"{options.name} is run {run}")
    else:
        hint = "write claimflow tag RUN NAME, or --list"
        raise InputError([Fault("tag", "needs a run and a name", hint)])
    refresh_read_copy(store)
    return 0
