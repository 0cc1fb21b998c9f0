"""The plots of a report, each as SVG that takes the page's colours."""

from collections.abc import Iterator, Sequence

from claimflow.flows.engine.calibration.corrections import Correction
from claimflow.flows.engine.compare.comparison import Comparison
from claimflow.flows.engine.report.past import PastMean
from claimflow.flows.plots.comparison import apart, comparison
from claimflow.flows.plots.distribution import distribution
from claimflow.flows.plots.reliability import Believed, reliability
from claimflow.flows.plots.trend import Point, trend
from claimflow.flows.plots.writing import svg


def distribution_svg(values: Sequence[float], metric: str) -> str | None:
    """How the scores of a metric lie; None where there is none."""
    return svg(distribution(values, label=metric, width=200, height=44)) if values else None


def trend_svg(past: Sequence[PastMean], metric: str) -> str | None:
    """The means of a metric over the runs; None where fewer than two have one."""
    if sum(one.mean is not None for one in past) < 2:
        return None
    points = [
        # Two runs of one minute are told apart by the end of their ids.
        Point(f"{one.started_at:%m-%d %H:%M} {one.run_id[-4:]}", one.mean, one.low, one.high)
        for one in past
    ]
    return svg(trend(points, label=metric, width=240, height=44))


def reliability_svgs(found: Sequence[Correction]) -> Iterator[str]:
    """Whether labels bear out the probabilities of a judge, of each step that has some."""
    for one in found:
        if one.reliability is not None:
            bins = [Believed(a.mean, *a.entailed, a.n) for a in one.reliability.bins]
            yield svg(reliability(bins, label=f"p entailed, {one.step}"))


def comparison_svg(found: Comparison) -> str | None:
    """How far the means lie apart, metric by metric; None where nothing is in both runs."""
    both = [one for one in apart(found.metrics) if one.difference is not None]
    return svg(comparison(both, label="B - A")) if both else None
