"""`claimflow noise`: how far scores vary from one evaluation of the same samples to the next."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rich import box
from rich.table import Table

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.plan import beyond, total
from claimflow.flows.commands.progress import progress_observer
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.quality.noise import Design, Spread, count_calls, first_samples, measure
from claimflow.flows.quality.variance import Source
from claimflow.flows.report.text import counted
from claimflow.flows.runner.embedded_models import fetched
from claimflow.flows.runner.prepare import Prepared, open_store, prepare
from claimflow.stages.rows import Score


def main(options: Namespace) -> int:
    """Say what it asks, ask it, print the parts of every metric's variance.

    1 when some score failed, else 0.
    """
    say = partial(print, file=sys.stderr, flush=True)
    prepared = fetched(prepare(options.config), say)
    if not any(step.stage.makes is Score for step in prepared.pipeline.steps):
        hint = "add a step that makes some, such as faithfulness"
        raise InputError([Fault(str(options.config), "no step makes scores", hint)])
    store = open_store(prepared, options.store)
    samples = first_samples(prepared, options.limit)
    design, estimates = count_calls(prepared, store, samples, options.repeats)
    counts = f"{samples.height:,} of {counted(prepared.samples.count, 'sample')}"
    for line in (f"{counts}, {_words(design)}", *_costs(prepared, estimates)):
        say(line)
    with progress_observer(store) as observer:
        spreads = measure(
            prepared, store, samples, options.repeats, observer, redact=options.redact
        )
    if options.json:
        print(json.dumps(_json(spreads, design, samples.height, prepared), indent=2))
    else:
        _print(spreads)
    return 1 if any(spread.failed for spread in spreads) else 0


def _words(design: Design) -> str:
    """The design in a line."""
    of, each = design
    if of == each == 1:
        return "nothing to repeat: no judge is asked"
    if of == 1:
        return f"decomposition is deterministic, {counted(each, 'verification')}"
    if each == 1:
        return f"{counted(of, 'decomposition')}, verification is deterministic"
    return f"{counted(of, 'decomposition')}, each verified {each} times"


def _costs(prepared: Prepared, estimates: Mapping[str, Estimate]) -> Iterator[str]:
    if estimates:
        yield total(estimates)
        yield from beyond(prepared.pipeline, estimates)


def _print(spreads: list[Spread]) -> None:
    console = standard_output()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("metric")
    columns = ("mean", "between samples", "decomposition", "verification", "smallest difference")
    for name in (*columns, "scored", "undefined", "failed"):
        table.add_column(name, justify="right")
    for spread in spreads:
        parts = (_part(spread, name) for name in _SOURCES)
        counts = (f"{n:,}" for n in (spread.scored, spread.undefined, spread.failed))
        least = _least(spread)
        table.add_row(shown(_name(spread, spreads)), _number(spread.mean), *parts, least, *counts)
    console.print(table)
    for line in _notes(spreads):
        console.print(shown(line), soft_wrap=True)


_SOURCES: tuple[Source, ...] = ("sampling", "decomposition", "verification")


def _name(spread: Spread, spreads: list[Spread]) -> str:
    makers = {one.step for one in spreads if one.metric == spread.metric}
    return spread.metric if len(makers) == 1 else f"{spread.step}.{spread.metric}"


def _part(spread: Spread, source: Source) -> str:
    """A standard deviation and its share of the variance."""
    if source != "sampling" and source not in spread.varies:
        return "deterministic: 0"
    variance = getattr(spread.parts, source, None)
    if variance is None or spread.parts is None:
        return "-"
    share = _share(spread, source)
    return _number(variance**0.5) + ("" if share is None else f" ({share:.0%})")


def _share(spread: Spread, source: Source) -> float | None:
    """The part of the variance that comes from a source; None where there is none."""
    found = [] if spread.parts is None else list(spread.parts[:3])
    whole = sum(value or 0.0 for value in found)
    return (found[_SOURCES.index(source)] or 0.0) / whole if whole else None


def _least(spread: Spread) -> str:
    return "any" if spread.detectable == 0 else _number(spread.detectable)


def _notes(spreads: list[Spread]) -> Iterator[str]:
    yield (
        "of each part: the standard deviation of one sample's score, and its share of the variance"
    )
    yield (
        "smallest difference: what the means of two runs over all samples must differ by for a "
        "paired test at 5 % to find it 4 times in 5"
    )
    for spread in spreads:
        for source in spread.parts.negative if spread.parts else ():
            what = "between samples" if source == "sampling" else source
            yield (
                f"{_name(spread, spreads)}: {what} came out below 0 and counts as 0; "
                "more repeats tell more"
            )


def _json(
    spreads: list[Spread], design: Design, samples: int, prepared: Prepared
) -> dict[str, Any]:
    return {
        "samples": samples,
        "of": prepared.samples.count,
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


def _deviation(spread: Spread, source: Source) -> float | None:
    variance: float | None = getattr(spread.parts, source, None)
    return None if variance is None else variance**0.5


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
