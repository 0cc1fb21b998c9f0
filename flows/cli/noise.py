"""`claimflow noise`: how far scores vary from one evaluation of the same samples to the next."""

import argparse
import json
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from claimflow.flows.cli.options import (
    Commands,
    add_command,
    add_pipeline,
    add_redact_option,
    positive,
)
from claimflow.flows.cli.output import write_message
from claimflow.flows.cli.plan import budget_lines, total_line
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.formatting import format_count

if TYPE_CHECKING:
    from claimflow.flows.quality.noise import Design, MetricSpread
    from claimflow.flows.quality.variance import Source

_SOURCES: "Final[tuple[Source, ...]]" = ("sampling", "decomposition", "verification")


def add(commands: Commands) -> None:
    """Declare `noise`."""
    parser = add_command(
        commands,
        "noise",
        noise,
        "measure how far scores vary when the same judge is asked again",
        example="configs/llm/quickstart.yaml --repeats 5 --limit 10",
    )
    add_pipeline(parser)
    parser.add_argument(
        "--repeats",
        type=_two_or_more,
        required=True,
        metavar="K",
        help="how often every question to a judge is asked: at least 2, better 5",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=30,
        metavar="N",
        help="take the first N samples (default: 30)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_redact_option(parser)


def _two_or_more(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("must be 2 or more")
    return number


def noise(options: Namespace) -> int:
    """Announce the calls, make them, and print the parts of every metric's variance.

    Returns 1 when some score failed, else 0.
    """
    from claimflow.flows.cli.progress import progress_observer
    from claimflow.flows.quality.noise import estimate_calls, measure_noise
    from claimflow.flows.runner.embedded_models import fetch_models
    from claimflow.flows.runner.prepare import prepare
    from claimflow.flows.store.store import migrate
    from claimflow.stages.rows import Score

    prepared = fetch_models(prepare(options.config, store=options.store), write_message)
    if prepared.nothing_selected is not None:
        hint = "noise is measured with the samples that the next run would have"
        raise InputError([Fault(str(options.config), prepared.nothing_selected, hint)])
    if not any(step.stage.makes is Score for step in prepared.pipeline.steps):
        hint = "add a step that makes some, such as faithfulness"
        raise InputError([Fault(str(options.config), "no step makes scores", hint)])
    store = prepared.store
    migrate(store)
    samples = next(prepared.samples.shards(options.limit))
    design, estimates = estimate_calls(prepared, store, samples, options.repeats)
    counts = f"{samples.height:,} of {format_count(prepared.samples.count, 'sample')}"
    write_message(f"{counts}, {_design_line(design)}")
    if estimates:
        write_message(total_line(estimates))
        for line in budget_lines(prepared.pipeline, estimates):
            write_message(line)
    with progress_observer(store) as observer:
        spreads = measure_noise(
            prepared, store, samples, options.repeats, observer, redact=options.redact
        )
    if options.json:
        document = _document(spreads, design)
        counted_samples = {"samples": samples.height, "of": prepared.samples.count}
        print(json.dumps(counted_samples | document, indent=2))
    else:
        _print_spreads(spreads)
    return 1 if any(spread.failed for spread in spreads) else 0


def _design_line(design: "Design") -> str:
    decompositions, verifications = design
    if decompositions == verifications == 1:
        return "nothing to repeat: no judge is asked"
    if decompositions == 1:
        return f"decomposition is deterministic, {format_count(verifications, 'verification')}"
    if verifications == 1:
        return f"{format_count(decompositions, 'decomposition')}, verification is deterministic"
    return f"{format_count(decompositions, 'decomposition')}, each verified {verifications} times"


def _print_spreads(spreads: "list[MetricSpread]") -> None:
    from claimflow.flows.report.terminal import Terminal

    figures = ("mean", "between samples", "decomposition", "verification", "smallest difference")
    right = (*figures, "scored", "undefined", "failed")
    rows = [
        [
            _name(spread, spreads),
            _format(spread.mean),
            *(_source_cell(spread, source) for source in _SOURCES),
            "any" if spread.detectable == 0 else _format(spread.detectable),
            *(f"{count:,}" for count in (spread.scored, spread.undefined, spread.failed)),
        ]
        for spread in spreads
    ]
    terminal = Terminal()
    terminal.print_table(
        ["metric", *right],
        rows,
        right=right,
        drop=("failed", "undefined", "scored", "mean", "between samples"),
    )
    for line in _notes(spreads):
        terminal.print_line(line)


def _name(spread: "MetricSpread", spreads: "list[MetricSpread]") -> str:
    """The metric, after its step where several steps make it."""
    steps = {one.step for one in spreads if one.metric == spread.metric}
    return spread.metric if len(steps) == 1 else f"{spread.step}.{spread.metric}"


def _source_cell(spread: "MetricSpread", source: "Source") -> str:
    """The standard deviation that a source causes, and its share of the variance."""
    if source != "sampling" and source not in spread.varies:
        return "deterministic: 0"
    deviation, share = _deviation(spread, source), _share(spread, source)
    return _format(deviation) + ("" if share is None else f" ({share:.0%})")


def _deviation(spread: "MetricSpread", source: "Source") -> float | None:
    variance: float | None = getattr(spread.parts, source, None)
    return None if variance is None else variance**0.5


def _share(spread: "MetricSpread", source: "Source") -> float | None:
    """The share of the variance that a source causes; None where there is no variance."""
    if spread.parts is None:
        return None
    parts = [value or 0.0 for value in spread.parts[:3]]
    return parts[_SOURCES.index(source)] / sum(parts) if sum(parts) else None


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _notes(spreads: "list[MetricSpread]") -> Iterator[str]:
    yield (
        "of each part: the standard deviation of one sample's score, and its share of the variance"
    )
    yield (
        "smallest difference: what the means of two runs over all samples must differ by for a "
        "paired test at 5 % to find it 4 times in 5"
    )
    for spread in spreads:
        for source in spread.parts.negative if spread.parts else ():
            part = "between samples" if source == "sampling" else source
            yield (
                f"{_name(spread, spreads)}: {part} came out below 0 and counts as 0; "
                "repeat more often for a better estimate"
            )


def _document(spreads: "list[MetricSpread]", design: "Design") -> dict[str, Any]:
    return {
        "decompositions": design.decompositions,
        "verifications": design.verifications,
        "metrics": [
            {
                "metric": _name(spread, spreads),
                "mean": spread.mean,
                "deviation": {name: _deviation(spread, name) for name in _SOURCES},
                "share": {name: _share(spread, name) for name in _SOURCES},
                "deterministic": [n for n in _SOURCES[1:] if n not in spread.varies],
                "below_0": list(spread.parts.negative) if spread.parts else [],
                "smallest_difference": spread.detectable,
                "of": spread.of,
                "scored": spread.scored,
                "undefined": spread.undefined,
                "failed": spread.failed,
            }
            for spread in spreads
        ],
    }
