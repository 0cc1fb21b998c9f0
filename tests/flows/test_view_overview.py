"""The list of runs and the page of a metric in `claimflow view`."""

import csv
import io
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import polars as pl
import pytest

from claimflow.flows.quality.comparison import compare
from claimflow.flows.report.formatting import (
    escape_controls,
    format_difference,
    format_duration,
    format_interval,
)
from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import ArtifactWriter, Provenance
from claimflow.flows.store.runs import add_tag
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.history import claim_history, small_trends, trend, trend_plot
from claimflow.flows.viewer.overview import (
    SHOWN,
    RunFilter,
    filter_choices,
    pipelines,
    runs_table,
)
from claimflow.stages.rows import Score, content_key
from claimflow.stages.tables import build
from tests.flows.recorded_runs import Table, claims, put_run, samples, scores, verdicts
from tests.flows.viewing import Client, serving

HOSTILE = "<script>alert(1)</script>"


def summary(metric: str, mean: float | None) -> dict[str, Any]:
    low, high = (None, None) if mean is None else (mean - 0.05, mean + 0.05)
    counts = {"n": 2, "n_scored": 2 if mean is not None else 0, "n_undefined": 0, "n_failed": 0}
    spread = {"minimum": mean, "median": mean, "maximum": mean, "micro_mean": mean}
    of = {"scores": metric, "metric": metric, "slice_field": None, "slice_value": None}
    return of | counts | spread | {"mean": mean, "low": low, "high": high}


def put_night(store: Store, mean: float, *, pipeline: str = "nightly", **settings: Any) -> str:
    """A run with faithfulness of that mean, and hallucination, of which less is better."""
    names = "abcdefghijkl"
    tables = {
        "samples": samples(list(names)),
        "faithfulness": scores("faithfulness", dict.fromkeys(names, mean) | {"b": "failed"}),
        "hallucination": scores("hallucination", dict.fromkeys(names, 1 - mean)),
        "summary": Table(
            "summaries",
            [summary("faithfulness", mean), summary("hallucination", 1 - mean)],
            settings=settings,
        ),
    }
    return put_run(store, tables, pipeline=pipeline)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    """Three nights of a pipeline, the last much worse, and a run of a hostile name."""
    store = Store(tmp_path_factory.mktemp("view") / "s.duckdb")
    made = [put_night(store, mean, resamples=n) for mean, n in ((0.7, 1), (0.72, 1), (0.5, 2))]
    add_tag(store, made[0], "main")
    put_night(store, 0.5, pipeline=HOSTILE)
    return store, made


@pytest.fixture(scope="module")
def client(nights: tuple[Store, list[str]]) -> Iterator[Client]:
    with serving(nights[0]) as view:
        yield Client(view)


def test_a_pipeline_has_its_newest_means_and_their_change(nights: tuple[Store, list[str]]) -> None:
    store, made = nights
    first, second = pipelines(store)
    assert (first.name, second.name) == (HOSTILE, "nightly")
    found = {one.metric: one for one in second.headlines}
    faithfulness, hallucination = found["faithfulness"], found["hallucination"]
    assert faithfulness.newest.mean == 0.5
    assert (faithfulness.newest.scored, faithfulness.of) == (2, 2)
    assert faithfulness.change == pytest.approx(-0.22)
    assert (faithfulness.finding, faithfulness.lower) == ("worse", False)
    assert (hallucination.finding, hallucination.lower) == ("worse", True)
    assert [run["run_id"] for run in second.runs] == made[::-1]
    assert [run["means"]["faithfulness"] for run in second.runs] == [0.5, 0.72, 0.7]
    assert [run["before"] for run in second.runs] == [True, True, False]
    assert [one.change for one in first.headlines] == [None, None]


