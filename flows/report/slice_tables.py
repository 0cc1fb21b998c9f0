"""The means of metrics by the values of a metadata field, compared with those over all samples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

Level = Literal["far-worse", "worse", "same", "better", "far-better"]

SIGNS: Final[Mapping[Level, str]] = {
    "far-worse": "▼▼",
    "worse": "▼",
    "same": "=",
    "better": "▲",
    "far-better": "▲▲",
}

NOTE: Final = (
    "A line is one value of the field. Each cell has the mean of a metric over the samples with "
    "this value, its distance from the mean over all samples as a sign, and how many of them were "
    "scored. ▲ better than over all samples, ▼ worse, = nearly equal; ▲▲ and ▼▼: by a tenth of the "
    "scale or more. The lines are sorted by the mean of these distances over all metrics of the "
    "line, the worst value first; the title of a column sorts by that metric alone."
)
"""How a line of the tables is to be read, and how the lines are sorted."""

_SAME: Final = 0.02
_FAR: Final = 0.1


class SliceCell(NamedTuple):
    """A row of `summaries`, and how much better it is than over all, as a share of the scale.

    `better` is None where one of the two has no mean. `change` is the difference from the same mean
    of an earlier run, None without one.
    """

    row: Mapping[str, Any]
    better: float | None
    change: float | None

    @property
    def level(self) -> Level | None:
        """How far the mean is from that over all samples."""
        if self.better is None:
            return None
        # A difference of exactly a tenth is a little less in floating point.
        distance = abs(self.better) + 1e-9
        if distance < _SAME:
            return "same"
        if self.better < 0:
            return "far-worse" if distance >= _FAR else "worse"
        return "far-better" if distance >= _FAR else "better"


class SliceMetric(NamedTuple):
    """A column: its mean over all samples, and whether a lower one is better."""

    name: str
    mean: float | None
    lower: bool


class SliceTable(NamedTuple):
    """The table of one metadata field: `lines` are its values with a cell or None by metric.

    `rows` are the same rows of `summaries` in their stored order.
    """

    field: str
    metrics: list[SliceMetric]
    lines: list[tuple[str | None, list[SliceCell | None]]]
    rows: list[Mapping[str, Any]]


def slice_tables(
    rows: Sequence[Mapping[str, Any]],
    means: Sequence[Mapping[str, Any]],
    lower: frozenset[str],
    earlier: Sequence[Mapping[str, Any]] = (),
) -> Iterator[SliceTable]:
    """A table for each field of the slices in `rows`; `means` are the rows over all samples.

    The value whose metrics are worse than over all by most, in the mean, comes first. `lower` are
    the metrics of which a lower mean is better, `earlier` the slices of the run that this one is
    compared with.
    """
    over_all = {row["name"]: row["mean"] for row in means}
    before = {_place(row): row["mean"] for row in earlier}
    for field in dict.fromkeys(row["slice_field"] for row in rows):
        of_field = [row for row in rows if row["slice_field"] == field]
        metrics = {
            row["name"]: SliceMetric(row["name"], over_all.get(row["name"]), row["metric"] in lower)
            for row in of_field
        }
        scales = {name: _scale(of_field, metric) for name, metric in metrics.items()}
        lines: dict[str | None, dict[str, SliceCell]] = {}
        for row in of_field:
            better = _better(row["mean"], metrics[row["name"]], scales[row["name"]])
            was, now = before.get(_place(row)), row["mean"]
            change = None if was is None or now is None else now - was
            cell = SliceCell(row, better, change)
            lines.setdefault(row["slice_value"], {})[row["name"]] = cell
        worst_first = sorted(lines.items(), key=lambda line: _rank(list(line[1].values())))
        yield SliceTable(
            field,
            list(metrics.values()),
            [(value, [cells.get(name) for name in metrics]) for value, cells in worst_first],
            of_field,
        )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["slice_field"], row["slice_value"], row["name"]


def _scale(rows: Sequence[Mapping[str, Any]], metric: SliceMetric) -> float:
    """1 for a metric between 0 and 1, otherwise its largest mean."""
    means = [row["mean"] for row in rows if row["name"] == metric.name]
    known = [abs(mean) for mean in (*means, metric.mean) if mean is not None]
    return max(1.0, *known) if known else 1.0


def _better(mean: float | None, metric: SliceMetric, scale: float) -> float | None:
    if mean is None or metric.mean is None:
        return None
    difference = (mean - metric.mean) / scale
    return -difference if metric.lower else difference


def _rank(cells: Sequence[SliceCell]) -> float:
    """The mean share by which the cells are better; values without any come last."""
    known = [cell.better for cell in cells if cell.better is not None]
    return sum(known) / len(known) if known else float("inf")
