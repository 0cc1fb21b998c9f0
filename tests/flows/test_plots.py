"""Charts: what they show as files and notebooks, and that nothing in them runs or is fetched."""

import json
import re
import sys
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.quality.agreement import IntervalEstimate
from claimflow.flows.quality.comparison import compare
from claimflow.flows.quality.corrected_rates import Bin
from claimflow.flows.quality.metric_differences import MetricDifference, StatusCounts
from claimflow.flows.quality.paired_statistics import PairedDifference
from claimflow.flows.report.html import html_report
from claimflow.flows.report.page_charts import small_trend, sparkline
from claimflow.flows.report.plots import (
    GateLimit,
    TrendDetail,
    comparison_chart,
    distribution_chart,
    reliability_chart,
    trend_chart,
)
from claimflow.flows.report.run_charts import comparison_of_runs
from claimflow.flows.report.run_document import PastMean, RunDocument
from claimflow.flows.report.table_plots import LOOKS, Series, bar_chart, xy_chart
from claimflow.flows.report.vega_lite import Chart, told_number
from claimflow.flows.store.results import all_runs
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, samples, scores

HOSTILE = "<script>alert(1)</script> ü ع 😀 ]]> \"'"
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(chart: Chart) -> Element:
    return fromstring(chart.encoded(".svg"))


def told(picture: Element) -> list[str]:
    """What a screen reader is told of each mark, in order."""
    marks = picture.findall(f".//{SPACE}path[@role='graphics-symbol']")
    return [mark.get("aria-label", "") for mark in marks]


def words(picture: Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SPACE}text")]


def dashed(picture: Element) -> list[Element]:
    return [line for line in picture.iter(f"{SPACE}line") if line.get("stroke-dasharray")]


def lines(picture: Element) -> list[str]:
    """The paths of the lines that join points."""
    return [
        path.get("d", "")
        for group in picture.iter(f"{SPACE}g")
        if "mark-line" in group.get("class", "")
        for path in group
    ]


def places(picture: Element) -> list[tuple[float, float]]:
    """Where the marks are that a screen reader is told of."""
    marks = picture.findall(f".//{SPACE}path[@role='graphics-symbol']")
    moved = [re.findall(r"translate\((.+?),(.+?)\)", mark.get("transform", "")) for mark in marks]
    return [(float(x), float(y)) for [(x, y)] in moved]


def mean(value: float | None, low: float | None = None, high: float | None = None) -> PastMean:
    return PastMean("r", datetime(2026, 1, 1), value, low, high, 2)


def difference(
    metric: str, value: float | None, low: float | None = None, high: float | None = None
) -> MetricDifference:
    counts = StatusCounts(2, 0, 0, 0)
    found = None if value is None else PairedDifference(2, 2, value, low, high, None)
    return MetricDifference(metric, False, counts, counts, None, None, found, None)


def test_a_distribution_counts_scores_per_bin() -> None:
    picture = drawn(distribution_chart([0.0, 0.04, 0.05, 0.95, 1.0, 1.0], label="recall"))
    bars = dict(label.split("; ") for label in told(picture))
    assert len(bars) == 20
    assert {bar: count for bar, count in bars.items() if count != "samples: 0"} == {
        "recall: 0 – 0.05": "samples: 2",
        "recall: 0.05 – 0.1": "samples: 1",
        "recall: 0.95 – 1": "samples: 3",
    }


def test_a_distribution_covers_the_range_of_its_values() -> None:
    bars = told(drawn(distribution_chart([-1.0, 0.5, 3.0])))
    assert bars[0] == "score: −1 – −0.8; samples: 1"
    assert bars[-1] == "score: 2.8 – 3; samples: 1"


def test_a_reliability_diagram_has_a_diagonal() -> None:
    bins = [
        Bin(0.0, 0.1, 40, 0.05, IntervalEstimate(0.25, 0.1, 0.4)),
        Bin(0.9, 1.0, 60, 0.95, IntervalEstimate(0.9, 0.8, 0.95)),
    ]
    picture = drawn(reliability_chart(bins, label=HOSTILE))
    assert told(picture) == [
        f"{HOSTILE}: 0.05; entailed by people: 0.25, 95 % interval 0.1 to 0.4; rows: 40",
        f"{HOSTILE}: 0.95; entailed by people: 0.9, 95 % interval 0.8 to 0.95; rows: 60",
    ]
    assert places(picture) == [
        pytest.approx((0.05 * 220, 0.75 * 220)),
        pytest.approx((0.95 * 220, 0.1 * 220)),
    ]
    [diagonal] = dashed(picture)
    assert [diagonal.get(end) for end in ("transform", "x2", "y2")] == [
        "translate(0,220)",
        "220",
        "-220",
    ]
    assert told(drawn(reliability_chart([]))) == []