def test_the_change_is_that_of_the_comparison(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    for mean in (0.7, 0.7):
        put_night(store, mean)
    ((one, other),) = [found.headlines for found in pipelines(store)]
    assert (one.finding, one.change, other.finding) == ("same", 0, "same")
    runs = [run["run_id"] for run in pipelines(store)[0].runs]
    compared = {found.metric: found for found in compare(store, runs[1], runs[0]).metrics}
    assert one.finding == compared[one.name].finding


@pytest.mark.parametrize("metrics", [["m"], ["m", "n", "o"]])
def test_an_unclear_change_has_its_interval_and_a_hint_where_many_metrics_moved(
    tmp_path: Any, metrics: list[str]
) -> None:
    store = Store(tmp_path / "s.duckdb")
    names = "abcdefgh"
    made = []
    for moved in (0.0, 0.3):
        values = {name: 0.5 + moved * (-1) ** at for at, name in enumerate(names)}
        tables = {one: scores(one, values) for one in metrics}
        rows = [summary(one, 0.5) for one in metrics]
        tables |= {"samples": samples(list(names)), "summary": Table("summaries", rows)}
        made.append(put_run(store, tables))
    ((one, *_),) = [found.headlines for found in pipelines(store)]
    assert (one.finding, one.moved, one.before) == ("unclear", len(metrics), made[0])
    compared = compare(store, made[0], made[1]).metrics[0].difference
    assert compared is not None
    assert (one.change_low, one.change_high) == (compared.low, compared.high)
    with serving(store) as view:
        page = Client(view).ask("/")[1]
    interval = format_interval(compared.low, compared.high, format_difference)
    assert f'? unclear</span><br><span class="faint">{interval}</span>' in page
    hint = f"for all {len(metrics)} metrics that moved, see "
    hint += f'<a href="/run/{made[1]}?against={made[0]}">the comparison</a>'
    assert page.count(hint) == (len(metrics) > 1)


def test_metrics_of_claims_come_first_and_others_are_counted(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    names = [f"a{number}" for number in range(9)]
    rows = [summary(name, 0.5) for name in (*names, "faithfulness")]
    put_run(store, {"samples": samples(["a"]), "summary": Table("summaries", rows)})
    (found,) = pipelines(store)
    assert [one.metric for one in found.headlines] == ["faithfulness", *names[:7]]
    assert found.more_metrics == 2
    (found,) = pipelines(store, every_metric=True)
    assert (len(found.headlines), found.more_metrics) == (10, 0)
    with serving(store) as view:
        page = Client(view).ask("/")[1]
    assert '<a href="/?metrics=all">2 more metrics</a>' in page


def test_runs_are_filtered_and_sorted(nights: tuple[Store, list[str]]) -> None:
    store, made = nights
    assert [one.name for one in pipelines(store, RunFilter("nightly"))] == ["nightly"]
    (tagged,) = pipelines(store, RunFilter(text="MAIN"))
    assert [run["run_id"] for run in tagged.runs] == made[:1]
    assert pipelines(store, RunFilter(text="no such thing")) == []
    (oldest,) = pipelines(store, RunFilter("nightly"), sort="started")
    assert [run["run_id"] for run in oldest.runs] == made
    (other,) = pipelines(store, RunFilter("nightly"), sort="nonsense; DROP TABLE runs")
    assert len(other.runs) == 3


def test_only_the_newest_runs_are_listed_unless_all_are_asked_for(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    for _ in range(SHOWN + 2):
        put_run(store, {"samples": samples(["a"])})
    (one,) = pipelines(store)
    assert (len(one.runs), one.left_out) == (SHOWN, 2)
    (every,) = pipelines(store, every=True)
    assert (len(every.runs), every.left_out) == (SHOWN + 2, 0)


def test_a_metric_over_the_runs_says_what_changed(nights: tuple[Store, list[str]]) -> None:
    store, made = nights
    rows = trend(store, "nightly", "faithfulness", "faithfulness")
    points = trend_plot(rows, "faithfulness").spec["data"]["values"]
    assert [one["link"] for one in points] == [f"/run/{run}" for run in made]
    # Other samples alone, as each night has them, are no note.
    assert [one["note"] for one in points] == ["", "", "1"]
    assert [row.run_id for row in rows] == made[::-1]
    assert [row.mean for row in rows] == [0.5, 0.72, 0.7]
    assert rows[0].changed == ["samples: other ids or texts", "summary: settings (resamples)"]
    assert rows[1].changed == ["samples: other ids or texts"]
    assert rows[2].changed == []
    assert trend(store, "nightly", "faithfulness", "no such metric") == []


def test_every_metric_is_shown_over_the_runs_and_leads_to_its_own_page(
    client: Client, nights: tuple[Store, list[str]]
) -> None:
    store, made = nights
    (one,) = pipelines(store, RunFilter(pipeline="nightly"))
    found = small_trends(store, "nightly")
    # In the order of the list of runs, which has the headlines first.
    assert [row.name for row in found] == [row.name for row in one.headlines]
    assert {row.name: row.lower for row in found} == {"faithfulness": False, "hallucination": True}
    for row in found:
        points = row.plot.spec["data"]["values"]
        assert [point["link"] for point in points] == [f"/run/{run}" for run in made]
    _, runs_page, _ = client.ask("/?pipeline=nightly")
    (link,) = re.findall(r'href="([^"]+)">All metrics over the runs<', runs_page)
    _, page, _ = client.ask(unescape(link))
    links = [unescape(one) for one in re.findall(r'<h2><a href="(/trend[^"]+)">', page)]
    assert len(links) == 2
    for one_metric in links:
        status, alone, _ = client.ask(one_metric)
        assert status == 200
        assert alone.count('class="chart"') == 1
        assert f'href="{link}">All metrics of this pipeline<' in alone
    (file,) = re.findall(r'href="(/trend[^"]*as=csv)"', page)
    rows = list(csv.DictReader(io.StringIO(client.ask(unescape(file))[1])))
    assert [(row["run_id"], row["metric"]) for row in rows] == [
        (run, metric) for run in made for metric in ("faithfulness", "hallucination")
    ]


def test_runs_are_filtered_by_status_and_tag(
    client: Client, nights: tuple[Store, list[str]]
) -> None:
    store, made = nights
    ((run,),) = [one.runs for one in pipelines(store, RunFilter(tag="main"))]
    assert run["run_id"] == made[0]
    assert pipelines(store, RunFilter(tag="mai")) == []
    assert sum(len(one.runs) for one in pipelines(store, RunFilter(status="done"))) == 4
    assert pipelines(store, RunFilter(status="failed")) == []
    choices = filter_choices(store)
    assert (choices.statuses, choices.tags) == (["done"], ["main"])
    _, page, _ = client.ask("/?tag=main&status=done")
    assert '<option value="main" selected>main</option>' in page
    assert f'href="/run/{made[0]}"' in page
    assert f'href="/run/{made[1]}"' not in page
    assert "No run matches." in client.ask("/?status=failed")[1]


def test_the_list_of_runs_is_downloaded_as_it_is_shown(
    client: Client, nights: tuple[Store, list[str]]
) -> None:
    _, made = nights
    _, page, _ = client.ask("/?pipeline=nightly&sort=started&status=done")
    (link,) = re.findall(r'href="(/[^"]*as=csv)"', page)
    status, text, headers = client.ask(unescape(link))
    assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert headers["Content-Disposition"] == 'attachment; filename="runs.csv"'
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["run_id"] for row in rows] == made
    assert [float(row["mean faithfulness"]) for row in rows] == [0.7, 0.72, 0.5]
    assert rows[0]["tags"] == "main"
    assert len(client.ask("/?as=csv")[1].splitlines()) == 5
    assert client.ask("/?as=csv&status=failed")[1].count("\n") == 1
    content = client.content("/?as=parquet")
    assert pl.read_parquet(io.BytesIO(content)).height == 4


def test_a_download_of_runs_has_those_that_the_list_leaves_out(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    for _ in range(SHOWN + 2):
        put_run(store, {"samples": samples(["a"])})
    assert runs_table(store, RunFilter()).height == SHOWN + 2


def test_a_trend_and_a_claim_are_downloaded(
    client: Client, nights: tuple[Store, list[str]]
) -> None:
    _, made = nights
    names = {"pipeline": "nightly", "scores": "faithfulness", "metric": "faithfulness"}
    _, page, _ = client.ask(f"/trend?{urlencode(names)}")
    link, other = re.findall(r'href="(/trend[^"]*as=\w+)"', page)
    rows = list(csv.DictReader(io.StringIO(client.ask(unescape(link))[1])))
    assert [row["run_id"] for row in rows] == made[::-1]
    assert rows[0]["changed"] == "samples: other ids or texts; summary: settings (resamples)"
    table = pl.read_parquet(io.BytesIO(client.content(unescape(other))))
    assert table["mean"].to_list() == [0.5, 0.72, 0.7]


def test_the_plot_of_a_metric_shows_gates_and_changes_and_leads_to_runs(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    made = [put_night(store, mean, resamples=n) for mean, n in ((0.7, 1), (0.5, 2))]
    add_tag(store, made[0], "main")
    with store.writing() as connection:
        for run, rule, value, line, outcome in (
            (made[0], "min 0.6", 0.7, 0.6, "pass"),
            (made[1], "min 0.6", 0.5, 0.6, "fail"),
            (made[1], "no worse than main by 0.02", -0.2, -0.02, "fail"),
        ):
            connection.execute(
                "INSERT INTO audit.gates (run_id, metric, rule, value, line, outcome, reason) "
                "VALUES (?, 'faithfulness', ?, ?, ?, ?, '')",
                [run, rule, value, line, outcome],
            )
    rows = trend(store, "nightly", "faithfulness", "faithfulness")
    assert [[gate.line for gate in row.gates] for row in rows] == [
        [0.6, pytest.approx(0.68)],
        [0.6],
    ]
    plot = trend_plot(rows, "faithfulness")
    assert [one["link"] for one in plot.spec["data"]["values"]] == [f"/run/{one}" for one in made]
    drawn = plot.encoded(".svg").decode()
    # One for each gate of a run, and one beside each rule.
    assert drawn.count("stroke-dasharray") == 5
    words = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert [words.count(word) for word in ("✓", "✗", "min 0.6", "1", "2")] == [1, 2, 1, 1, 0]
    names = {"pipeline": "nightly", "scores": "faithfulness", "metric": "faithfulness"}
    with serving(store) as view:
        page = Client(view).ask(f"/trend?{urlencode(names)}")[1]
    assert '<span class="outcome fail">✗ fail</span> min 0.6' in page


def test_the_pages_lead_to_each_other(client: Client, nights: tuple[Store, list[str]]) -> None:
    _, made = nights
    status, page, _ = client.ask("/")
    assert status == 200
    assert HOSTILE not in page
    assert "▼ worse" in page
    (trend_page,) = re.findall(r'href="(/trend[^"]*nightly[^"]*faithfulness[^"]*)"', page)
    status, page, _ = client.ask(unescape(trend_page))
    assert status == 200
    assert "summary: settings (resamples)" in page
    links = [unescape(link) for link in re.findall(r'href="(/run/[^"]*against[^"]*)"', page)]
    assert links[0] == f"/run/{made[2]}?against={made[1]}"
    assert client.ask(links[0])[0] == 200


def test_any_two_runs_are_compared(client: Client, nights: tuple[Store, list[str]]) -> None:
    _, made = nights
    status, _, headers = client.ask(f"/compare?{urlencode({'a': made[0], 'b': made[2]})}")
    assert (status, headers["Location"]) == (303, f"/run/{made[2]}?against={made[0]}")
    for query, code, words in [
        ({"a": made[0]}, 400, "choose a run as A and another one as B"),
        ({"a": made[0], "b": "main"}, 400, f"A and B are the same run, {made[0]}"),
        ({"a": made[0], "b": HOSTILE}, 404, f"there is no run '{HOSTILE}'"),
    ]:
        status, page, _ = client.ask(f"/compare?{urlencode(query)}")
        assert (status, words in unescape(page), "<script" in page) == (code, True, False)


@pytest.mark.parametrize(
    "path",
    [
        "/trend", "/trend?pipeline=x", "/trend?pipeline=%3Cscript%3E&scores=a&metric=b",
        "/?sort=%27&all=1&text=%25&pipeline=%00", "/?text=" + "x" * 5000,
    ],
)  # fmt: skip
def test_absurd_addresses_are_answered(client: Client, path: str) -> None:
    status, page, _ = client.ask(path)
    assert status in (200, 404)
    assert "<script" not in page


def test_a_claim_has_its_verdicts_over_the_runs(tmp_path: Any) -> None:
    hostile = f"{HOSTILE} \x1b[31m"
    store = Store(tmp_path / "s.duckdb")
    made = []
    for verdict, prompt in (("entailed", "old"), ("entailed", "old"), ("contradicted", "new")):
        tables = {
            "samples": samples([hostile]),
            "response_claims": claims({hostile: [hostile, "Another one."]}),
            "judged": verdicts(
                {(hostile, hostile): verdict, (hostile, "Another one."): "timeout"},
                settings={"prompt": prompt},
            ),
        }
        made.append(put_run(store, tables))
    put_run(store, tables, pipeline="another")
    rows = claim_history(store, made[2], escape_controls(hostile), escape_controls(hostile))
    assert [row.run_id for row in rows] == made[::-1]
    assert [row.verdict for row in rows] == ["contradicted", "entailed", "entailed"]
    assert [row.flipped for row in rows] == [True, False, False]
    assert rows[0].changed == ["samples: only others, not this one", "judged: prompt"]
    assert [row.before for row in rows] == [made[1], made[0], None]
    (row, *_) = claim_history(store, made[0], hostile, "Another one.")
    assert (row.verdict, row.reason) == ("failed", "it was timeout")
    assert claim_history(store, made[0], hostile, "No such claim.") == []
    with serving(store) as view:
        client = Client(view)
        names = {"run": made[2], "sample": hostile, "claim": hostile}
        status, page, _ = client.ask(f"/claim?{urlencode(names)}")
        text = client.ask(f"/claim?{urlencode(names)}&as=csv")[1]
        lost = [client.ask(path)[0] for path in ("/claim", "/claim?run=latest&claim=x")]
    assert status == 200
    assert "flipped" in page
    assert "judged: prompt" in page
    assert page.count("the first run here") == 1
    assert "<script" not in page
    assert lost == [404, 404]
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["verdict"] for row in table] == ["contradicted", "entailed", "entailed"]


def test_the_history_of_a_claim_says_what_changed_of_its_sample(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    made = []
    for response, metadata, names in (
        ("Kept.", "{}", ["one"]),
        ("Kept.", "{}", ["one", "two"]),
        ("Kept, too.", '{"k": 1}', ["one", "two"]),
        ("Kept, too.", '{"k": 1}', ["two"]),
        ("Kept.", "{}", ["one", "two"]),
    ):
        present = ["Kept."] if "one" in names else []
        tables = {
            "samples": samples(names, response=response, metadata=metadata),
            "response_claims": claims({"one": present}),
            "judged": verdicts({("one", claim): "entailed" for claim in present}),
        }
        made.append(put_run(store, tables))
    assert [row.changed for row in claim_history(store, made[0], "one", "Kept.")] == [
        ["this sample: not in the run before"],
        ["this sample: not in this run"],
        ["this sample: response, metadata"],
        ["samples: only others, not this one"],
        [],
    ]


def test_a_run_in_progress_shows_how_far_it_is(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    run_id, _ = runs.start_run(store, pipeline="p", config_path="p.yaml", config="")
    key = content_key("table")
    making = Provenance(run_id, key, key, {}, "lexical_match", 1, {}, {})
    writer = ArtifactWriter(store, Score, making, shards=4)
    writer.add(0, build(Score, [{"sample_id": "a", "metric": "m", "score": 1, "status": "scored"}]))
    ((run,),) = [one.runs for one in pipelines(store)]
    assert (run["making"], run["parts_made"], run["parts"]) == ("lexical_match", 1, 4)
    with serving(store) as view:
        page = Client(view).ask("/")[1]
        runs.end_run(store, run_id, "done")
        ended = Client(view).ask("/")[1]
    assert "1 of 4 parts" in page
    assert 'http-equiv="refresh"' in page
    assert 'http-equiv="refresh"' not in ended


def test_durations_are_short() -> None:
    assert [format_duration(one) for one in (0.04, 59.9, 65, 3600, 9000)] == [
        "0.0 s", "59.9 s", "1 min 5 s", "1 h 0 min", "2 h 30 min",
    ]  # fmt: skip


def test_a_claim_that_a_run_lacks_is_absent_there(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    made = []
    for texts, prompt in ((["Kept."], "a"), (["Other."], "b"), (["Kept."], "b")):
        tables = {
            "samples": samples(["one"]),
            "response_claims": claims({"one": texts}),
            "judged": verdicts({("one", texts[0]): "entailed"}, settings={"prompt": prompt}),
        }
        made.append(put_run(store, tables))
    rows = claim_history(store, made[2], "one", "Kept.")
    assert [row.verdict for row in rows] == ["entailed", "absent", "entailed"]
    assert not any(row.flipped for row in rows)
    # Each is compared with the run just before it.
    assert "judged: prompt" in rows[1].changed
    assert "judged: prompt" not in rows[0].changed
    with serving(store) as view:
        names = {"run": made[2], "sample": "one", "claim": "Kept."}
        page = Client(view).ask(f"/claim?{urlencode(names)}")[1]
    assert page.count("– no such claim") == 1
