"""The list of runs and the page of a metric in `claimflow view`."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from claimflow.flows.report.formatting import escape_controls, format_duration
from claimflow.flows.store import runs
from claimflow.flows.store.artifacts import ArtifactWriter, Provenance
from claimflow.flows.store.runs import add_tag
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.overview import SHOWN, claim_history, pipelines, trend
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
    tables = {
        "samples": samples(["a", "b"]),
        "faithfulness": scores("faithfulness", {"a": mean, "b": "failed"}),
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
    assert (faithfulness.scored, faithfulness.of) == (2, 2)
    assert faithfulness.change == pytest.approx(-0.22)
    assert (faithfulness.finding, faithfulness.lower) == ("worse", False)
    assert (hallucination.finding, hallucination.lower) == ("worse", True)
    assert [run["run_id"] for run in second.runs] == made[::-1]
    assert [run["means"]["faithfulness"] for run in second.runs] == [0.5, 0.72, 0.7]
    assert [run["before"] for run in second.runs] == [True, True, False]
    assert [one.change for one in first.headlines] == [None, None]


def test_a_change_within_the_intervals_is_not_called_better_or_worse(tmp_path: Any) -> None:
    store = Store(tmp_path / "s.duckdb")
    for mean in (0.7, 0.72):
        put_night(store, mean)
    ((one, _),) = [found.headlines for found in pipelines(store)]
    assert one.finding == "unclear"


def test_runs_are_filtered_and_sorted(nights: tuple[Store, list[str]]) -> None:
    store, made = nights
    assert [one.name for one in pipelines(store, pipeline="nightly")] == ["nightly"]
    (tagged,) = pipelines(store, text="MAIN")
    assert [run["run_id"] for run in tagged.runs] == made[:1]
    assert pipelines(store, text="no such thing") == []
    (oldest,) = pipelines(store, pipeline="nightly", sort="started")
    assert [run["run_id"] for run in oldest.runs] == made
    (other,) = pipelines(store, pipeline="nightly", sort="nonsense; DROP TABLE runs")
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
    plot, rows = trend(store, "nightly", "faithfulness", "faithfulness")
    assert plot.startswith("<svg")
    assert [row.run_id for row in rows] == made[::-1]
    assert [row.mean for row in rows] == [0.5, 0.72, 0.7]
    assert rows[0].changed == ["samples: others", "summary: settings (resamples)"]
    assert rows[1].changed == ["samples: others"]
    assert rows[2].changed == []
    assert trend(store, "nightly", "faithfulness", "no such metric")[1] == []


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
    assert rows[0].changed == ["samples: others", "judged: prompt"]
    assert rows[2].changed == []
    (row, *_) = claim_history(store, made[0], hostile, "Another one.")
    assert (row.verdict, row.reason) == ("failed", "it was timeout")
    assert claim_history(store, made[0], hostile, "No such claim.") == []
    with serving(store) as view:
        client = Client(view)
        names = {"run": made[2], "sample": hostile, "claim": hostile}
        status, page, _ = client.ask(f"/claim?{urlencode(names)}")
        lost = [client.ask(path)[0] for path in ("/claim", "/claim?run=latest&claim=x")]
    assert status == 200
    assert "flipped" in page
    assert "judged: prompt" in page
    assert "<script" not in page
    assert lost == [404, 404]


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