def test_a_trend_has_a_gap_for_a_run_without_a_mean() -> None:
    means = {"a": mean(0.5, 0.4, 0.6), "b": mean(None), "c": mean(0.75)}
    picture = drawn(trend_chart(means, label="recall"))
    assert [word for word in words(picture) if word in "abc"] == ["a", "b", "c"]
    assert told(picture) == ["a: recall 0.5, 95 % interval 0.4 to 0.6", "c: recall 0.75"]
    [line] = lines(picture)
    assert (line.count("M"), line.count("L")) == (2, 0)
    [line] = lines(drawn(trend_chart(means | {"b": mean(0.5)})))
    assert (line.count("M"), line.count("L")) == (1, 2)


def test_a_trend_is_in_the_given_order_and_names_each_rule_once() -> None:
    means = {"z": mean(0.5), HOSTILE: mean(0.75), "a": mean(0.6)}
    gates = [GateLimit("min 0.7", "fail", 0.7), GateLimit("no limit", "pass", None)]
    passed = [GateLimit("min 0.7", "pass", 0.7)]
    details = {
        "z": TrendDetail("/run/z", "", gates),
        "a": TrendDetail("/run/a", "1", passed),
    }
    picture = drawn(trend_chart(means, details=details))
    assert sorted(label.partition(": ")[0] for label in told(picture)) == sorted(means)
    assert {"z", "a", "1", "min 0.7", "✗", "✓"} <= set(words(picture))
    assert words(picture).count("min 0.7") == 1
    # One for each run, and one beside the rule.
    assert len(dashed(picture)) == 3
    [line] = lines(picture)
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+),", line)]
    assert xs == sorted(xs)
    assert len(xs) == 3


def test_names_of_runs_do_not_overlap() -> None:
    means = {f"run-{number}": mean(number / 100) for number in range(100)}
    picture = drawn(trend_chart(means, width=480))
    named = [word for word in words(picture) if word.startswith("run-")]
    assert named == [f"run-{number}" for number in range(0, 100, 3)]
    assert len(told(picture)) == 100
    # The newest one is always named.
    picture = drawn(trend_chart(means, width=240))
    named = [word for word in words(picture) if word.startswith("run-")]
    assert named == [f"run-{number}" for number in range(3, 100, 6)]


def test_signs_and_notes_make_way_where_runs_are_close() -> None:
    gates = {
        f"run-{number}": GateLimit("min 0.5", "fail" if number == 7 else "pass", 0.5)
        for number in range(20)
    }
    details = {name: TrendDetail(f"/run/{name}", "", [gate]) for name, gate in gates.items()}
    means = {name: mean(0.6) for name in gates}
    found = {
        width: words(drawn(trend_chart(means, width=width, details=details)))
        for width in (240, 480)
    }
    assert [found[480].count(sign) for sign in "✓✗"] == [19, 1]
    assert [found[240].count(sign) for sign in "✓✗"] == [0, 1]


def test_the_words_of_a_trend_stand_above_the_plot_in_lines_of_their_own() -> None:
    gates = [GateLimit("min 0.5", "pass", 0.5), GateLimit("max 0.6", "fail", 0.6)]
    details = {name: TrendDetail(f"/run/{name}", "7", gates) for name in ("a", "b")}
    picture = drawn(trend_chart({"a": mean(0.5), "b": mean(0.6)}, details=details))
    heights: dict[str, set[float]] = {}
    for text in picture.iter(f"{SPACE}text"):
        y = re.findall(r"translate\(.+?,(-?[\d.]+)\)", text.get("transform", ""))[0]
        heights.setdefault(text.text or "", set()).add(float(y))
    above = [heights[word] for word in ("7", "✓", "min 0.5", "✗", "max 0.6")]
    assert {len(one) for one in above} == {1}
    found = [y for (y,) in above]
    assert max(found) < -4
    assert min(abs(one - other) for one, other in combinations(found, 2)) >= 12
    # The lines of two gates differ.
    assert len({line.get("stroke-dasharray") for line in dashed(picture)}) == 2


