"""The SQL page of `claimflow view`: documented queries, tables, links, files and charts."""

import io
import re
from collections.abc import Iterator
from html import unescape
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlencode, urlsplit

import polars as pl
import pytest

from claimflow.flows.report.plots import bar_chart, to_svg
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ADDRESS
from claimflow.flows.viewer.workbench import documented_queries
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
    assert "<script" not in page
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
    assert 'aria-label="score; bars: 2"' in page
    assert "x: 0.5" in page
    for sql in (
        "SELECT 1 AS one, 2 AS two",
        "SELECT 'a' AS a, 1 AS one",
        "SELECT * FROM (VALUES ('a', 'inf'::DOUBLE), ('b', 1))",
        "SELECT * FROM (VALUES ('a', NULL::INTEGER), ('b', NULL))",
    ):
        status, page = client.sql(sql)
        assert status == 200, sql
        assert "inf:" not in page


def test_bars_begin_at_zero() -> None:
    drawn = to_svg(bar_chart([("less", -1.0), ("more", 2.0), (HOSTILE, 0.0)], label="<b>"))
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([^"]+)"', drawn)]
    assert widths[1] == pytest.approx(2 * widths[0])
    assert widths[2] == 1
    assert "<script" not in drawn
    assert "<b>" not in drawn
