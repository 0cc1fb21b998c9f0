"""What a run found with its judges' errors taken into account, in words."""

from collections.abc import Iterator, Sequence

from claimflow.flows.engine.calibration.corrections import MOST, Correction
from claimflow.flows.engine.calibration.figures import Figure
from claimflow.flows.engine.calibration.steps import Corrected
from claimflow.flows.pages.words import counted, number


def correction_lines(found: Sequence[Correction]) -> Iterator[str]:
    """A line on each: the mean of a metric, or the share that is entailed, as it was judged and
    as people would say.
    """
    for one in found:
        words = "; ".join(_words(c) for c in one.corrected if _told(c))
        what = f"{one.metric} of {one.step}" if one.metric else f"entailed in {one.step}"
        if one.too_many:
            yield f"{what}: not corrected here, more than {MOST:,} rows: see claimflow calibrate"
        elif words:
            labels = counted(one.labelled, "row")
            yield f"{what}: {words}, by labels on {labels}"


def figure_words(figure: Figure) -> str:
    """`0.812 [0.713, 0.882]`, or a dash."""
    if figure.low is None:
        return number(figure.value)
    return f"{number(figure.value)} [{number(figure.low)}, {number(figure.high)}]"


def _told(one: Corrected) -> bool:
    return one.what not in ("contradicted", "neutral") and one.corrected.value is not None


def _words(one: Corrected) -> str:
    by_sample = " by sample" if one.by else ""
    corrected = figure_words(one.corrected)
    return f"{number(one.judged)}{by_sample} as judged, {corrected} corrected ({one.method})"
