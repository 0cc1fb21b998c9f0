"""`claimflow view` over real HTTP: responses, authentication and refused requests."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.store.read_copy import readable_store, write_read_copy
from claimflow.flows.store.runs import add_tag
from claimflow.flows.store.store import Store
from claimflow.flows.viewer import pages, workbench
from claimflow.flows.viewer.responses import CONTENT_SECURITY_POLICY, Request
from tests.flows.locked_store import LockedStore
from tests.flows.recorded_runs import put_run, samples, scores
from tests.flows.test_query import SLOW, children
from tests.flows.viewing import Client, serving

HOSTILE = "</textarea><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m ü ع 😀"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("view") / "s.duckdb")
    for score in (0.5, 0.25):
        run_id = put_run(
            store,
            {
                "samples": samples([HOSTILE, "b"], response=HOSTILE),
                "faithfulness": scores("faithfulness", {HOSTILE: score, "b": 1.0}),
            },
            pipeline=HOSTILE,
        )
    add_tag(store, run_id, "main")
    return store


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[Client]:
    with serving(store) as view:
        yield Client(view)


def cells(page: str) -> list[str]:
    return [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", page, re.DOTALL)]


def test_runs_are_listed_with_their_reports(client: Client) -> None:
    status, page, headers = client.ask("/")
    assert (status, headers["Content-Security-Policy"]) == (200, CONTENT_SECURITY_POLICY)
    assert "script" not in CONTENT_SECURITY_POLICY
    assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
    assert (headers["Cache-Control"], headers["Server"]) == ("no-store", "claimflow")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    newest, _ = re.findall(r'href="(/run/[^"?]+)"', page)
    assert re.findall(r'href="([^"]+)\?against=previous"', page) == [newest]
    status, report, headers = client.ask(newest)
    assert status == 200
    assert "claimflow report" in report
    policy = headers["Content-Security-Policy"]
    assert "connect-src 'self'" in policy
    assert "form-action 'none'" in policy
    assert re.findall(r'href="(/[^"]*)"', report)[0] == "/"
    status, compared = client.follow(f"{newest}?against=previous")
    assert status == 200
    assert "-0.125" in compared
    assert client.follow("/run/main")[0] == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/run/nobody", "there is no run 'nobody'"),
        ("/run/..%2f..%2fetc%2fpasswd", "there is no run '../../etc/passwd'"),
        ("/run/main?against=nobody", "there is no run 'nobody'"),
        ("/run/%3Cscript%3Ealert(1)", "there is no run '<script>alert(1)'"),
        ("/elsewhere", "there is no such page"),
    ],
)
def test_unknown_paths_are_not_found(client: Client, path: str, words: str) -> None:
    status, page, _ = client.ask(path)
    assert status == 404
    assert words in unescape(page)
    assert "<script" not in page


def test_a_query_is_answered_as_text(client: Client) -> None:
    query = "SELECT sample_id, score, NULL AS nothing FROM latest.scores ORDER BY score"
    status, page = client.sql(query)
    assert status == 200
    shown = HOSTILE.replace("\u202e", "\ufffd").replace("\x1b", "␛")
    assert cells(page) == [shown, "0.25", "-", "b", "1", "-"]
    assert "2 rows." in page
    assert page.count("<script") == 3  # those of the page itself
    assert query in unescape(page)


def test_a_query_comes_back_as_it_was_written(client: Client) -> None:
    status, page = client.sql(f"SELECT 1\r\n-- {HOSTILE}")
    assert status == 200
    [written] = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert unescape(written) == f"SELECT 1\n-- {HOSTILE}"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM nowhere", "nowhere"),
        ("", "is empty; write one SELECT"),
        ("DELETE FROM audit.tags", "is not a SELECT; write one SELECT"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
        ("ATTACH '/tmp/other.duckdb'", "is not a SELECT"),
        ("COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)", "is not a SELECT"),
        (
            "WITH a AS (COPY (SELECT 1) TO '{store}' (FORMAT csv, USE_TMP_FILE false)) FROM a",
            "disabled by configuration; a query only reads the tables of the store",
        ),
        ("SELECT repeat('x', 4000000000)", "needs more than 2 GB of memory; narrow it"),
        ("SELECT repeat('x', 1000000) FROM range(100)", "returns more than 64 MB"),
    ],
)
def test_a_query_can_only_read_the_store(client: Client, query: str, words: str) -> None:
    store = client.view.store.path
    before = store.read_bytes()
    status, page = client.sql(query.format(store=store))
    assert status == 400
    assert words in unescape(page)
    assert store.read_bytes() == before


def test_rows_cells_and_time_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    status, page = client.sql("SELECT repeat('x', 5000) AS long FROM range(1001)")
    assert status == 200
    assert "1,000 rows. The first 1,000 of 1,001 rows." in page
    assert set(cells(page)) == {"x" * 1_999 + "…"}
    monkeypatch.setattr(workbench, "QUERY_SECONDS", 0.2)
    status, page = client.sql(SLOW)
    assert status == 400
    assert "took longer than 0.2 s" in page
    # Rows that take too long to be counted are not.
    monkeypatch.setattr(workbench, "_COUNT_SECONDS", 0.2)
    monkeypatch.setattr(workbench, "QUERY_SECONDS", 30.0)
    _, page = client.sql(
        "SELECT 1 FROM range(100000000) AS a, range(100000) AS b WHERE a.range + b.range >= 0"
    )
    assert "1,000 rows. The first 1,000 rows; there are more." in page


def test_pages_are_served_while_queries_run(client: Client) -> None:
    with ThreadPoolExecutor() as threads:
        others = children(os.getpid())
        slow = [threads.submit(client.sql, SLOW) for _ in range(2)]
        while len(asked := children(os.getpid()) - others) < 2:
            time.sleep(0.05)
        assert client.ask("/")[0] == 200
        assert client.follow("/run/main")[0] == 200
        status, page = client.sql("SELECT 1")
        assert (status, any(query.done() for query in slow)) == (503, False)
        assert "2 queries are running; try again when one has ended" in page
        for pid in asked:
            os.kill(pid, signal.SIGKILL)
        for query in slow:
            status, page = query.result()
            assert status == 400
            assert "was ended by SIGKILL; it may need too much memory: narrow it" in page
    assert client.sql("SELECT 1")[0] == 200


@pytest.mark.parametrize("host", ["evil.example:80", "127.0.0.1", "localhost:1", "", None])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_host_names_are_refused(client: Client, method: str, host: str | None) -> None:
    body = "" if method == "POST" else None
    status, page, _ = client.ask("/sql", method=method, body=body, Host=host)
    assert status == HTTPStatus.MISDIRECTED_REQUEST
    assert client.view.token not in page


def test_requests_without_the_key_are_refused(client: Client) -> None:
    for cookie in (None, "", "claimflow-1=x", f"{client.cookie}x", client.cookie[:-1], "ü"):
        status, page, _ = client.ask("/", Cookie=cookie)
        assert status == 403
        assert "open the address that `claimflow view` has printed" in unescape(page)
        assert client.sql("SELECT 1", Cookie=cookie)[0] == 403
    assert client.ask("/?key=wrong", Cookie=None)[0] == 403


def test_the_key_becomes_a_strict_http_only_cookie(
    client: Client,
) -> None:
    path = client.view.url.removeprefix(f"http://{client.host}")
    status, _, headers = client.ask(path, Cookie=None)
    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"{client.cookie}; HttpOnly; SameSite=Strict; Path=/"


def test_localhost_is_accepted(client: Client) -> None:
    host = f"localhost:{client.view.server_port}"
    assert client.ask("/", Host=host)[0] == 200
    assert client.sql("SELECT 1", Host=host, Origin=f"http://{host}")[0] == 200
    assert client.sql("SELECT 1", Host=host)[0] == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Length": "100001"}, 413),
        ({"Content_Length": "-1"}, 411),
        ({"Content_Length": None}, 411),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
    ],
    ids=str,
)
def test_a_form_of_another_site_is_refused(
    client: Client, headers: dict[str, str | None], status: int
) -> None:
    assert client.sql("SELECT 1", **headers)[0] == status


@pytest.mark.parametrize("token", ["", "wrong", "ü"])
def test_a_form_without_our_token_is_refused(client: Client, token: str) -> None:
    body = urlencode({"token": token, "sql": "SELECT 1"})
    status, page, _ = client.ask("/sql", method="POST", body=body)
    assert status == 403
    assert "the page is from before this server was started: open it again" in page


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "<B>"])
def test_other_methods_are_not_implemented(client: Client, method: str) -> None:
    status, _, headers = client.ask("/", method=method)
    assert status == 501
    assert "text/plain" in headers["Content-Type"]


def test_a_locked_store_is_service_unavailable(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb", wait=0.1)
    put_run(store, {"samples": samples(["a"])})
    for path in ("/", "/run/latest"):
        with LockedStore(store.path):
            answer = pages.handle_request(store, Request("GET", path, {}, {}), token="")
        assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert "another process has held the store for 0 s" in answer.body
    request = Request("POST", "/sql", {}, {"sql": "SELECT 1"})
    with LockedStore(store.path):
        assert (
            pages.handle_request(store, request, token="").status == HTTPStatus.SERVICE_UNAVAILABLE
        )


def test_posting_to_another_path_is_not_found(client: Client) -> None:
    body = urlencode({"token": client.view.token})
    assert client.ask("/", method="POST", body=body)[0] == 404


def test_a_closed_connection_is_not_logged(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", client.view.server_port)) as left:
        left.sendall(b"GET / HT")
        # Closed at once, without a word: the server's next read fails.
        left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(20):
        assert client.ask("/sql")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_port_in_use_is_an_error(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    port = str(client.view.server_port)
    assert main(["view", "--store", str(client.view.store.path), "--live", "--port", port]) == 2
    assert capsys.readouterr().err == (
        f"claimflow: --port {port}: cannot be used (Address already in use); "
        "name another, or 0 for a free one\n"
    )


def test_a_missing_store_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "--store", str(tmp_path / "none.duckdb"), "--port", "0"]) == 2
    assert "there is no store here; run a pipeline first" in capsys.readouterr().err


def test_ctrl_c_ends_it(store: Store) -> None:
    command = [sys.executable, "-m", "claimflow", "view", "--port", "0", "--live"]
    with subprocess.Popen(
        [*command, "--store", str(store.path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url, _, words = line.partition(" ")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?key=\S{43}", url)
        assert words == f"shows {store.path}; stop it with Ctrl-C\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0


@pytest.mark.parametrize(
    "target",
    [f"/?{'a=1&' * 21}", "http://[::1", f"/label/sheet?what={'[' * 20_000}", f"/?{'&' * 300}"],
    ids=["parameters", "address", "nested", "empty"],
)
def test_malformed_requests_are_answered_without_a_word_on_the_terminal(
    client: Client, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    for cookie in (client.cookie, None):
        status, _, _ = client.ask(target, Cookie=cookie)
        assert status in (200, 400, 403)
    assert capsys.readouterr() == ("", "")


def test_a_length_of_thousands_of_digits_is_refused(client: Client) -> None:
    status, _, _ = client.ask("/sql", method="POST", body="a", Content_Length="9" * 5000)
    assert status == 413


def test_a_word_for_a_run_becomes_its_id_in_the_address(client: Client) -> None:
    status, _, headers = client.ask("/run/latest")
    assert status == 303
    assert client.ask(headers["Location"])[0] == 200


def test_requests_of_one_viewer_wait_for_each_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run_id = put_run(store, {"samples": samples(["a"])})
    write_read_copy(store)
    with serving(readable_store(store.path)) as view, ThreadPoolExecutor(12) as pool:
        client = Client(view)
        paths = ["/label", f"/tags?run={run_id}", "/"] * 8
        statuses = list(pool.map(lambda path: client.ask(path)[0], paths))
    assert statuses == [200] * 24


def test_ids_that_look_the_same_are_not_mixed_up(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run_id = put_run(store, {"samples": samples(["x\u202ey", "x\u2066y", "plain"])})
    with serving(store) as view:
        client = Client(view)
        status, text, _ = client.ask(f"/run/{run_id}/sample?id=x%EF%BF%BDy")
        assert status == 404
        assert "2 samples have this id but for control characters" in text
        assert client.ask(f"/run/{run_id}/sample?id=plain")[0] == 200
