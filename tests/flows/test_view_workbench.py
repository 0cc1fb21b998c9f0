"""The SQL page of `claimflow view`: documented queries, tables, links, files and charts."""

import io
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import polars as pl
import pytest

from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ADDRESS
from claimflow.flows.viewer.workbench import QUERY_SECONDS, documented_queries
from tests.flows.recorded_runs import put_run, samples, scores
from tests.flows.viewing import Client, serving

HOSTILE = "</td><script>alert(1)</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = Store(tmp_path_factory.mktemp("view") / "s.duckdb")
    recall = scores("recall", {"x": 0.5, HOSTILE: 0.25})
    put_run(store, {"samples": samples(["x", HOSTILE]), "recall": recall})
    with serving(store) as view:
        yield Client(view)


def download(client: Client, sql: str, wanted: str) -> tuple[int, str, bytes]:
    """Status, content type and bytes of a result as a file."""
    view = client.view
    connection = HTTPConnection(ADDRESS, view.server_port, timeout=60)
    body = urlencode({"token": view.token, "sql": sql, "as": wanted})
    origin = f"http://{ADDRESS}:{view.server_port}"
    headers = {
        "Cookie": f"{view.cookie}={view.key}",
        "Origin": origin,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/sql", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers["Content-Type"], content


def test_the_ten_queries_of_the_guide_are_offered(client: Client) -> None:
    queries = documented_queries()
    assert len(queries) == 10
    _, page, _ = client.ask("/sql")
    for query in queries:
        assert unescape(page).count(query.title) == 1
    links = [unescape(link) for link in re.findall(r'<li><a href="(/sql\?[^"]+)"', page)]
    assert [parse_qs(urlsplit(link).query)["sql"][0] for link in links] == [
        query.sql for query in queries
    ]
    for query in queries:
        assert client.sql(query.sql)[0] == 200, query.title


def test_a_query_in_the_address_is_shown_but_not_run(client: Client) -> None:
    sql = "SELECT 'shown & <b>'\nAS one"
    status, page, _ = client.ask(f"/sql?{urlencode({'sql': sql})}")
    assert status == 200
    (shown,) = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert unescape(shown) == sql
    assert 'role="status"' not in page
    (here,) = re.findall(r'href="(/sql\?[^"]+)">Link to this query', page)
    assert parse_qs(urlsplit(unescape(here)).query)["sql"] == [sql]


def test_the_tables_are_listed_with_what_their_columns_mean(client: Client) -> None:
    _, page, _ = client.ask("/sql")
    names = re.findall(r"<summary><code>([^<]+)</code>", page)
    assert names.index("latest.scores") < names.index("scores") < names.index("audit.runs")
    assert "the question" in page
    assert not any(name.startswith("stored.") for name in names)


def test_a_row_leads_to_its_run_and_sample(client: Client) -> None:
    _, page = client.sql("SELECT run_id, sample_id FROM latest.scores ORDER BY score DESC")
    cells = re.findall(r'<td dir="auto"><a href="([^"]+)">', page)
    run, sample, _, hostile = [unescape(link) for link in cells]
    assert sample == f"{run}#sample=x"
    assert parse_qs(urlsplit(hostile).fragment)["sample"] == [HOSTILE]
    assert client.ask(run)[0] == 200
    assert page.count("<script") == 3  # those of the page itself
    _, alone = client.sql("SELECT sample_id FROM latest.scores")
    assert '<td dir="auto"><a' not in alone
    _, absent = client.sql("SELECT NULL AS run_id, 1 AS sample_id")
    assert '<td dir="auto"><a' not in absent


def test_a_result_is_downloaded_whole(client: Client) -> None:
    sql = "SELECT i, [i, NULL] AS list, 'a,\"b' AS text FROM range(3000) AS t(i) ORDER BY i"
    status, kind, content = download(client, sql, "csv")
    assert (status, kind) == (200, "text/csv; charset=utf-8")
    lines = content.decode().splitlines()
    assert len(lines) == 3001
    assert lines[1] == '0,"[0, null]","a,""b"'
    status, kind, content = download(client, sql, "parquet")
    assert (status, kind) == (200, "application/vnd.apache.parquet")
    table = pl.read_parquet(io.BytesIO(content))
    assert table.height == 3000
    assert table["list"][2].to_list() == [2, None]


def test_a_download_is_whole_or_refused(client: Client) -> None:
    _, kind, content = download(client, "SELECT i FROM range(1200000) AS t(i)", "csv")
    assert kind == "text/csv; charset=utf-8"
    assert content.count(b"\n") == 1_200_001
    status, _, content = download(client, "SELECT i FROM range(20000000) AS t(i)", "parquet")
    assert status == 400
    assert b'role="alert"' in content


def test_a_query_that_cannot_be_downloaded_says_why(client: Client) -> None:
    for sql in ("SELECT nothing", "DROP TABLE audit.runs", ""):
        status, kind, content = download(client, sql, "csv")
        assert (status, kind) == (400, "text/html; charset=utf-8")
        assert b'role="alert"' in content
    # Another kind of file is the table.
    assert download(client, "SELECT 1", "exe")[1] == "text/html; charset=utf-8"


def test_texts_with_numbers_have_a_chart(client: Client) -> None:
    _, page = client.sql("SELECT sample_id, score FROM latest.scores ORDER BY score")
    assert "<p>score; bars: 2</p>" in page
    assert '"told":"x: 0.5"' in page
    for sql in (
        "SELECT 1 AS one, 2 AS two",
        "SELECT 'a' AS a, 1 AS one",
        "SELECT * FROM (VALUES ('a', 'inf'::DOUBLE), ('b', 1))",
        "SELECT * FROM (VALUES ('a', NULL::INTEGER), ('b', NULL))",
    ):
        status, page = client.sql(sql)
        assert status == 200, sql
        assert "inf:" not in page


def test_a_formula_is_a_text_in_a_csv_and_kept_in_parquet(client: Client) -> None:
    sql = "SELECT '=1+1' AS text, '@x'::ENUM ('@x') AS kind, -1 AS \"=number\""
    assert download(client, sql, "csv")[2].decode() == "text,kind,'=number\n'=1+1,'@x,-1\n"
    table = pl.read_parquet(io.BytesIO(download(client, sql, "parquet")[2]))
    assert table["text"].to_list() == ["=1+1"]


def charted(client: Client, sql: str, **choice: str) -> str:
    """The part of the page that a query changes, with the chart that was asked for."""
    fields = {"token": client.view.token, "sql": sql, "part": "result", **choice}
    status, part, _ = client.ask("/sql", method="POST", body=urlencode(fields))
    assert status == 200
    assert "<html" not in part
    return part


def note(part: str) -> str:
    """What stands below the chart on its rows."""
    (found,) = re.findall(r"</bdi>: <bdi>(.*?)</bdi></figcaption>", part)
    return unescape(found)


def series(part: str) -> dict[str, list[tuple[float, float]]]:
    """The places of the points of a chart by the names of their series."""
    ((data,),) = [re.findall(r"data-chart='([^']*)'", part)]
    found: dict[str, list[tuple[float, float]]] = {}
    for row in json.loads(unescape(data))["data"]["values"]:
        found.setdefault(row.get("series", ""), []).append((row["x"], row["y"]))
    return found


METRICS = """
SELECT DATE '2026-11-01' + i::INTEGER AS day, 'run ' || i AS run, 'step ' || m AS step,
       'metric ' || m AS metric, i + 10 * m AS mean
FROM range(3) AS t(i), range({metrics}) AS u(m) ORDER BY day, m
"""


def test_a_line_joins_the_rows_of_one_text_alone(client: Client) -> None:
    part = charted(client, METRICS.format(metrics=2))
    assert '"type":"line"' in part
    assert note(part) == "6 rows"
    found = series(part)
    # A run has one day, and a step tells no more apart than its metric.
    assert {name: [y for _, y in points] for name, points in found.items()} == {
        "metric 0": [0, 1, 2],
        "metric 1": [10, 11, 12],
    }
    assert "default: metric<" in part
    assert '"title":"metric"' in part
    chosen = charted(client, METRICS.format(metrics=2), series="step")
    assert set(series(chosen)) == {"step 0", "step 1"}
    assert '<option value="step" selected>' in chosen
    apart = charted(client, METRICS.format(metrics=2), kind="points")
    assert set(series(apart)) == {""}


def test_two_texts_tell_lines_apart_together(client: Client) -> None:
    rows = (
        "(1, 'p', 'a', 1), (1, 'p', 'b', 2), (2, 'q', 'a', 3), (3, 'p', 'a', 4), (4, 'q', NULL, 5),"
        "(5, '', NULL, 6)"
    )
    named = f"(VALUES {rows}) AS t(day, pipeline, metric, mean)"
    sql = f"SELECT DATE '2026-11-01' + day AS day, pipeline, metric, mean FROM {named}"
    assert set(series(charted(client, sql))) == {
        *("p, a", "p, b", "q, a"),
        *("q, (none)", "(empty), (none)"),
    }


def test_at_most_ten_series_are_drawn_and_the_others_are_named(client: Client) -> None:
    part = charted(client, METRICS.format(metrics=12))
    assert list(series(part)) == [f"metric {number}" for number in range(10)]
    assert note(part) == "36 rows; 10 of 12 series, left out: metric 10, metric 11"
    many = note(charted(client, METRICS.format(metrics=40)))
    assert many.endswith("metric 28, metric 29 and 10 more")


BARS = """
SELECT 'verdict ' || i AS verdict, 'step ' || m AS step, 1 + i AS claims
FROM range(2) AS t(i), range(2) AS u(m) ORDER BY m, i
"""


def test_bars_of_equal_names_are_told_apart_by_the_other_text(client: Client) -> None:
    def rows(part: str) -> list[dict[str, Any]]:
        ((data,),) = [re.findall(r"data-chart='([^']*)'", part)]
        found: list[dict[str, Any]] = json.loads(unescape(data))["data"]["values"]
        return found

    for part in (charted(client, BARS), charted(client, BARS, kind="bars", series="step")):
        assert {row["name"] for row in rows(part)} == {"verdict 0", "verdict 1"}
        assert {row["series"] for row in rows(part)} == {"step 0", "step 1"}
    # Nothing in the result tells these apart.
    alone = charted(client, "SELECT * FROM (VALUES ('a', 1), ('a', 2)) AS t(v, n)")
    assert {row["name"] for row in rows(alone)} == {"a", "a (2)"}


@pytest.mark.parametrize("count", ["count(*)", "sum(i)", "i"])
def test_columns_of_whole_numbers_have_whole_labels(client: Client, count: str) -> None:
    group = "" if count == "i" else "GROUP BY ALL"
    part = charted(client, f"SELECT 'v ' || i AS v, {count} AS n FROM range(2) AS t(i) {group}")
    assert '"format":",d"' in part
    assert '"format":",d"' not in charted(client, "SELECT 'v ' || i, i + 0.5 FROM range(2) AS t(i)")


def test_a_line_that_would_be_wrong_is_points(client: Client) -> None:
    sql = "SELECT DATE '2026-11-01' + (i % 2)::INTEGER AS day, i FROM range(4) AS t(i)"
    part = charted(client, sql)
    assert '"type":"line"' not in part
    assert (
        note(part)
        == "4 rows; points, not a line: rows with the same x differ in no text of the result"
    )
    assert "default: points<" in part


def test_a_result_without_a_chart_says_why(client: Client) -> None:
    for sql, words in (
        ("SELECT 1 AS one, 2 AS two", "the result has 1 row, and a chart needs two rows or more"),
        ("SELECT 1 AS one WHERE false", "the result has 0 rows"),
        ("SELECT 'a' AS a FROM range(2)", "a chart needs a column of numbers for y"),
        (
            "SELECT [i] AS list, i FROM range(2) AS t(i)",
            "a column of times, texts or numbers for x",
        ),
    ):
        part = charted(client, sql)
        assert "<figure" not in part
        (why,) = re.findall(r'<p class="faint">(No chart: [^<]+)</p>', part)
        assert words in why


def test_a_choice_of_columns_without_a_row_to_draw_says_so(client: Client) -> None:
    for sql in (
        "SELECT 1e308 AS x, 1e308 AS y, i FROM range(2) AS t(i)",
        "SELECT NULL::DOUBLE AS x, i AS y, i FROM range(2) AS t(i)",
    ):
        part = charted(client, sql, x="x", y="y")
        assert "<figure" not in part
        assert "No row has values of both columns that can be drawn: choose others." in part
        assert '<select name="y"' in part


def test_a_chart_of_a_cut_result_says_so(client: Client) -> None:
    sql = "SELECT i, i * i AS square FROM range(100000) AS t(i) ORDER BY i"
    for ending in (";", " -- all of them"):
        part = charted(client, sql + ending)
        assert note(part) == "the first 1,000 of 100,000 rows"
        assert "1,000 rows. The first 1,000 of 100,000 rows." in part
    bars = note(charted(client, sql, kind="bars"))
    assert bars == "40 of the first 1,000 of 100,000 rows (at most 40)"


def test_times_of_another_zone_are_drawn_in_utc(client: Client) -> None:
    at = "TIMESTAMPTZ '2026-11-01 05:30+05:30' + to_hours(i::INTEGER)"
    part = charted(client, f"SELECT {at} AS at, i FROM range(2) AS t(i)")
    assert "at (UTC) 2026-11-01: i 0" in part


def test_the_marks_of_a_chart_lead_to_their_samples(client: Client) -> None:
    sql = "SELECT run_id, sample_id, score, score AS again FROM latest.scores ORDER BY score DESC"
    for kind, choice in (("bars", {"x": "sample_id"}), ("points", {"x": "again"})):
        part = charted(client, sql, kind=kind, y="score", **choice)
        (data,) = re.findall(r"data-chart='([^']*)'", part)
        links = [row["link"] for row in json.loads(unescape(data))["data"]["values"]]
        sample, hostile = sorted(links, key=len)
        assert sample.endswith("#sample=x")
        assert parse_qs(urlsplit(hostile).fragment)["sample"] == [HOSTILE]
        assert client.ask(sample.partition("#")[0])[0] == 200


TIMES = """
SELECT TIMESTAMP '2026-11-01' + to_days(i::INTEGER) AS day, 2 * i AS twice, i, 'n' || i AS name
FROM range(9) AS t(i)
"""


def test_times_make_a_line_by_default_and_the_reader_may_choose(client: Client) -> None:
    part = charted(client, TIMES)
    assert "<p>twice by day (UTC); points: 9</p>" in part
    assert '"type":"line"' in part
    assert "day (UTC) 2026-11-02: twice 2" in part
    assert note(part) == "9 rows"
    assert '"type":"line"' not in charted(client, TIMES, kind="points")
    assert "<p>i; bars: 9</p>" in charted(client, TIMES, kind="bars", x="name", y="i")
    assert "<p>twice by i; points: 9</p>" in charted(client, TIMES, kind="line", x="i")
    # What the result lacks means the default.
    assert "<p>twice by day (UTC); points: 9</p>" in charted(client, TIMES, x=HOSTILE, kind="pie")


def test_the_choice_of_a_chart_is_in_the_address(client: Client) -> None:
    choice = {"sql": TIMES, "kind": "points", "x": HOSTILE, "y": "i"}
    _, page, _ = client.ask(f"/sql?{urlencode(choice)}")
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)" form="ask">', page)
    assert {name: unescape(value) for name, value in hidden} == {
        name: value for name, value in choice.items() if name != "sql"
    }
    (here,) = re.findall(r'href="(/sql\?[^"]+)">Link to this query', page)
    assert parse_qs(urlsplit(unescape(here)).query) == {
        name: [value] for name, value in choice.items()
    }


