"""Plots as pictures: what they show, and that nothing in them runs or is fetched."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.quality.agreement import IntervalEstimate
from claimflow.flows.quality.corrected_rates import Bin
from claimflow.flows.quality.metric_differences import MetricDifference, StatusCounts
from claimflow.flows.quality.paired_statistics import PairedDifference
from claimflow.flows.report.plots import (
    Chart,
    comparison_chart,
    distribution_chart,
    reliability_chart,
    to_png,
    to_svg,
    trend_chart,
)
from claimflow.flows.report.run_document import PastMean
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, samples, scores

HOSTILE = "<script>alert(1)</script> ü ع 😀 ]]> \"'"
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart) -> Element:
    return fromstring(to_svg(chart))


def printed(picture: Element) -> list[str]:
    """What a screen reader is told of each mark, in order."""
    marks = picture.findall(f".//{SPACE}*[@role='graphics-symbol']")
    return [mark.get("aria-label", "") for mark in marks]


def words(picture: Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SPACE}text")]


def dashed(picture: Element) -> list[Element]:
    return [line for line in picture.iter(f"{SPACE}line") if line.get("stroke-dasharray")]


def mean(value: float | None, low: float | None = None, high: float | None = None) -> PastMean:
    return PastMean("r", datetime(2026, 1, 1), value, low, high)


def difference(
    metric: str, value: float | None, low: float | None = None, high: float | None = None
) -> MetricDifference:
    counts = StatusCounts(2, 0, 0, 0)
    found = None if value is None else PairedDifference(2, 2, value, low, high, None)
    return MetricDifference(metric, False, counts, counts, None, None, found, None)


def test_a_distribution_counts_scores_per_bin() -> None:
    picture = drawn(distribution_chart([0.0, 0.04, 0.05, 0.95, 1.0, 1.0], label="recall"))
    bars = dict(label.split("; ") for label in printed(picture))
    assert len(bars) == 20
    assert {bar: count for bar, count in bars.items() if count != "samples: 0"} == {
        "recall: 0 – 0.05": "samples: 2",
        "recall: 0.05 – 0.1": "samples: 1",
        "recall: 0.95 – 1": "samples: 3",
    }


def test_a_distribution_covers_the_range_of_its_values() -> None:
    bars = printed(drawn(distribution_chart([-1.0, 0.5, 3.0])))
    assert bars[0] == "score: −1 – −0.8; samples: 1"
    assert bars[-1] == "score: 2.8 – 3; samples: 1"


def test_a_reliability_diagram_has_a_diagonal() -> None:
    bins = [
        Bin(0.0, 0.1, 40, 0.05, IntervalEstimate(0.25, 0.1, 0.4)),
        Bin(0.9, 1.0, 60, 0.95, IntervalEstimate(0.9, 0.8, 0.95)),
    ]
    picture = drawn(reliability_chart(bins, label=HOSTILE))
    assert printed(picture) == [
        f"{HOSTILE}: 0.05; entailed by people: 0.25, 95 % interval 0.1 to 0.4; rows: 40",
        f"{HOSTILE}: 0.95; entailed by people: 0.9, 95 % interval 0.8 to 0.95; rows: 60",
    ]
    dots = [
        [float(dot.get(name, "")) for name in ("cx", "cy", "r")]
        for dot in picture.iter(f"{SPACE}circle")
    ]
    (x, y, small), (_, high, big) = dots
    assert (x, y) == pytest.approx((0.05 * 220, 0.75 * 220))
    assert (high, big > small) == (pytest.approx(0.1 * 220), True)
    [diagonal] = dashed(picture)
    assert [diagonal.get(end) for end in ("x1", "y1", "x2", "y2")] == ["0", "220", "220", "0"]
    assert printed(drawn(reliability_chart([]))) == []


def test_a_trend_has_a_gap_for_a_run_without_a_mean() -> None:
    means = {"a": mean(0.5, 0.4, 0.6), "b": mean(None), "c": mean(0.75)}
    picture = drawn(trend_chart(means, label="recall"))
    assert [word for word in words(picture) if word in "abc"] == ["a", "b", "c"]
    assert printed(picture) == ["a: recall 0.5, 95 % interval 0.4 to 0.6", "c: recall 0.75"]
    [line] = [path.get("d", "") for path in picture.iter(f"{SPACE}path")]
    assert (line.count("M"), line.count("L")) == (2, 0)
    joined = drawn(trend_chart(means | {"b": mean(0.5)}))
    [line] = [path.get("d", "") for path in joined.iter(f"{SPACE}path")]
    assert (line.count("M"), line.count("L")) == (1, 2)


def test_names_of_runs_do_not_overlap() -> None:
    means = {f"run-{number}": mean(number / 100) for number in range(100)}
    picture = drawn(trend_chart(means, width=480))
    named = [word for word in words(picture) if word.startswith("run-")]
    assert named == [f"run-{number}" for number in range(0, 100, 3)]
    assert len(printed(picture)) == 100


@pytest.mark.parametrize("value", [0.5, 0.0, -3.0, 1e-9, 12_345.6])
def test_equal_means_have_a_scale(value: float) -> None:
    picture = drawn(trend_chart({"a": mean(value), "b": mean(value)}, height=100))
    places = [float(dot.get("cy", "")) for dot in picture.iter(f"{SPACE}circle")]
    assert places[0] == places[1]
    assert 0 <= places[0] <= 100


def test_a_comparison_has_a_row_for_every_metric_and_a_line_at_zero() -> None:
    metrics = [difference("recall", 0.25, 0.125, 0.5), difference("noise", None)]
    picture = drawn(comparison_chart(metrics, label="B - A"))
    assert [word for word in words(picture) if word in ("recall", "noise")] == ["recall", "noise"]
    assert printed(picture) == ["recall: 0.25, 95 % interval 0.125 to 0.5"]
    [zero] = dashed(picture)
    [dot] = picture.iter(f"{SPACE}circle")
    # From 0 to 0.5, 360 pixels wide.
    assert (zero.get("x1"), zero.get("x2"), dot.get("cx")) == ("0", "0", "180")


@pytest.mark.parametrize(
    "chart",
    [
        distribution_chart([0.5], label=HOSTILE),
        trend_chart({HOSTILE: mean(0.5)}, label=HOSTILE),
        comparison_chart([difference(HOSTILE, 0.5)], label=HOSTILE),
        distribution_chart([]),
        trend_chart({}),
        comparison_chart([]),
    ],
    ids=["distribution", "trend", "comparison", "no values", "no points", "no metrics"],
)
def test_an_svg_is_one_element_without_scripts_or_links(chart: Chart) -> None:
    text = to_svg(chart)
    kinds = {element.tag.removeprefix(SPACE) for element in fromstring(text).iter()}
    assert kinds <= {"svg", "g", "path", "rect", "line", "text", "circle"}
    # A page's policy allows no style attribute, and black words would be lost on a dark one.
    assert not re.search(r'\son\w+=|style=|href=|url\(|"(black|#000|#888|#ddd)"', text)
    assert "currentColor" in text
    aloud = fromstring(text).get("aria-label", "")
    assert aloud == chart.about
    assert to_png(chart).startswith(b"\x89PNG\r\n")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("plots") / "s.duckdb")
    counts = {"n": 2, "n_scored": 2, "n_undefined": 0, "n_failed": 0}
    spread = dict.fromkeys(("low", "high", "micro_mean", "minimum", "median", "maximum"))
    whole: dict[str, Any] = {"scores": "recall", "metric": "recall", **counts, **spread}
    for score in (0.25, 0.75):
        put_run(
            store,
            {
                "samples": samples(["x", "y"]),
                "recall": scores("recall", {"x": score, "y": 0.5}),
                "noise": scores("noise", {"x": 0.5, "y": "failed"}),
                "empty": scores("empty", {"x": "undefined", "y": "undefined"}),
                "summary": Table(
                    "summaries",
                    [
                        whole | {"mean": (score + 0.5) / 2},
                        whole | {"scores": "empty", "metric": "empty", "n_scored": 0, "mean": None},
                    ],
                ),
            },
        )
    return store


def plotted(store: Store, *options: str) -> int:
    return main(["plot", *options, "--store", str(store.path), "--live"])


def test_plots_of_a_run_are_written(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"

    def labels(*options: str) -> set[str]:
        assert plotted(store, *options, "-o", str(out)) == 0
        return set(printed(fromstring(out.read_text("utf-8"))))

    assert "recall.recall: 0.75 – 0.8; samples: 1" in labels("recall.recall")
    trend = labels("recall", "--kind", "trend")
    assert {label.partition(": ")[2] for label in trend} == {"recall 0.375", "recall 0.625"}
    changes = {label.partition(",")[0] for label in labels("--against", "previous")}
    assert "recall: 0.25" in changes
    assert not any("recall" in label for label in labels("noise", "--against", "previous"))
    picture = tmp_path / "x.PNG"
    assert plotted(store, "noise", "-o", str(picture)) == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["-o", "x.pdf"],
            "x.pdf: is neither SVG nor PNG; let its name end in .svg or .png\n"
            "METRIC: 0 are named; name one, or another run by --against to compare several\n",
        ),
        (
            ["--kind", "trend", "--against", "previous", "-o", "x.svg"],
            "--kind trend: applies to one run only; leave it out, or --against\n",
        ),
        (
            ["recal", "-o", "x.svg"],
            "METRIC: no step makes the metric 'recal'; did you mean 'recall'?\n",
        ),
        (
            ["noise", "--kind", "trend", "-o", "x.svg"],
            "--kind trend: no run has a mean for noise; add a step that uses summarize_scores\n",
        ),
        (
            ["empty", "-o", "x.svg"],
            "METRIC: no sample has a score for empty; `claimflow show` says why\n",
        ),
        (
            ["empty", "--kind", "trend", "-o", "x.svg"],
            "--kind trend: no run has a mean for empty; `claimflow show` says why\n",
        ),
        (
            ["noise", "-o", "nowhere/x.svg"],
            "nowhere/x.svg: cannot be written (No such file or directory); "
            "name a file in a folder that you can write to\n",
        ),
    ],
)
def test_what_cannot_be_plotted_is_reported(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plotted(store, *options) == 2
    assert capsys.readouterr().err == f"claimflow: {words}"
    assert list(tmp_path.iterdir()) == []
