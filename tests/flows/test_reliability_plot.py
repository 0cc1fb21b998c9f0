"""`claimflow plot --kind reliability`: a judge that gives probabilities, beside labels."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from claimflow.flows.cli.main import main
from claimflow.flows.quality.calibration import corrected_steps
from claimflow.flows.report.html import html_report
from claimflow.flows.report.run_document import RunDocument
from claimflow.flows.store.results import chosen_run
from claimflow.flows.store.store import Store
from tests.flows.sheets import read_sheet, save_sheet

SAMPLES = [
    {
        "sample_id": f"s{n}",
        "level": "<b>hard</b>" if n else "easy",
        "response": "The tower stands in Paris. It is made of cheese and sings at noon.",
        "reference": f"Case {n}. The tower stands in Paris and opened in 1889.",
    }
    for n in range(3)
]
PIPELINE = """
name: p
samples: {path: s.jsonl}
store: s.duckdb
steps:
  response_claims: {use: decompose_claims, of: response}
  response_in_reference: {use: verify_claims, claims: response_claims, against: reference}
  reference_claims: {use: decompose_claims, of: reference}
  reference_in_response: {use: verify_claims, claims: reference_claims, against: response}
  factual_correctness: {use: factual_correctness}
  summary: {use: summarize_scores, slices: [level, nothing]}
"""
STEP = "response_in_reference"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run of the embedded judge, with a label on each verdict of one step."""
    made = tmp_path_factory.mktemp("labelled")
    quiet = io.StringIO()
    with chdir(made), redirect_stdout(quiet), redirect_stderr(quiet):
        Path("s.jsonl").write_text("".join(json.dumps(one) + "\n" for one in SAMPLES), "utf-8")
        Path("p.yaml").write_text(PIPELINE, "utf-8")
        assert main(["run", "p.yaml"]) == 0
        store = ["--store", "s.duckdb"]
        assert main(["label", "export", "--step", STEP, "-o", "sheet.csv", *store]) == 0
        rows = read_sheet()
        for row in rows:
            row["label"] = "entailed" if "Paris" in row["claim"] else "neutral"
        save_sheet(rows)
        assert main(["label", "import", "sheet.csv", "--who", "ann", *store]) == 0
        yield made


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def plotted(*options: str) -> int:
    return main(["plot", *options, "--kind", "reliability", "-o", "r.svg", "--store", "s.duckdb"])


def test_the_diagram_has_the_bins_of_the_step() -> None:
    assert plotted(STEP) == 0
    marks = fromstring(Path("r.svg").read_text("utf-8")).iter()
    dots = [output for mark in marks if "rows: " in (output := mark.get("aria-label", ""))]
    store = Store(Path("s.duckdb"))
    [found] = corrected_steps(store, chosen_run(store, None))
    assert found.reliability is not None
    assert sum(int(dot.rpartition(": ")[2]) for dot in dots) == found.reliability.n == 6
    assert len(dots) == len(found.reliability.bins) >= 2
    assert all(dot.startswith(f"p entailed, {STEP}: 0") for dot in dots)
    words = Path("r.svg").read_text("utf-8")
    assert f">Reliability of {STEP}<" in words
    assert ">n = 6 verdicts with a label, 95 % intervals<" in words


def test_the_report_has_the_diagram() -> None:
    store = Store(Path("s.duckdb"))
    page = html_report(RunDocument(store, chosen_run(store, None)))
    assert f'"told":"p entailed, {STEP}: 0' in page


def test_the_report_has_a_diagram_of_each_slice() -> None:
    store = Store(Path("s.duckdb"))
    run = RunDocument(store, chosen_run(store, None))
    [found] = [one for one in run.corrected if one.reliability]
    by_value = {one.value: one.reliability.n for one in found.slices if one.field == "level"}
    assert by_value == {"easy": 2, "<b>hard</b>": 4}
    page = html_report(run)
    _, _, table = page.partition("<summary>By <bdi>level</bdi></summary>")
    table, _, _ = table.partition("<summary>By ")
    figures = re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</figure>", table, re.DOTALL)
    assert {
        (told, sum(int(n) for n in re.findall(r'"told":"p entailed[^"]*; rows: (\d+)"', drawn)))
        for told, drawn in figures
    } == {
        (f"<bdi>level</bdi>: <bdi>{value}</bdi>, step <bdi>{STEP}</bdi>", n)
        for value, n in [("easy", 2), ("&lt;b&gt;hard&lt;/b&gt;", 4)]
    }


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("response_in_referense", f"no step 'response_in_referense' of run {{run}} makes verdicts; "
         f"did you mean '{STEP}'?"),
        ("reference_in_response", "no label is about the verdicts of step reference_in_response; "
         "write a sheet by `claimflow label export --step reference_in_response`, and take it in"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_reported(
    step: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = chosen_run(Store(Path("s.duckdb")), None)
    assert plotted(step) == 2
    output = capsys.readouterr().err
    assert output == f"claimflow: --kind reliability: {message.format(run=run)}\n"