@pytest.mark.parametrize("value", [0.5, 0.0, -3.0, 1e-9, 12_345.6])
def test_equal_means_have_a_scale(value: float) -> None:
    picture = drawn(trend_chart({"a": mean(value), "b": mean(value)}, height=100))
    (_, first), (_, second) = places(picture)
    assert first == second
    assert 0 <= first <= 100


def test_a_comparison_has_a_row_for_every_metric_and_a_line_at_zero() -> None:
    metrics = [difference("recall", 0.25, 0.125, 0.5), difference("noise", None)]
    picture = drawn(comparison_chart(metrics, label="B - A"))
    assert [word for word in words(picture) if word in ("recall", "noise")] == ["recall", "noise"]
    assert told(picture) == ["recall: 0.25, 95 % interval 0.125 to 0.5"]
    [zero] = dashed(picture)
    # From 0 to 0.5, 360 pixels wide.
    assert zero.get("transform", "").startswith("translate(0,")
    assert places(picture) == [pytest.approx((180, 12))]


def test_bars_begin_at_zero_and_equal_names_have_their_own() -> None:
    picture = drawn(bar_chart([("more", 2.0), ("less", -1.0), ("more", 1.0)], label="<b>"))
    assert told(picture) == ["more: 2", "less: −1", "more: 1"]
    bars = picture.findall(f".//{SPACE}path[@role='graphics-symbol']")
    # From -1 to 2, 360 pixels wide.
    widths = [float(re.findall(r"h([\d.]+)", bar.get("d", ""))[0]) for bar in bars]
    assert widths == pytest.approx([240, 120, 120])
    assert {"more", "less", "more (2)", "<b>"} <= set(words(picture))


def test_bars_of_equal_names_stand_in_one_row_and_a_legend_tells_them_apart() -> None:
    bars = [("x", 4), ("y", 2), ("x", 3), ("y", -1), ("y", 1)]
    series = Series("of", [HOSTILE, HOSTILE, "b", "b", "b"])
    chart = bar_chart(bars, label="n", series=series)
    picture = drawn(chart)
    assert told(picture)[:4] == [f"x, {HOSTILE}: 4", f"y, {HOSTILE}: 2", "x, b: 3", "y, b: −1"]
    texts = words(picture)
    # Equal names of one series have rows of their own.
    assert [texts.count(one) for one in ("x", "y", "y (2)", "of", HOSTILE, "b")] == [1] * 6
    marks = picture.findall(f".//{SPACE}path[@role='graphics-symbol']")
    tops = [float(re.findall(r"M[\d.-]+,([\d.]+)", mark.get("d", ""))[0]) for mark in marks]
    assert len(set(tops)) == 5
    assert len({mark.get("fill") for mark in marks}) == 2
    # Signs stand beside the bars: positive numbers on the right, negative ones on the left.
    signs = [
        mark
        for group in picture.iter(f"{SPACE}g")
        if "mark-symbol role-mark" in group.get("class", "")
        for mark in group
    ]
    assert len({mark.get("d") for mark in signs}) == 2
    assert len(signs) == 5
    assert chart.about == "n; bars: 5; of: 2"
    # Names that differ have rows as high as those of bars without series.
    apart = bar_chart([("x", 4), ("y", 2)], label="n", series=Series("of", ["a", "b"]))
    assert apart.spec["height"] == bar_chart([("x", 4), ("y", 2)], label="n").spec["height"]


@pytest.mark.parametrize("most", [1, 3, 5, 7, 1_234_567])
def test_whole_numbers_have_whole_labels(most: int) -> None:
    for chart in (
        bar_chart([("a", most), ("b", 1)], label="n"),
        xy_chart([1, most + 1], [1, most], titles=("t", "n"), joined=True),
    ):
        labels = [word for word in words(drawn(chart)) if word[0].isdigit()]
        assert labels
        assert len(set(labels)) >= len(labels) / 2
        assert all(re.fullmatch(r"\d{1,3}(,\d{3})*", label) for label in labels)