def test_absurd_numbers_are_left_out_of_a_chart(client: Client) -> None:
    values = "('a', 1e308), ('b', -1e308), ('c', 'nan'), ('d', NULL), ('e', 2), ('f', 3)"
    part = charted(client, f"SELECT * FROM (VALUES {values}) AS t(name, number)")
    assert note(part) == "2 of 6 rows (the others have no value or too large a number)"
    nothing = "SELECT i, CASE WHEN i < 200 THEN i END AS n FROM range(250) AS t(i)"
    assert note(charted(client, nothing, y="n")).startswith("200 of 250 rows (the others have no")
    every = "SELECT DATE '0001-01-01' AS day, 1e-320 AS n UNION ALL SELECT '9999-12-31', 0"
    for kind in ("bars", "line", "points"):
        assert note(charted(client, every, kind=kind)) == "2 rows"
        nothing = charted(client, "SELECT 'a' AS a, 'nan'::DOUBLE FROM range(2)", kind=kind)
        assert "No row has values of both columns that can be drawn" in nothing


def test_a_query_is_cancelled_and_frees_its_place(client: Client) -> None:
    token, name = client.view.token, "c" * 32
    slow = "SELECT count(*) FROM range(100000000) AS a, range(100000) AS b"
    fields = {"token": token, "sql": slow, "id": name, "part": "result"}
    other = {"token": token, "id": "d" * 32}
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(client.ask, "/sql", method="POST", body=urlencode(fields))
        cancel = urlencode({"token": token, "id": name})
        while '{"cancelled": true}' not in client.ask("/sql/cancel", method="POST", body=cancel)[1]:
            assert not answer.done()
        _, nothing, _ = client.ask("/sql/cancel", method="POST", body=urlencode(other))
        status, part, _ = answer.result()
    assert status == 200
    (seconds,) = re.findall(r"cancelled after (\d+\.\d) s", part)
    # Its own limit did not end it.
    assert float(seconds) < QUERY_SECONDS - 1
    assert nothing == '{"cancelled": false}'
    # Both places are free, and the name is forgotten.
    assert client.sql("SELECT 42")[0] == 200
    _, again, _ = client.ask("/sql/cancel", method="POST", body=cancel)
    assert again == '{"cancelled": false}'
    assert client.ask("/sql/cancel", method="POST", body=urlencode({"id": name}))[0] == 403
    assert client.ask("/sql/cancel")[0] == 404
