"""`claimflow report`, `claimflow plot` and `claimflow view`: runs as documents, plots and pages."""

import signal
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from claimflow.flows.cli.options import (
    RUN,
    Commands,
    add_command,
    add_format_option,
    add_output_option,
    add_run,
    add_store_options,
    port,
    positive,
)
from claimflow.flows.cli.output import write_bytes, write_message, write_text
from claimflow.flows.cli.stores import readable_run, readable_store, run_named
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from claimflow.flows.report.run_document import RunDocument
    from claimflow.flows.report.vega_lite import Chart
    from claimflow.flows.store.store import Store


def add(commands: Commands) -> None:
    """Declare `report`, `plot` and `view`."""
    parser = add_command(
        commands,
        "report",
        report,
        "write a run as an HTML page, JSON, JUnit XML or Markdown",
        example="latest --format html -o report.html",
    )
    add_run(parser)
    parser.add_argument(
        "--against", metavar="RUN", help="an earlier run: show what changed since (HTML only)"
    )
    add_format_option(parser, "html", "json", "junit", "markdown")
    add_output_option(parser)
    parser.add_argument(
        "--samples",
        type=positive,
        default=1000,
        metavar="N",
        help="include N samples: changed ones, then the lowest scores (default: 1000)",
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "plot",
        plot,
        "write one plot of a run as SVG, PNG or Vega-Lite",
        example="faithfulness --kind trend -o trend.svg",
    )
    parser.add_argument(
        "metrics",
        nargs="*",
        metavar="METRIC",
        help="one metric; any number with --against; a step that verifies claims with --kind "
        "reliability",
    )
    parser.add_argument(
        "--kind",
        choices=["distribution", "trend", "reliability"],
        help="the distribution of its scores (default), its means over the newest runs of the "
        "pipeline, or a step's probabilities against the labels of people",
    )
    parser.add_argument("--run", metavar="RUN", help=f"{RUN} (default: the newest)")
    parser.add_argument(
        "--against", metavar="RUN", help="an earlier run: plot the differences of the means"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="an .svg, .png or .json file",
    )
    add_store_options(parser, live=True)

    parser = add_command(
        commands,
        "view",
        view,
        "serve reports and a SQL page on this machine",
        example="--config configs/quickstart.yaml",
    )
    parser.add_argument(
        "--port",
        type=port,
        default=8765,
        metavar="N",
        help="listen on this port (default: 8765; 0: any free one)",
    )
    add_store_options(parser, live=True)


def report(options: Namespace) -> int:
    """Write the report of a run to a file or to standard output; 8 if the run failed, else 0."""
    if options.output is None and options.format == "html" and sys.stdout.isatty():
        raise InputError([Fault("--format html", "cannot be printed to a terminal", "add -o FILE")])
    from claimflow.flows.report.run_document import RUN_FAILED, RunDocument

    run = RunDocument(*readable_run(options))
    write_text(_document(run, options), options.output)
    return RUN_FAILED if run.failed else 0


def _document(run: "RunDocument", options: Namespace) -> str:
    from claimflow.flows.report.json_document import run_json
    from claimflow.flows.report.junit import run_junit
    from claimflow.flows.report.markdown import run_markdown

    if options.format != "html" and options.against:
        hint = "compare two runs by `claimflow diff`, or write HTML"
        raise InputError([Fault("--against", f"is not for --format {options.format}", hint)])
    if options.format == "json":
        return run_json(run, samples=options.samples)
    if options.format == "junit":
        return run_junit(run)
    if options.format == "markdown":
        return run_markdown(run)
    from claimflow.flows.report.html import html_report

    against = None
    if options.against:
        against = run_named(options, run.store, options.against, before=run.run_id)
    return html_report(run, against=against, samples=options.samples)


def plot(options: Namespace) -> int:
    """Write a plot to the file that `-o` names."""
    _check_plot(options)
    chart = _chart(*readable_run(options), options)
    write_bytes(chart.encoded(options.output.suffix.lower()), options.output)
    return 0


def _check_plot(options: Namespace) -> None:
    from claimflow.flows.report.vega_lite import ending_fault

    faults = []
    if fault := ending_fault(options.output):
        faults.append(fault)
    if not options.against and len(options.metrics) != 1:
        hint = "name one, or another run by --against to compare several"
        faults.append(Fault("METRIC", f"{len(options.metrics)} are named", hint))
    if options.against and options.kind:
        hint = "leave it out, or --against"
        faults.append(Fault(f"--kind {options.kind}", "applies to one run only", hint))
    if faults:
        raise InputError(faults)


def _chart(store: "Store", run_id: str, options: Namespace) -> "Chart":
    from claimflow.flows.quality.comparison import compare
    from claimflow.flows.report.run_charts import comparison_of_runs, metric_chart, step_chart

    if options.against:
        before = run_named(options, store, options.against, before=run_id)
        metrics = options.metrics
        return comparison_of_runs(compare(store, before, run_id, metrics=metrics, place="METRIC"))
    [name] = options.metrics
    if options.kind == "reliability":
        return step_chart(store, run_id, name)
    return metric_chart(
        store,
        run_id,
        name,
        kind=options.kind or "distribution",
        place="METRIC",
        why="`claimflow show` says why",
    )


def view(options: Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; what was labelled by then is in the read copy."""
    from claimflow.flows.store.store import store_version
    from claimflow.flows.viewer.server import ViewServer

    store = readable_store(options)
    store_version(store)
    try:
        with store.reading():
            pass
    except InputError as error:
        # The SQL page reads it all the same.
        write_message(f"claimflow: {error}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ViewServer(store, options.port) as server, suppress(KeyboardInterrupt):
        print(f"{server.url} shows {store.path}; stop it with Ctrl-C", flush=True)
        server.serve_forever()
    return 0
