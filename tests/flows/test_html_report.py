"""`claimflow report` as HTML: its elements, its policy, and its messages."""

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import chdir
from html.parser import HTMLParser
from pathlib import Path

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.report.html import html_report, remove_report, write_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store import runs
from claimflow.flows.store.store import Store
from tests.flows.recorded_runs import Table, put_run, samples, scores
from tests.flows.report_runs import put_runs, samples_of


class Parts(HTMLParser):
    """The elements of a page: names with attributes, and what stands in scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inner: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in self.inner:
            self.inner[self.cdata_elem].append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    store, a, b = put_runs(tmp_path_factory.mktemp("page"))
    return html_report(RunDocument(store, b), against=a)


def test_the_policy_allows_only_the_scripts_and_the_style_of_the_page(page: str) -> None:
    parts = Parts(page)
    [policy] = [
        found["content"]
        for tag, found in parts.elements
        if tag == "meta" and found.get("http-equiv") == "Content-Security-Policy"
    ]
    [style], [_, *scripts] = parts.inner["style"], parts.inner["script"]
    *own, sheet = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, style)
    ]
    assert len(own) == 4
    assert policy == (
        f"default-src 'none'; script-src {' '.join(own)}; style-src {sheet}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_nothing_in_the_page_fetches_or_runs(page: str) -> None:
    parts = Parts(page)
    names = {tag for tag, _ in parts.elements}
    assert not names & {"img", "link", "iframe", "object", "embed", "base", "b", "i"}
    attributes = {name for _, found in parts.elements for name in found}
    assert not {name for name in attributes if name.startswith("on")} | attributes & {
        "src", "style", "srcset", "formaction", "action",
    }  # fmt: skip
    links = [found["href"] for tag, found in parts.elements if tag == "a"]
    assert links[:6] == ["#comparison", "#metrics", "#slices", "#claims", "#cost", "#samples"]
    assert all(link.startswith("#") for link in links)
    assert "hacked" not in "".join(parts.inner["script"] + parts.inner["style"])


def test_every_table_has_headers_and_every_section_a_name(page: str) -> None:
    parts = Parts(page)
    heads = [found for tag, found in parts.elements if tag == "th"]
    assert {found.get("scope") for found in heads} == {"col", "row"}
    ids = {found["id"] for _, found in parts.elements if "id" in found}
    named = {found["aria-labelledby"] for _, found in parts.elements if "aria-labelledby" in found}
    assert named <= ids


def test_a_page_is_written_to_a_file(
    small_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", "--store", str(small_store.path), "-o", str(out)]) == 0
    assert capsys.readouterr() == ("", f"written: {out}\n")
    text = out.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "All 3 samples, those with the lowest scores first." in text
    assert "No language model was called in this run." in text
    assert "Nothing failed." in text


def test_without_a_file_the_report_goes_to_standard_output(
    small_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--store", str(small_store.path)]) == 0
    assert capsys.readouterr().out.endswith("</html>\n")


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["-o", "no/such/report.html"], "no/such/report.html: cannot be written"),
        (["--against", "main"], "there is no run 'main'"),
        (["none"], "there is no run 'none'"),
        (
            ["--against", "latest", "--format", "json"],
            "--against: is not for --format json; compare two runs by `claimflow diff`",
        ),
    ],
)
def test_wrong_options_are_reported(
    small_store: Store, capsys: pytest.CaptureFixture[str], options: list[str], output: str
) -> None:
    assert main(["report", "--store", str(small_store.path), *options]) == 2
    assert output in capsys.readouterr().err


def test_html_is_not_printed_to_a_terminal(
    small_store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["report", "--store", str(small_store.path)]) == 2
    assert "--format html: cannot be printed to a terminal; add -o FILE" in capsys.readouterr().err


def test_left_out_samples_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run = put_run(store, samples_of("precision", {f"s{n}": n / 10 for n in range(5)}))
    text = html_report(RunDocument(store, run), samples=2)
    assert (
        "2 of 5 samples: those with the lowest scores. 3 are left out; the figures above are "
        "over all. --samples N says how many to show, within 4 MB." in text
    )
    assert "scores without intervals: add a step that uses summarize_scores" in text


def test_an_unfinished_run_is_marked(
    small: Path, capsys: pytest.CaptureFixture[str], write_small: Callable[[Path], Path]
) -> None:
    store = Store(small.with_name("small.duckdb"))
    with chdir(small.parent):
        assert main(["run", "small.yaml"]) == 0
    with store.writing() as connection:
        connection.execute("UPDATE audit.runs SET status = 'stopped', reason = '<Ctrl-C>'")
        [(run,)] = connection.execute("SELECT run_id FROM audit.runs").fetchall()
    text = html_report(RunDocument(store, run))
    assert re.search('<strong class="fail">stopped: <bdi>&lt;Ctrl-C&gt;</bdi></strong>', text)


def test_a_run_without_results_has_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    run, _ = runs.start_run(store, pipeline="p", config_path="p.yaml", config="")
    text = html_report(RunDocument(store, run))
    assert '<strong class="fail">running</strong>' in text
    assert "0 samples, 0 steps made, 0 reused." in text
    assert "no means: the run is running" in text
    assert "All 0 samples" in text
    assert "and took" not in text


def test_a_metric_without_scores_is_marked(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.duckdb")
    none = dict.fromkeys(("mean", "low", "high", "micro_mean", "minimum", "median", "maximum"))
    counts = {"n": 2, "n_scored": 0, "n_undefined": 1, "n_failed": 1}
    summary = {"scores": "recall", "metric": "recall", **counts, **none}
    steps = {
        "samples": samples(["a", "b"]),
        "recall": scores("recall", {"a": "undefined", "b": "failed"}),
        "summary": Table("summaries", [summary]),
    }
    first, second = (put_run(store, steps) for _ in "ab")
    text = html_report(RunDocument(store, second), against=first)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text.partition('<h2 id="metrics">')[2])
    assert cells[:7] == [
        "-",
        "-",
        "0 of 2",
        "1",
        "1",
        "nothing was scored",
        "no two runs with a mean",
    ]
    assert "No claim changed." not in text
    assert 'class="chart"' not in text
    assert "charts.js" not in text


def test_a_report_is_removed_and_a_page_of_somebody_is_not(tmp_path: Path) -> None:
    store, a, b = put_runs(tmp_path)
    for run in (a, b):
        write_report(RunDocument(store, run), tmp_path / "pages")
    (tmp_path / f"pages/{b}.html").write_text("<title>mine</title>", "utf-8")
    assert [remove_report(run, tmp_path / "pages") for run in (a, b, "c")] == [True, False, False]
    assert [path.name for path in (tmp_path / "pages").iterdir()] == [f"{b}.html"]


def test_nightly_reports_compare_with_the_night_before(tmp_path: Path) -> None:
    store, a, b = put_runs(tmp_path)
    pages = [write_report(RunDocument(store, run), tmp_path / "pages") for run in (a, b)]
    assert pages == [tmp_path / f"pages/{run}.html" for run in (a, b)]
    assert sorted((tmp_path / "pages").iterdir()) == sorted(pages)
    first, second = (page.read_text("utf-8") for page in pages)
    assert '<h2 id="comparison">' not in first
    assert f"A: <code>{a}</code>" in second