@pytest.mark.parametrize(
    ("x", "first"),
    [
        ([datetime(2026, 11, 1) + timedelta(days=day) for day in range(3)], "t 2026-11-01: n 1"),
        ([datetime(1, 1, 1), datetime(2026, 1, 1, 3), datetime(9999, 12, 31)], "t 0001-01-01: n 1"),
        ([0.5, 1.5, 2.5], "t 0.5: n 1"),
        (["b", "a", "b"], "t b: n 1"),
    ],
    ids=["days", "centuries", "numbers", "names"],
)
def test_points_are_joined_in_the_given_order(x: Any, first: str) -> None:
    joined = xy_chart(x, [1.0, 3.0, 2.0], titles=("t", "n"), joined=True)
    picture = drawn(joined)
    assert told(picture)[0] == first
    assert [x for x, _ in places(picture)] == sorted(x for x, _ in places(picture))
    assert [line.count("L") for line in lines(picture)] == [2]
    apart = xy_chart(x, [1.0, 3.0, 2.0], titles=("t", "n"), joined=False)
    assert lines(drawn(apart)) == []


def test_each_series_has_a_line_a_colour_and_a_shape_and_a_legend_names_them() -> None:
    names = ["a", HOSTILE, "a", HOSTILE, "constructor", "constructor"]
    chart = xy_chart(
        [1.0, 1.0, 2.0, 2.0, 1.0, 2.0],
        [1.0, 3.0, 2.0, 4.0, 5.0, 6.0],
        titles=("t", "n"),
        joined=True,
        series=Series("of", names),
    )
    picture = drawn(chart)
    assert [line.count("L") for line in lines(picture)] == [1, 1, 1]
    assert told(picture)[:2] == ["a, t 1: n 1", f"{HOSTILE}, t 1: n 3"]
    marks = picture.findall(f".//{SPACE}path[@role='graphics-symbol']")
    assert len({mark.get("fill") for mark in marks}) == 3
    assert len({mark.get("d") for mark in marks}) == 3
    legend = [word.strip("\u2060") for word in words(picture)]
    assert [legend.count(word) for word in ("of", "a", HOSTILE, "constructor")] == [1] * 4
    assert chart.about == "n by t; points: 6; of: 3"


def test_series_over_names_share_the_places_of_equal_names() -> None:
    series = Series("of", ["a", "a", "b", "b"])
    chart = xy_chart(
        ["x", "y"] * 2, [1.0, 2.0, 3.0, 4.0], titles=("t", "n"), joined=True, series=series
    )
    found = [x for x, _ in places(drawn(chart))]
    assert found[:2] == found[2:]
    apart = xy_chart(["x", "x"], [1.0, 2.0], titles=("t", "n"), joined=False)
    assert len({x for x, _ in places(drawn(apart))}) == 2


def test_the_looks_of_series_differ_and_stand_out_from_both_pages() -> None:
    assert len({colour for colour, _ in LOOKS}) == len({shape for _, shape in LOOKS}) == 10
    for colour, _ in LOOKS:
        assert min(contrast(colour, page) for page in ("#ffffff", "#14181d")) >= 3


