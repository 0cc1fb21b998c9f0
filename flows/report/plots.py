"""The forms of charts: what they show, and the sentences that are read aloud of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, cycle
from typing import Final, NamedTuple

import numpy as np

from claimflow.flows.quality.corrected_rates import Bin
from claimflow.flows.quality.metric_differences import MetricDifference
from claimflow.flows.report.run_document import PastMean
from claimflow.flows.report.vega_lite import (
    IN_ORDER,
    LINE,
    ROW,
    Chart,
    Part,
    dashed,
    ends_of_names,
    intervals,
    layer,
    links,
    marks,
    names,
    numbers,
    slanted_names,
    told_number,
)


def _with_interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return told_number(value)
    return f"{told_number(value)}, 95 % interval {told_number(low)} to {told_number(high)}"


def comparison_chart(
    metrics: Sequence[MetricDifference],
    *,
    label: str = "difference of the means",
    leads_to: Callable[[MetricDifference], str] | None = None,
) -> Chart:
    """Each metric's difference, b - a, and its interval against a line at 0, in the given order.

    `label` is the title of the axis; each metric is 24 pixels high. A metric that is not scored in
    both runs has an empty row. With `leads_to` a point is a link to the address that this returns.
    """
    rows: list[Part] = [
        {
            "metric": one.metric,
            "mean": found.mean,
            "low": found.low,
            "high": found.high,
            "told": f"{one.metric}: {_with_interval(found.mean, found.low, found.high)}",
            **({"link": leads_to(one)} if leads_to else {}),
        }
        for one in metrics
        if (found := one.difference)
    ]
    ends = [row[end] for row in rows for end in ("mean", "low", "high")]
    # Few ticks on a narrow plot: Vega leaves out labels that overlap, and 0 could be among these.
    x = numbers("mean", label, [0.0, *ends])
    x["axis"] |= {"tickCount": {"expr": "max(2, width / 80)"}, "labelOverlap": False}
    ends_of = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    points = [marks("circle", where="!datum.link", told=True, size=60)]
    if leads_to:
        points += [marks("circle", where="datum.link", size=60), links("circle", size=400)]
    return Chart(
        "differences",
        f"{label} of two runs, with 95 % intervals; metrics: {len(metrics):,}",
        (360, ROW * max(len(metrics), 1)),
        [
            dashed({"y": None}, [{"mean": 0}]),
            intervals(ends_of, thickness=3),
            *points,
        ],
        data={"values": rows},
        encoding={"x": x, "y": names("metric", None, [one.metric for one in metrics])},
    )


class PairedScore(NamedTuple):
    """A score of a sample in two runs, and the address that its point leads to."""

    sample: str
    a: float
    b: float
    link: str


def paired_chart(scores: Sequence[PairedScore], *, label: str) -> Chart:
    """The score of each sample in run b over that in run a, against the line of equal scores.

    A point above the line has moved up. `label` is the name of the metric, each point is a link.
    """
    rows = [
        {
            "a": one.a,
            "b": one.b,
            "link": one.link,
            "told": f"{one.sample}: A {told_number(one.a)}, B {told_number(one.b)}",
        }
        for one in scores
    ]
    ends = [value for one in scores for value in (one.a, one.b)]
    low, high = min(0.0, *ends), max(1.0, *ends)
    up = {"field": "up"}
    return Chart(
        "points",
        f"{label} in B over {label} in A, by sample; points: {len(rows):,}",
        (220, 220),
        [
            dashed({"x2": up, "y2": up}, [{"a": low, "b": low, "up": high}]),
            marks("circle", size=40),
            links("circle", size=150),
        ],
        data={"values": rows},
        encoding={
            "x": numbers("a", f"{label}, A", [low, high], tickCount=5),
            "y": numbers("b", f"{label}, B", [low, high], tickCount=5),
        },
    )


_BINS: Final = 20


def distribution_chart(
    values: Sequence[float],
    *,
    label: str = "score",
    titled: bool = True,
    width: int = 300,
    height: int = 100,
    leads_to: Callable[[float, float], str] | None = None,
) -> Chart:
    """A histogram: 20 bars from 0 to 1, or over the range of `values` where it is wider.

    A bar includes its lower end; only the last one includes its upper end. `label` is the title
    of the axis of scores, unless the axes are not `titled`; the size is in pixels without
    axes. With `leads_to` a bar is a link to the address that this returns for its least and its
    greatest value.
    """
    within = within_unit(values)
    # Not numpy's edges: the fourth bar begins at exactly 0.15.
    nice = [place / _BINS for place in range(_BINS + 1)]
    counts, edges = np.histogram(values, nice if within else _BINS)
    rows: list[Part] = []
    for low, up, n in zip(edges.tolist(), edges.tolist()[1:], counts.tolist(), strict=False):
        told = f"{label}: {told_number(low)} \u2013 {told_number(up)}; samples: {n:,}"
        row = {"low": low, "up": up, "n": n, "told": told}
        if leads_to is not None and n:
            last = up == edges[-1]
            inside = [one for one in values if low <= one and (one < up or last)]
            row["link"] = leads_to(min(inside), max(inside))
        rows.append(row)
    layers = [marks("bar", where="!datum.link", told=True)]
    if leads_to is not None:
        # The whole column can be hit, since a bar of one sample may be a pixel high.
        column = links("rect", {"y": {"value": 0}, "y2": {"value": "height"}})
        layers += [marks("bar", where="datum.link"), column]
    x = numbers("low", label if titled else None, [], tickCount=5) | {"bin": "binned"}
    y = numbers("n", "samples" if titled else None, [], tickCount=3, tickMinStep=1, format=",d") | {
        "stack": None
    }
    y["scale"]["zero"] = True
    if 0 < (most := max(counts.tolist())) < 3:
        # The Vega of `vl_convert` makes steps that are shorter than `tickMinStep`.
        y["axis"]["values"] = list(range(most + 1))
    return Chart(
        "histogram",
        f"Distribution of {label}; samples: {len(values):,}",
        (width, height),
        layers,
        data={"values": rows},
        encoding={"x": x, "x2": {"field": "up"}, "y": y},
    )


def reliability_chart(bins: Sequence[Bin], *, label: str = "p entailed") -> Chart:
    """A reliability diagram: the share that people call entailed, by predicted probability.

    Points on the diagonal are calibrated; below it the judge is overconfident. The size of a
    point grows with its rows. `label` is the title of the axis.
    """
    share = "entailed by people"
    rows = [
        {
            "p": one.mean,
            "share": one.entailed.value,
            "low": one.entailed.low,
            "high": one.entailed.high,
            "n": one.n,
            "told": f"{label}: {told_number(one.mean)}; {share}: "
            f"{_with_interval(one.entailed.value, one.entailed.low, one.entailed.high)}; "
            f"rows: {one.n:,}",
        }
        for one in bins
        if one.entailed.value is not None
    ]
    x, y = numbers("p", label, [0.0, 1.0]), numbers("share", share, [0.0, 1.0])
    sizes = {"domain": [0, max((one.n for one in bins), default=1)], "range": [20, 200]}
    size = {"field": "n", "type": "quantitative", "scale": sizes, "legend": None}
    up = {"field": "up"}
    number = sum(one.n for one in bins)
    return Chart(
        "reliability diagram",
        f"Share entailed by people over {label}, {number:,} rows, with 95 % intervals",
        (220, 220),
        [
            dashed({"x2": up, "y2": up}, [{"p": 0, "share": 0, "up": 1}]),
            intervals({"y": y | {"field": "low"}, "y2": {"field": "high"}}, thickness=2),
            marks("circle", {"size": size}, told=True),
        ],
        data={"values": rows},
        encoding={"x": x, "y": y},
    )


class GateLimit(NamedTuple):
    """A gate of a run: its rule, its outcome, and the mean at which it would be at its limit."""

    rule: str
    outcome: str
    line: float | None

    @property
    def sign(self) -> str:
        """The sign that stands beside the colour of an outcome."""
        return {"pass": "✓", "fail": "✗"}.get(self.outcome, "?")


class TrendDetail(NamedTuple):
    """What a trend may show of a run: where its point leads, a note beside it, and its gates."""

    link: str
    note: str
    gates: Sequence[GateLimit]


def trend_chart(
    means: Mapping[str, PastMean],
    *,
    label: str = "mean",
    width: int = 480,
    height: int = 160,
    details: Mapping[str, TrendDetail] | None = None,
) -> Chart:
    """The means of runs, by their names on the axis: evenly spaced, each with its interval.

    A run without a mean leaves a gap in the line. `label` is the title of the axis, which need
    not begin at 0; the size is in pixels without axes. `details` are by the names of runs.
    """
    shown = details or {}
    limits = _gate_rows({name: shown[name].gates for name in means if name in shown})
    bounds = [end for one in means.values() for end in (one.mean, one.low, one.high)]
    bounds += [row["mean"] for rows in limits.values() for row in rows]
    x = slanted_names("run", None, list(means))
    y = numbers("mean", label, bounds, tickCount=max(2, height // 30))
    return _trend(means, label, (width, height), x, y, shown, limits)


def small_trend_chart(
    means: Mapping[str, PastMean],
    *,
    label: str,
    size: tuple[int, int],
    axes: bool = True,
    details: Mapping[str, TrendDetail] | None = None,
) -> Chart:
    """As `trend_chart`, with times at both ends alone, and from 0 to 1 if all of it is there.

    So charts of one column can be compared, and a narrow interval looks narrow. Without `axes`
    another scale is as long as what it shows. `means` are by `MM-DD HH:MM` and what tells apart
    the runs of one minute.
    """
    bounds = [end for one in means.values() for end in (one.mean, one.low, one.high)]
    known = [end for end in bounds if end is not None]
    x = ends_of_names("run", list(means), letters=len("MM-DD HH:MM"))
    y = numbers("mean", None, known, tickCount=2)
    if within_unit(known):
        y["scale"] = {"domain": [0, 1]}
    if not axes:
        domain = y["scale"].get("domain", [min(known), max(known)])
        y["scale"] = {"domain": domain}
        x["axis"] = y["axis"] = None
    return _trend(means, label, size, x, y, details or {}, {})


def within_unit(values: Iterable[float]) -> bool:
    """Whether all of the values are from 0 to 1, as most metrics are."""
    return all(0 <= value <= 1 for value in values)


def _trend(
    means: Mapping[str, PastMean],
    label: str,
    size: tuple[int, int],
    x: Part,
    y: Part,
    shown: Mapping[str, TrendDetail],
    limits: Mapping[str, Sequence[Part]],
) -> Chart:
    rows: list[Part] = []
    for at, (name, one) in enumerate(means.items()):
        row = {"at": at, "run": name, "mean": one.mean, "low": one.low, "high": one.high}
        if one.mean is not None:
            row["told"] = f"{name}: {label} {_with_interval(one.mean, one.low, one.high)}"
            if name in shown:
                row |= {"link": shown[name].link, "note": shown[name].note}
        rows.append(row)
    heights = (-_ABOVE * place for place in count(1))
    noted = any(one.note for one in shown.values())
    # A point hides an interval that is shorter.
    point = 40 if size[1] >= _HIGH else 12
    layers = [
        *(_note_layers(x, next(heights)) if noted else ()),
        intervals({"y": y | {"field": "low"}, "y2": {"field": "high"}}, thickness=2),
        *_gate_layers(limits, x, f"width / {max(len(means), 1)}", heights),
        marks("line", {"order": IN_ORDER}, strokeWidth=2, invalid="break-paths-filter-domains"),
        marks("circle", where="isValid(datum.mean) && !datum.link", told=True, size=point),
    ]
    if shown:
        layers += [
            marks("circle", where="datum.link", size=point),
            links("circle", size=450),
        ]
    return Chart(
        "trend",
        f"{label} over the runs, with 95 % intervals; runs: {len(means):,}",
        size,
        layers,
        data={"values": rows},
        encoding={"x": x, "y": y},
    )


_HIGH: Final = 100
"""Pixels of a plot in which an interval is longer than a large point."""


_ABOVE: Final = 15
"""Pixels of a line of words above a plot, where they lie on nothing that is drawn."""


def _note_layers(x: Part, height: int) -> Iterator[Part]:
    """The notes of runs in a line above the plot, each over a line down to its run."""
    ends = {"x": x, "y": {"value": height / 2}, "y2": {"value": "height"}}
    yield layer("rule", ends, where="datum.note", color="currentColor", opacity=0.25)
    note = {"x": x, "y": {"value": height}, "text": {"field": "note", "type": "nominal"}}
    yield layer("text", note, where="datum.note", baseline="middle")


def _gate_rows(gates: Mapping[str, Sequence[GateLimit]]) -> dict[str, list[Part]]:
    """The limits of gates by their rules, with runs and signs of the outcomes."""
    found: dict[str, list[Part]] = {}
    for run, limits in gates.items():
        for gate in limits:
            if gate.line is not None:
                passed = gate.outcome == "pass"
                row = {"run": run, "mean": gate.line, "sign": gate.sign, "passed": passed}
                found.setdefault(gate.rule, []).append(row)
    return found


_DASHES: Final = ((5, 3), (2, 3), (10, 3), (10, 3, 2, 3))
"""Dashes of the lines of gates, which tell these apart."""


def _gate_layers(
    limits: Mapping[str, Sequence[Part]], x: Part, apart: str, heights: Iterator[int]
) -> Iterator[Part]:
    """The limits of each gate, as lines as wide as their runs.

    Above the plot, at the next two of the `heights`, are the signs of its outcomes, and its rule
    beside a piece of such a line.
    """
    wide = {"x": x | {"bandPosition": 0}, "x2": {"field": "run", "bandPosition": 1}}
    # Where runs are too close for every sign, what did not pass is marked.
    shown = ("!datum.passed", f"datum.passed && {apart} >= {LINE}")
    for (rule, rows), dash in zip(limits.items(), cycle(_DASHES), strict=False):
        yield dashed(wide, rows, dash)
        at = {"x": x, "y": {"value": next(heights)}}
        sign = at | {"text": {"field": "sign", "type": "nominal"}}
        for where in shown:
            signs = layer("text", sign, where=where, baseline="middle")
            yield signs | {"data": {"values": list(rows)}}
        y = {"y": {"value": next(heights)}}
        yield dashed({"x": {"value": 0}, "x2": {"value": _SAMPLE}} | y, [{}], dash)
        name = {"x": {"value": _SAMPLE + 6}, "text": {"field": "rule", "type": "nominal"}} | y
        # No wider than the plot, since what is wider would narrow it.
        limit = {"expr": f"width - {_SAMPLE + 6}"}
        words = layer("text", name, align="left", baseline="middle", limit=limit)
        yield words | {"data": {"values": [{"rule": rule}]}}


_SAMPLE: Final = 28
"""Pixels of the piece of a line beside the rule of a gate."""
