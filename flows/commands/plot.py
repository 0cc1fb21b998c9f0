"""`claimflow plot`: one plot of a run as SVG or PNG."""

from argparse import Namespace

from claimflow.flows.commands.output import write_file
from claimflow.flows.commands.stores import read_store
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.quality.calibration import reliability_of_step
from claimflow.flows.quality.comparison import compare
from claimflow.flows.quality.metric_differences import Runs
from claimflow.flows.report.overview import named_metrics, past_means, scored_values
from claimflow.flows.report.plots import (
    Believed,
    Chart,
    Point,
    apart,
    comparison,
    distribution,
    png,
    reliability,
    svg,
    trend,
)
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store


def main(options: Namespace) -> int:
    """Write a plot to the file that was named."""
    _check(options)
    store = read_store(options)
    run_id = chosen_run(store, options.run)
    chart = (
        _comparison(store, run_id, options)
        if options.against
        else _of_step(store, run_id, options.metrics[0])
        if options.kind == "reliability"
        else _of_metric(store, run_id, options.metrics[0], options.kind)
    )
    write_file(svg(chart).encode() if _suffix(options) == ".svg" else png(chart), options.output)
    return 0


def _check(options: Namespace) -> None:
    faults = []
    if _suffix(options) not in (".svg", ".png"):
        what, hint = "is neither SVG nor PNG", "let its name end in .svg or .png"
        faults.append(Fault(str(options.output), what, hint))
    if not options.against and len(options.metrics) != 1:
        hint = "name one, or another run by --against to compare several"
        faults.append(Fault("METRIC", f"{len(options.metrics)} are named", hint))
    if options.against and options.kind:
        hint = "leave it out, or --against"
        faults.append(Fault(f"--kind {options.kind}", "is of one run", hint))
    if faults:
        raise InputError(faults)


def _suffix(options: Namespace) -> str:
    suffix: str = options.output.suffix
    return suffix.lower()


def _of_metric(store: Store, run_id: str, name: str, kind: str | None) -> Chart:
    [metric] = named_metrics(store, run_id, [name], place="METRIC")
    if kind != "trend":
        values = scored_values(store, run_id, metric)
        if not values:
            what, hint = f"no sample has a score of {name}", "`claimflow show` says why"
            raise InputError([Fault("METRIC", what, hint)])
        return distribution(values, label=name)
    past = past_means(store, run_id).get(metric, [])
    if all(one.mean is None for one in past):
        why = "`claimflow show` says why" if past else "add a step that uses summarize_scores"
        what, hint = f"no run has a mean of {name}", why
        raise InputError([Fault("--kind trend", what, hint)])
    points = [Point(one.run_id, one.mean, one.low, one.high) for one in past]
    return trend(points, label=name)


def _of_step(store: Store, run_id: str, step: str) -> Chart:
    bins = reliability_of_step(store, run_id, step).bins
    points = [Believed(one.mean, *one.entailed, one.n) for one in bins]
    return reliability(points, label=f"p entailed, {step}")


def _comparison(store: Store, run_id: str, options: Namespace) -> Chart:
    before = chosen_run(store, options.against, before=run_id)
    found = compare(store, Runs(before, run_id), metrics=options.metrics)
    return comparison(apart(found.metrics), label=f"{run_id} less {before}")