def contrast(one: str, other: str) -> float:
    """The ratio of contrast of WCAG."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [one / 12.92 if one <= 0.04 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_every_label_of_a_time_has_the_date() -> None:
    for minutes, expected in ((20, {"00:10", "2026-11-01"}), (2880, {"12:00", "2026-11-03"})):
        x = [datetime(2026, 11, 1), datetime(2026, 11, 1) + timedelta(minutes=minutes)]
        picture = drawn(xy_chart(x, [1.0, 2.0], titles=("t (UTC)", "n"), joined=True))
        ticks = [
            text for text in picture.iter(f"{SPACE}text") if "2026" in "".join(text.itertext())
        ]
        of_day = [text for text in picture.iter(f"{SPACE}text") if ":" in "".join(text.itertext())]
        assert expected <= {line for text in ticks for line in text.itertext()}
        # The time of day stands above the date, in one label.
        assert of_day
        assert all(text in ticks for text in of_day)
        assert "t (UTC)" in words(picture)


def past(*means: float) -> list[PastMean]:
    """Means of runs on days that follow one another, with intervals of their tenth."""
    return [
        PastMean(f"r{day}", datetime(2026, 1, day), value, value * 0.9, value * 1.1, 2)
        for day, value in enumerate(means, 1)
    ]


def test_a_sparkline_has_no_axes() -> None:
    found = sparkline(past(0.5, 0.75), "recall")
    assert found is not None
    picture = drawn(found.chart)
    assert words(picture) == []
    assert [one.partition(",")[0] for one in told(picture)] == [
        "01-01 00:00 r1: recall 0.5",
        "01-02 00:00 r2: recall 0.75",
    ]
    assert sparkline(past(0.5), "recall") is None


def test_small_trends_of_metrics_from_0_to_1_have_this_scale() -> None:
    for means in ((0.5, 0.75), (0.7, 0.71)):
        spark, trend = sparkline(past(*means), "recall"), small_trend(past(*means), "recall")
        assert spark is not None
        assert trend is not None
        assert spark.scale == "0 to 1"
        for chart in (spark.chart, trend):
            height = chart.spec["height"]
            ys = [y for _, y in places(drawn(chart))]
            assert ys == pytest.approx([(1 - one) * height for one in means])


def test_the_range_of_another_scale_is_said() -> None:
    found = sparkline(past(300.0, 200.0), "length")
    assert found is not None
    assert found.scale == "180.000 to 330.000"
    top, bottom = ((330 - one) / 150 * found.chart.spec["height"] for one in (300, 200))
    assert [y for _, y in places(drawn(found.chart))] == pytest.approx([top, bottom])
    trend = small_trend(past(300.0, 200.0), "length")
    assert trend is not None
    # The axis says it there, and both ends have their time.
    assert {"200", "400", "01-01", "01-02"} <= set(words(drawn(trend)))
    days = small_trend(past(*[0.5] * 20), "recall")
    assert days is not None
    assert [word for word in words(drawn(days)) if "-" in word] == ["01-01 00:00", "01-20 00:00"]


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
def test_a_picture_has_no_scripts_and_no_links(chart: Chart) -> None:
    text = chart.encoded(".svg").decode()
    kinds = {element.tag.removeprefix(SPACE) for element in fromstring(text).iter()}
    assert kinds <= {"svg", "style", "rect", "g", "path", "line", "text"}
    assert not re.search(r"\son\w+=|style=|href=|url\(|@import", text)
    # All ink is that of the picture, which changes with its ground.
    assert not re.search(r'"(black|#000|#888|#ddd)"', text)
    assert "currentColor" in text
    assert fromstring(text).get("aria-label") == chart.about
    assert chart.encoded(".png").startswith(b"\x89PNG\r\n")
    assert json.loads(chart.encoded(".json")) == chart.spec


def test_a_notebook_gets_a_specification_and_where_it_can_be_drawn_a_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chart = distribution_chart([0.5], label="a\x1b\u202e")
    found = chart._repr_mimebundle_()
    vega_lite = "application/vnd.vegalite.v6+json"
    assert set(found) == {vega_lite, "image/svg+xml", "text/plain"}
    assert found["text/plain"] == str(chart)
    assert str(chart) == "<Chart: Distribution of a\u241b\ufffd; samples: 1 (histogram)>"
    assert "\u202e" not in json.dumps(found[vega_lite], ensure_ascii=False)
    assert "/v6.json" in found[vega_lite]["$schema"]
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert set(chart._repr_mimebundle_()) == {vega_lite, "text/plain"}


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
        return set(told(fromstring(out.read_text("utf-8"))))

    assert "recall.recall: 0.75 – 0.8; samples: 1" in labels("recall.recall")
    trend = labels("recall", "--kind", "trend")
    assert {label.partition(": ")[2] for label in trend} == {"recall 0.375", "recall 0.625"}
    changes = {label.partition(",")[0] for label in labels("--against", "previous")}
    assert "recall: 0.25" in changes
    assert not any("recall" in label for label in labels("noise", "--against", "previous"))
    picture = tmp_path / "x.PNG"
    assert plotted(store, "noise", "-o", str(picture)) == 0
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    specification = tmp_path / "x.vl.json"
    assert plotted(store, "noise", "-o", str(specification)) == 0
    assert json.loads(specification.read_text("utf-8"))["description"].endswith("samples: 1")


def test_what_leaves_a_page_has_a_title_with_run_and_count(store: Store, tmp_path: Path) -> None:
    first, second = sorted(all_runs(store)["run_id"])
    of_run = rf"run {second} of \S+, \d{{4}}-\d\d-\d\d \d\d:\d\d UTC"

    def heading(*options: str) -> list[str]:
        paths = [tmp_path / f"x.{ending}" for ending in ("json", "svg")]
        for path in paths:
            assert plotted(store, *options, "-o", str(path)) == 0
        title = json.loads(paths[0].read_text("utf-8"))["title"]
        told = [title["text"], *title["subtitle"]]
        assert set(told) <= set(fromstring(paths[1].read_text("utf-8")).itertext())
        return told

    title, run, count = heading("noise")
    assert (title, count) == ("Distribution of noise", "n = 1 scored of 2 samples")
    assert re.fullmatch(of_run, run)
    title, run, count = heading("recall", "--kind", "trend")
    assert title == "recall over the runs"
    assert re.fullmatch(f"2 runs, the last is {of_run}", run)
    assert count == "n = 2 scored samples in each run, 95 % intervals"
    title, a, b, count = heading("--against", "previous", "recall", "noise")
    assert {"noise", "recall"} <= set(title.split())
    assert a.startswith(f"A: run {first}, ")
    assert b.startswith(f"B: run {second}, ")
    assert count == "n = 1 to 2 samples scored in both, 95 % intervals"


def test_pages_have_no_title_in_their_charts(store: Store) -> None:
    run = RunDocument(store, all_runs(store)["run_id"][0])
    page = html_report(run, against=run.run_before)
    assert page.count("data-chart=") > 3
    assert '"subtitle":' not in page


def test_a_chart_in_python_tells_its_title_and_form(store: Store) -> None:
    result = claimflow.connect(store.path).result()
    assert repr(result.plot("noise")).startswith("<Chart: Distribution of noise; run ")
    assert repr(result.plot("noise")).endswith("; n = 1 scored of 2 samples (histogram)>")
    assert repr(result.plot("recall", kind="trend")).endswith(", 95 % intervals (trend)>")
    assert repr(result.plot(against="previous")).endswith(" (differences)>")


def test_the_title_of_a_comparison_names_up_to_three_metrics(store: Store) -> None:
    result = claimflow.connect(store.path).result()

    def title(*metrics: str) -> str:
        text: str = result.diff("previous").plot(*metrics).spec["title"]["text"]
        return text

    assert title("recall") == "Difference of the mean of recall from run A to run B"
    assert result.plot("recall", against="previous").spec["title"]["text"] == title("recall")
    assert {"empty", "noise", "recall"} <= set(title().replace(",", "").split())
    found = compare(store, *sorted(all_runs(store)["run_id"]))
    many = comparison_of_runs(found._replace(metrics=[*found.metrics, found.metrics[0]]))
    assert many.spec["title"]["text"] == "Differences of the means of 4 metrics from run A to run B"


def test_without_the_extra_a_specification_can_be_written(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for ending in ("svg", "png"):
        assert plotted(store, "noise", "-o", str(tmp_path / f"x.{ending}")) == 2
        assert capsys.readouterr().err == (
            "claimflow: plot: SVG and PNG plots need claimflow[charts]; "
            "run: pip install 'claimflow[charts]', or name a file that ends in .json\n"
        )
    assert plotted(store, "noise", "-o", str(tmp_path / "x.json")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["-o", "x.pdf"],
            "x.pdf: is neither SVG, PNG nor JSON; let its name end in .svg, .png or .json\n"
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
            "METRIC: no run has a mean for noise; add a step that uses summarize_scores\n",
        ),
        (
            ["empty", "-o", "x.svg"],
            "METRIC: no sample has a score for empty; `claimflow show` says why\n",
        ),
        (
            ["empty", "--kind", "trend", "-o", "x.svg"],
            "METRIC: no run has a mean for empty; `claimflow show` says why\n",
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.985, "0.985"),
        (0.543007, "0.543"),
        (-0.0898477, "\u22120.09"),
        (0.1 + 0.2, "0.3"),
        (1234567.8919, "1,234,567.892"),
        (1000, "1,000"),
        (0.0015273, "0.00153"),
        (-0.000815273, "\u22120.000815"),
        (-1e-17, "0"),
        (1e20, "1e+20"),
    ],
)
def test_a_number_that_is_read_aloud_is_short(value: float, text: str) -> None:
    assert told_number(value) == text
